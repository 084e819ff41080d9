package blocktest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Remote is a store whose NVRAM is kept by a partner, at the end of a link: what the array appends and announces goes
// there in messages, which take their time and arrive in their order. It shows that the contract of block.Region needs
// no shared memory, and what a log in a cluster or a mirrored one has to do. Mdisks and metadata are the wrapped
// store's. It is deterministic for a seed.
type Remote struct {
	block.Store
	exec    block.Executor
	rnd     *rand.Rand
	partner *Partner
	delay   int64 // the longest time that a message, an answer or a flush takes, in ns
	region  *remoteRegion
}

// Partner is the far end: it outlives the array's process.
type Partner struct {
	layout block.RegionLayout
	now    []byte // what has arrived; nil: nothing ever
	stable image  // what survives a loss of its power for sure
	latest image  // the last one that was taken
	dirty  []bool // by piece: it has changed since
	boot   uint64
	// FailFlush tells whether flushes fail now, without anything being lost; nil: they do not.
	FailFlush func() bool
	// Gone: it does not answer any more, and the link says so after a while.
	Gone bool
}

// image is what a memory had at a moment, in pieces that nobody changes: images share those that are the same.
type image [][]byte

// piece is the size of an image's pieces, whole sectors. A flush of a large log copies what has changed, not all.
const piece = 8 * block.SectorSize

// NewPartner returns one that holds nothing.
func NewPartner() *Partner { return &Partner{boot: 1} }

// errGone is the error of what the partner does not answer.
var errGone = errors.New("the partner does not answer")

// NewRemote returns a store over what a partner holds. delay is in nanoseconds of the executor's clock.
func NewRemote(inner block.Store, exec block.Executor, partner *Partner, delay int64, rnd *rand.Rand) *Remote {
	return &Remote{Store: inner, exec: exec, rnd: rnd, partner: partner, delay: delay}
}

// Region opens what the partner holds.
func (r *Remote) Region(_ string, l block.RegionLayout) (block.Region, bool, error) {
	p := r.partner
	fresh := p.now == nil
	if fresh {
		p.layout, p.now = l, make([]byte, l.Size())
		p.latest = slices.Collect(slices.Chunk(make([]byte, l.Size()), piece))
		p.stable, p.dirty = p.latest, make([]bool, len(p.latest))
	}
	if p.layout != l {
		return nil, false, fmt.Errorf("the partner's log has other sizes: %w", block.ErrSize)
	}
	have, _ := l.Cut(p.now)
	g := &remoteRegion{r: r, p: p, parts: block.RegionMemory{State: bytes.Clone(have.State), Counters: bytes.Clone(have.Counters),
		Descriptors: bytes.Clone(have.Descriptors), Pages: bytes.Clone(have.Pages)}}
	r.region = g
	return g, fresh, nil
}

// Kill is the death of the array's process: of what is on its way, a part arrives. Nothing may use the store any more.
func (r *Remote) Kill() {
	if r.region == nil {
		return
	}
	for _, m := range r.region.link {
		if m.arrived {
			continue
		}
		if r.rnd.IntN(4) == 0 {
			r.partner.tear(m, r.rnd)
			break
		}
		r.partner.apply(m.updates)
	}
	r.region = nil
}

// Cut is Kill, and the partner loses its power as well: of what it has not flushed, any sectors are kept.
func (r *Remote) Cut() {
	r.Kill()
	p := r.partner
	kept := []int{0, 5, 50, 95}[r.rnd.IntN(4)]
	for at := 0; at < len(p.now); at += block.SectorSize {
		end := min(at+block.SectorSize, len(p.now))
		stable := p.stable[at/piece][at%piece:][:end-at]
		if !bytes.Equal(p.now[at:end], stable) && r.rnd.IntN(100) >= kept {
			copy(p.now[at:end], stable)
			p.dirty[at/piece] = true
		}
	}
	p.Settle()
	p.boot++
}

// Settle makes what has arrived survive a loss of power.
func (p *Partner) Settle() { p.stable = p.image() }

// image takes one of what has arrived.
func (p *Partner) image() image {
	p.latest = slices.Clone(p.latest)
	for i, dirty := range p.dirty {
		if dirty {
			p.latest[i] = bytes.Clone(p.now[i*piece:][:len(p.latest[i])])
		}
	}
	clear(p.dirty)
	return p.latest
}

func (p *Partner) fails() bool { return p.FailFlush != nil && p.FailFlush() }

// update is bytes of a part.
type update struct {
	part block.Part
	off  int
	b    []byte
}

// message is what goes over the link at once: its updates in the order of the parts, as they were when it left.
type message struct {
	updates []update
	flush   bool
	done    func(error)
	arrived bool
}

// at returns the place of an update, which its caller changes.
func (p *Partner) at(u *update) []byte {
	from := p.layout.Offset(u.part) + u.off
	for i := from / piece; i*piece < from+len(u.b); i++ {
		p.dirty[i] = true
	}
	return p.now[from:][:len(u.b)]
}

func (p *Partner) apply(updates []update) {
	for i := range updates {
		copy(p.at(&updates[i]), updates[i].b)
	}
}

// tear applies the first part of a message.
func (p *Partner) tear(m *message, rnd *rand.Rand) {
	if len(m.updates) == 0 {
		return
	}
	n := rnd.IntN(len(m.updates))
	p.apply(m.updates[:n])
	u := &m.updates[n]
	unit := 1
	switch u.part {
	case block.PartPages, block.PartState:
		unit = block.SectorSize
	case block.PartDescriptors:
		unit = 64
	case block.PartCounters:
		unit = 8
	}
	copy(p.at(u), u.b[:rnd.IntN(len(u.b)+1)/unit*unit])
}

