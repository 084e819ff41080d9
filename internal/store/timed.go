package store

import (
	"errors"

	"github.com/arraysim/arraysim/internal/block"
)

// Service is how long an mdisk takes for an operation: Parallel servers share one
// FIFO, and one serves an operation for
//
//	(Base + bytes/Bandwidth) x uniform(Low, High)
//
// The zero value takes no time.
type Service struct {
	Parallel  int    // servers; 0 means 1
	Base      int64  // nanoseconds
	Bandwidth uint64 // bytes a second of one server; 0 is infinite
	Low, High int64  // thousandths; both 0 mean exactly 1000
	// Write is what a write takes of that time, in thousandths: 4000 for the two reads and two
	// writes that a small write is in RAID 5. 0 means 1000.
	Write int64
}

// ReadCache is a cache of reads that all mdisks of a store share, as the lower
// cache of an array or the controllers behind it have one: LRU by chunks of 64 KiB.
// Reads that it answers take Hit; reads and writes both fill it.
type ReadCache struct {
	Bytes uint64
	Hit   int64 // nanoseconds
}

// Timed wraps a store so that transfers of its mdisks take the time that a model
// says, on the clock of the executor: virtual or live. Bytes move at the end of that
// time. It is deterministic for a seed.
type Timed struct {
	block.Store
	exec  block.Executor
	model func(name string) Service
	rng   uint64
	media map[string]*timedMedium
	cache *readCache
	free  *timedIO
}

var _ block.Store = (*Timed)(nil)

// NewTimed wraps inner. model gives the service of an mdisk by the name under
// which the array opens it.
func NewTimed(inner block.Store, exec block.Executor, model func(name string) Service, cache ReadCache, seed uint64) *Timed {
	t := &Timed{Store: inner, exec: exec, model: model, rng: seed, media: map[string]*timedMedium{}}
	if cache.Bytes >= chunkBytes {
		t.cache = newReadCache(int(cache.Bytes/chunkBytes), cache.Hit)
	}
	return t
}

// Medium opens an mdisk of the inner store and gives it its service.
func (t *Timed) Medium(name string, size uint64) (block.Medium, error) {
	inner, err := t.Store.Medium(name, size)
	if err != nil {
		return nil, err
	}
	m := &timedMedium{t: t, inner: inner, id: uint64(len(t.media)), factor: 1000, servers: &servers{}}
	m.set(t.model(name))
	t.media[name] = m
	return m, nil
}

// Share makes an mdisk of this store and one of another store on the same executor the same
// disk, as far as time goes: they have one FIFO and the same servers, such as two arrays whose pools lie on the
// same drives have. It tells whether there are two of these names. Preconditions: the executor is held, and
// both have the same service.
func (t *Timed) Share(name string, other *Timed, as string) bool {
	m, o := t.media[name], other.media[as]
	if m == nil || o == nil {
		return false
	}
	m.servers = o.servers
	return true
}

// Slow makes an mdisk take factor thousandths of its time from now on; it tells
// whether there is one of this name. Preconditions: the executor is held.
func (t *Timed) Slow(name string, factor int64) bool {
	m := t.media[name]
	if m != nil {
		m.factor = factor
	}
	return m != nil
}

// SetModel changes the services of all mdisks. Operations under way keep their
// times. Preconditions: the executor is held.
func (t *Timed) SetModel(model func(name string) Service) {
	t.model = model
	for name, m := range t.media { // each on its own: order does not matter
		m.set(model(name))
	}
}

// uniform returns a number below n (splitmix64).
func (t *Timed) uniform(n int64) int64 {
	t.rng += 0x9E3779B97F4A7C15
	z := t.rng
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int64((z ^ z>>31) >> 1 % uint64(n))
}

type timedMedium struct {
	t      *Timed
	inner  block.Medium
	id     uint64
	s      Service
	factor int64 // thousandths
	*servers
}

