package sim

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// What becomes of a cache when its virtual machine stands still, is restarted or moves to another
// host. A vFRC cache is volatile: only a move may keep what is in it.

// Move is a job of kind vmotion: the virtual machine of a volume, or of a group of them, goes to another
// host, and the loads and transactions on these volumes with it. Memory goes over a link of the job's bandwidth first, then
// the caches; the machine runs meanwhile, and changes hosts at the end.
type Move struct {
	Memory Size `yaml:"memory"`
	// Caches says what happens to the caches: file moves the whole cache file, including its unused part,
	// as vFRC does; blocks moves its contents; drop leaves them behind.
	Caches string `yaml:"caches" jsonschema:"enum=file,enum=blocks,enum=drop"`
}

// moveDepth is how many runs of blocks a move has under way.
const moveDepth = 16

// moveChunk is what memory is sent in.
const moveChunk = 1 << 20

func (j *JobSpec) checkMove() error {
	if j.Caches == "" {
		j.Caches = "file"
	}
	switch {
	case j.To == "":
		return errors.New("a vmotion goes to another host; add to")
	case j.Bandwidth == 0:
		return errors.New("a vmotion needs the bandwidth of its link")
	}
	return nil
}

// moving is a job of kind vmotion.
type moving struct {
	j        *job
	to       *host
	from, at []*device
	busy     int64    // when the link is free
	tokens   []uint64 // by cache: what its quiesce is ended with
	next     int      // the cache that goes next
}

func (j *job) makeMove(vols []*volume) error {
	m := &moving{j: j, tokens: make([]uint64, len(vols))}
	for _, h := range j.r.hosts {
		if h.name == j.spec.To {
			m.to = h
		}
	}
	if m.to == nil || m.to == j.h {
		return fmt.Errorf("there is no other host %q", j.spec.To)
	}
	for _, v := range vols {
		m.from, m.at = append(m.from, j.h.device(v)), append(m.at, m.to.device(v))
	}
	j.ends, j.work = true, m.begin
	return nil
}

// carry sends so many bytes over the link.
func (m *moving) carry(bytes uint64, done func()) {
	x := m.j.r.exec
	m.j.bytes += bytes
	m.busy = max(m.busy, x.Now()) + sendTime(bytes, uint64(m.j.spec.Bandwidth))
	x.Call(m.busy, done)
}

// sendTime is what so many bytes take on a link of so many a second, in nanoseconds; at most 290 years.
func sendTime(bytes, bandwidth uint64) int64 {
	hi, lo := bits.Mul64(bytes, 1e9)
	if hi >= bandwidth {
		return math.MaxInt64 / 2
	}
	ns, _ := bits.Div64(hi, lo, bandwidth)
	return int64(min(ns, math.MaxInt64/2))
}

func (m *moving) begin() {
	for i, d := range m.at {
		if d.cache != nil && m.from[i].cache != nil && m.j.spec.Caches != "drop" {
			d.cache.arriving = m
			d.cache.checkArriving()
		}
	}
	left := uint64(m.j.spec.Memory)
	var send func()
	send = func() {
		if left == 0 {
			m.caches()
			return
		}
		n := min(left, moveChunk)
		left -= n
		m.carry(n, send)
	}
	send()
}

// checkArriving ends the run if a cache that another one is copied to has clients. What they write there the old host's cache
// does not hear of, and the copy of that one would take its place. A machine's own jobs change hosts with it.
func (k *cached) checkArriving() {
	if m := k.arriving; m != nil && k.flying > 0 {
		m.j.r.fail(fmt.Errorf("job %s: cache %s has clients of host %s while its volume moves there from host %s; let them begin after the move",
			m.j.spec.Name, k.name, m.to.name, m.j.h.name))
	}
}

// caches moves one cache after the other, and then the guest.
func (m *moving) caches() {
	if m.next == len(m.from) {
		m.switchOver()
		return
	}
	at := m.next
	src, dst := m.from[at].cache, m.at[at].cache
	m.next++
	if src == nil {
		m.caches()
		return
	}
	// A cache with dirty data writes through from now on: what moves is clean, and what stays is below.
	const tokenTime = 24 * 3600 * second
	src.disk.Quiesce(tokenTime, func(token uint64) {
		if m.tokens[at] = token; token == 0 { // it was not clean in all that time
			m.next = at
			m.caches()
			return
		}
		if dst == nil || m.j.spec.Caches == "drop" {
			m.caches()
			return
		}
		dst.disk.MigrateFrom(src.disk, tier.Migration{Depth: moveDepth, Carry: m.carry}, func(blocks int, bytes uint64) {
			m.j.r.event("job %s: %d blocks of cache %s are at host %s", m.j.spec.Name, blocks, src.name, m.to.name)
			if file := uint64(src.spec.Size); m.j.spec.Caches == "file" && file > bytes {
				m.carry(file-bytes, m.caches)
				return
			}
			m.caches()
		})
	})
}

// switchOver makes the guest's jobs those of the other host. What they send there waits until what is under way
// here has ended, and the caches there have forgotten what changed since it was copied.
func (m *moving) switchOver() {
	r := m.j.r
	for i, d := range m.from {
		dst := m.at[i].cache
		if dst != nil {
			dst.arriving = nil
			dst.still = dst.still || d.cache != nil
		}
		for _, j := range r.jobs {
			j.move(d, m.at[i])
		}
		if d.cache == nil {
			continue
		}
		m.settle(d.cache, dst, m.tokens[i])
	}
	r.event("job %s: the guest runs at host %s", m.j.spec.Name, m.to.name)
	m.j.stop()
}

// settle waits for the end of what guests have under way at the old host, whose cache is emptied then, and has
// its policy again.
func (m *moving) settle(src, dst *cached, token uint64) {
	x := m.j.r.exec
	if src.flying > 0 {
		const look = 10_000
		x.Call(x.Now()+look, func() { m.settle(src, dst, token) })
		return
	}
	empty := func(then func()) {
		src.disk.Drop(func(int64) {
			src.disk.Resume(token)
			then()
		})
	}
	if dst == nil {
		empty(func() {})
		return
	}
	dst.disk.Arrive(src.disk, func() { empty(dst.goOn) })
}

// move makes a job that works on a device work on the same volume of another host.
func (j *job) move(from, to *device) {
	for _, l := range j.loads {
		if l.d == from {
			l.d, l.k.d = to, to
		}
	}
	if j.tx != nil && j.tx.d == from {
		j.tx.d = to
	}
}

// goOn sends what guests gave while they stood still.
func (k *cached) goOn() {
	k.still = false
	held := k.held
	k.held = nil
	for _, c := range held {
		k.submit(c)
	}
}

// stops are what destroys a cache, and whether the guest stands still meanwhile.
var stops = map[string]bool{"cold-restart": true, "suspend": true, "snapshot-revert": false, "snapshot-consolidate": false}

// stop returns what carries a fault out that destroys the cache of a volume. A guest that is suspended or off
// gives nothing for the time of the fault.
func (r *Run) stop(f *FaultSpec) (func(), error) {
	var k *cached
	for _, c := range r.caches {
		if c.name == f.Cache {
			k = c
		}
	}
	if k == nil {
		return nil, fmt.Errorf("it needs cache: there is no cache %q", f.Cache)
	}
	return func() {
		if !stops[f.Kind] {
			k.disk.Drop(func(int64) {})
			return
		}
		k.still = true
		k.disk.Drop(func(int64) {})
		r.exec.Call(r.exec.Now()+int64(f.For), k.goOn)
	}, nil
}