// remoteRegion is the array's end of the link.
type remoteRegion struct {
	r         *Remote
	p         *Partner
	parts     block.RegionMemory // its own: the partner cannot see it
	announced [block.NumParts][]span
	records   []update
	link      []*message // that have left, the oldest first, and have not arrived
	arrival   int64      // of the last one
	answer    int64      // to the last one
}

// span is bytes [off, end) of a part.
type span struct{ off, end int }

func (g *remoteRegion) Memory() block.RegionMemory { return g.parts }
func (g *remoteRegion) Local() bool                { return false }
func (g *remoteRegion) Boot() uint64               { return g.p.boot }
func (g *remoteRegion) Distrust()                  {} // each flush is of all that the partner has

// Announce notes what the next message takes: whole sectors of pages and of the state.
func (g *remoteRegion) Announce(part block.Part, off, n int) {
	end := off + n
	if part == block.PartPages || part == block.PartState {
		off, end = off&^(block.SectorSize-1), (end+block.SectorSize-1)&^(block.SectorSize-1)
	}
	list := g.announced[part]
	if k := len(list) - 1; k >= 0 && list[k].off <= off && off <= list[k].end {
		list[k].end = max(list[k].end, end)
		return
	}
	g.announced[part] = append(list, span{off, end})
}

// Append notes a record for the next message.
func (g *remoteRegion) Append(at int, record []byte) {
	g.records = append(g.records, update{block.PartLog, at, bytes.Clone(record)})
}

// collect makes a message of what was announced and appended since the last one.
func (g *remoteRegion) collect() *message {
	m := &message{}
	take := func(part block.Part) {
		list, memory := g.announced[part], g.parts.Part(part)
		slices.SortFunc(list, func(x, y span) int { return cmp.Compare(x.off, y.off) })
		for i := 0; i < len(list); {
			s := list[i]
			for i++; i < len(list) && list[i].off <= s.end; i++ {
				s.end = max(s.end, list[i].end)
			}
			m.updates = append(m.updates, update{part, s.off, bytes.Clone(memory[s.off:s.end])})
		}
		g.announced[part] = list[:0]
	}
	take(block.PartPages)
	take(block.PartDescriptors)
	m.updates = append(m.updates, g.records...)
	g.records = nil
	take(block.PartState)
	return m
}

// some is a random time.
func (g *remoteRegion) some() int64 { return g.r.rnd.Int64N(g.r.delay + 1) }

// send sends a message and has done called with the answer.
func (g *remoteRegion) send(m *message) {
	x := g.r.exec
	g.arrival = max(g.arrival, x.Now()+g.some())
	g.link = append(g.link, m)
	x.At(g.arrival, func() { g.arrive(m) })
}

func (g *remoteRegion) arrive(m *message) {
	if g.p.Gone {
		g.reply(m, errGone)
		return
	}
	g.deliver(m)
	if !m.flush {
		g.reply(m, nil)
		return
	}
	now := g.p.image()
	g.r.exec.At(g.r.exec.Now()+g.some(), func() {
		if g.p.fails() {
			g.reply(m, ErrInjected)
			return
		}
		g.p.stable = now
		g.reply(m, nil)
	})
}

// deliver brings all messages up to m to the partner.
func (g *remoteRegion) deliver(m *message) {
	for !m.arrived {
		first := g.link[0]
		g.p.apply(first.updates)
		first.arrived = true
		g.link = g.link[1:]
	}
}

// reply has the answer to a message come, in the order of the commits.
func (g *remoteRegion) reply(m *message, err error) {
	x := g.r.exec
	at := x.Now() + g.some()
	if !m.flush {
		g.answer = max(g.answer, at)
		at = g.answer
	}
	x.At(at, func() { m.done(err) })
}

// Commit sends what there is, and ends with the partner's answer.
func (g *remoteRegion) Commit(done func(error)) {
	m := g.collect()
	m.done = done
	g.send(m)
}

// Flush sends what there is, and the counters, and ends when the partner has flushed.
func (g *remoteRegion) Flush(done func(error)) {
	m := g.collect()
	m.updates = append(m.updates, update{block.PartCounters, 0, bytes.Clone(g.parts.Counters)})
	m.flush, m.done = true, done
	g.send(m)
}

// FlushNow waits for all that is on its way.
func (g *remoteRegion) FlushNow() error {
	if g.p.Gone {
		return errGone
	}
	m := g.collect()
	m.updates = append(m.updates, update{block.PartCounters, 0, bytes.Clone(g.parts.Counters)})
	g.link = append(g.link, m)
	g.deliver(m)
	if g.p.fails() {
		return ErrInjected
	}
	g.p.Settle()
	return nil
}

// ReadLog reads what the partner has, and what is on its way there.
func (g *remoteRegion) ReadLog(at int, b []byte) error {
	if g.p.Gone {
		return errGone
	}
	_, log := g.p.layout.Cut(g.p.now)
	copy(b, log[at:at+len(b)])
	over := func(list []update) {
		for _, u := range list {
			if from, to := max(u.off, at), min(u.off+len(u.b), at+len(b)); u.part == block.PartLog && from < to {
				copy(b[from-at:], u.b[from-u.off:to-u.off])
			}
		}
	}
	for _, m := range g.link {
		over(m.updates)
	}
	over(g.records)
	return nil
}