// servers are what serves the operations of one FIFO.
type servers struct {
	busy []int64 // when each is free
	last int     // the one that got the last operation: those after it are idle rather than those before
}

func (m *timedMedium) set(s Service) {
	m.s = s
	n := max(1, s.Parallel)
	for len(m.busy) < n {
		m.busy = append(m.busy, 0)
	}
	m.busy, m.last = m.busy[:n], 0
}

// timedIO is a transfer on its way.
type timedIO struct {
	m    *timedMedium
	io   [1]*block.IO
	fn   func()
	next *timedIO
}

func (m *timedMedium) Size() uint64 { return m.inner.Size() }

func (m *timedMedium) Sync(done func(error)) { m.inner.Sync(done) }

// Submit queues the transfers: each goes to the server that is free first.
func (m *timedMedium) Submit(ios []*block.IO) {
	t := m.t
	now := t.exec.Now()
	for _, io := range ios {
		end := now
		if t.cache != nil && t.cache.touch(m.id, io.Off, io.N) && !io.Write {
			end += t.cache.hit
		} else if m.s.Base != 0 || m.s.Bandwidth != 0 {
			end = m.serve(now, io)
		}
		x := t.free
		if x == nil {
			x = &timedIO{}
			x.fn = func() { x.run() }
		} else {
			t.free = x.next
		}
		x.m, x.io[0] = m, io
		if end == now {
			x.run()
			continue
		}
		block.Call(t.exec, end, x.fn)
	}
}

func (m *timedMedium) serve(now int64, io *block.IO) int64 {
	busy := m.busy
	first := m.last
	for i := first; ; {
		if i++; i >= len(busy) {
			i = 0
		}
		if busy[i] <= now { // all that are idle are equally good
			first = i
			break
		}
		if busy[i] < busy[first] {
			first = i
		}
		if i == m.last {
			break
		}
	}
	m.last = first
	cost := m.s.Base
	if m.s.Bandwidth != 0 {
		cost += int64(io.N * 1e9 / m.s.Bandwidth)
	}
	if io.Write && m.s.Write != 0 {
		cost = cost * m.s.Write / 1000
	}
	if m.s.Low != m.s.High {
		cost = cost * (m.s.Low + m.t.uniform(m.s.High-m.s.Low+1)) / 1000
	}
	busy[first] = max(busy[first], now) + cost*m.factor/1000
	return busy[first]
}

// Abandon gives a read's buffers back. One whose time has not come yet moves nothing then.
func (m *timedMedium) Abandon(io *block.IO) {
	if inner, ok := m.inner.(block.Abandoner); ok {
		inner.Abandon(io)
	}
}

// Discard takes no time of the servers: an array's disks only note it.
func (m *timedMedium) Discard(off, n uint64, done func(error)) {
	if inner, ok := m.inner.(block.Discarder); ok {
		inner.Discard(off, n, done)
		return
	}
	done(errors.ErrUnsupported)
}

// Discarded returns what the inner medium has discarded.
func (m *timedMedium) Discarded() uint64 {
	if inner, ok := m.inner.(block.Discarder); ok {
		return inner.Discarded()
	}
	return 0
}

// Unit returns that of the inner medium.
func (m *timedMedium) Unit() uint64 {
	if inner, ok := m.inner.(block.Surveyor); ok {
		return inner.Unit()
	}
	return 0
}

// Survey asks the inner medium, which has what was not overtaken by time.
func (m *timedMedium) Survey(off uint64, done func(start, end uint64, err error)) {
	if inner, ok := m.inner.(block.Surveyor); ok {
		inner.Survey(off, done)
		return
	}
	done(0, 0, errors.ErrUnsupported)
}

// run moves the bytes: the inner medium completes the transfer.
func (x *timedIO) run() {
	t := x.m.t
	x.m.inner.Submit(x.io[:])
	x.m, x.io[0] = nil, nil
	x.next = t.free
	t.free = x
}
