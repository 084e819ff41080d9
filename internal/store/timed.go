package store

import (
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
	m := &timedMedium{t: t, inner: inner, id: uint64(len(t.media)), factor: 1000}
	m.set(t.model(name))
	t.media[name] = m
	return m, nil
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
	factor int64   // thousandths
	busy   []int64 // when each server is free
}

func (m *timedMedium) set(s Service) {
	m.s = s
	n := max(1, s.Parallel)
	for len(m.busy) < n {
		m.busy = append(m.busy, 0)
	}
	m.busy = m.busy[:n]
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
			end = m.serve(now, io.N)
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

func (m *timedMedium) serve(now int64, n uint64) int64 {
	first := 0
	for i, at := range m.busy {
		if at < m.busy[first] {
			first = i
		}
	}
	cost := m.s.Base
	if m.s.Bandwidth != 0 {
		cost += int64(n * 1e9 / m.s.Bandwidth)
	}
	if m.s.Low != m.s.High {
		cost = cost * (m.s.Low + m.t.uniform(m.s.High-m.s.Low+1)) / 1000
	}
	m.busy[first] = max(m.busy[first], now) + cost*m.factor/1000
	return m.busy[first]
}

// run moves the bytes: the inner medium completes the transfer.
func (x *timedIO) run() {
	t := x.m.t
	x.m.inner.Submit(x.io[:])
	x.m, x.io[0] = nil, nil
	x.next = t.free
	t.free = x
}

const chunkBytes = 64 << 10

// readCache knows which chunks are cached; it keeps no bytes.
type readCache struct {
	hit   int64
	at    map[uint64]int32 // never iterated
	nodes []cacheNode
	limit int
	// nodes[0] is the ring's head: next is the newest, prev the oldest.
}

type cacheNode struct {
	key        uint64
	prev, next int32
}

func newReadCache(chunks int, hit int64) *readCache {
	return &readCache{hit: hit, at: map[uint64]int32{}, nodes: make([]cacheNode, 1), limit: chunks}
}

// touch makes the chunks of a transfer the newest and tells whether all were there.
func (c *readCache) touch(medium, off, n uint64) bool {
	all := true
	for chunk := off / chunkBytes; chunk <= (off+max(n, 1)-1)/chunkBytes; chunk++ {
		key := medium<<44 | chunk
		i, ok := c.at[key]
		switch {
		case ok:
			c.unlink(i)
		case len(c.nodes) <= c.limit:
			all = false
			i = int32(len(c.nodes))
			c.nodes = append(c.nodes, cacheNode{key: key})
			c.at[key] = i
		default:
			all = false
			i = c.nodes[0].prev
			c.unlink(i)
			delete(c.at, c.nodes[i].key)
			c.nodes[i].key = key
			c.at[key] = i
		}
		head := &c.nodes[0]
		c.nodes[i].prev, c.nodes[i].next = 0, head.next
		c.nodes[head.next].prev = i
		head.next = i
	}
	return all
}

func (c *readCache) unlink(i int32) {
	n := c.nodes[i]
	c.nodes[n.prev].next = n.next
	c.nodes[n.next].prev = n.prev
}
