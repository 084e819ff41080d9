// Package blocktest has the stores that tests break things with.
package blocktest

import (
	"errors"
	"math/rand/v2"

	"github.com/arraysim/arraysim/internal/block"
)

// Chaos wraps a store so that everything asynchronous takes a random time and
// may fail: transfers, syncs, flushes, commits. Bytes move at a random moment between
// the start and the end of a transfer. It is deterministic for a seed.
type Chaos struct {
	block.Store
	Clock block.Clock
	Rand  *rand.Rand
	// MaxDelay is the longest time that anything takes, in nanoseconds.
	MaxDelay int64
	// WriteErrors and SyncErrors are the chances, in percent, that an mdisk write or a
	// sync fails.
	WriteErrors, SyncErrors int
	// SyncHangs is the chance, in percent, that a sync takes up to ten seconds.
	SyncHangs int
	// PageErrors is the chance, in percent, that an entry of the meta store that is read while the array runs
	// is an error, or damaged; PageHangs that it takes up to a minute.
	PageErrors, PageHangs int
	// Inline is the chance, in percent, that a transfer takes no time at all: it is
	// done before Submit returns.
	Inline int

	committed int64 // when the last batch goes on
}

// ErrInjected is what injected errors are.
var ErrInjected = errors.New("injected error")

// later runs fn after a random time.
func (c *Chaos) later(fn func()) {
	c.Clock.At(c.Clock.Now()+c.Rand.Int64N(c.MaxDelay+1), fn)
}

// Medium wraps a medium.
func (c *Chaos) Medium(name string, size uint64) (block.Medium, error) {
	m, err := c.Store.Medium(name, size)
	if err != nil {
		return nil, err
	}
	return chaosMedium{m, c}, nil
}

// Region wraps the NVRAM: flushes take time.
func (c *Chaos) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	r, fresh, err := c.Store.Region(name, l)
	if err != nil {
		return nil, false, err
	}
	return chaosRegion{r, c}, fresh, nil
}

// Meta wraps the meta store: commits take time.
func (c *Chaos) Meta() (block.MetaStore, error) {
	m, err := c.Store.Meta()
	if err != nil {
		return nil, err
	}
	return chaosMeta{m, c}, nil
}

type chaosMedium struct {
	block.Medium
	c *Chaos
}

func (m chaosMedium) Submit(ios []*block.IO) {
	for _, io := range ios {
		c := m.c
		fail := io.Write && c.Rand.IntN(100) < c.WriteErrors
		if !fail && c.Rand.IntN(100) < c.Inline {
			m.Medium.Submit([]*block.IO{io})
			continue
		}
		c.later(func() {
			if fail {
				c.later(func() {
					io.Err = ErrInjected
					io.Done(io)
				})
				return
			}
			done := io.Done
			io.Done = func(*block.IO) {
				io.Done = done
				c.later(func() { done(io) })
			}
			m.Medium.Submit([]*block.IO{io})
		})
	}
}

func (m chaosMedium) Sync(done func(error)) {
	c := m.c
	fail := c.Rand.IntN(100) < c.SyncErrors
	sync := func() {
		if fail {
			done(ErrInjected)
			return
		}
		m.Medium.Sync(done)
	}
	if c.SyncHangs > 0 && c.Rand.IntN(100) < c.SyncHangs {
		c.Clock.At(c.Clock.Now()+c.Rand.Int64N(10e9), sync)
		return
	}
	c.later(sync)
}

// Discard takes its time.
func (m chaosMedium) Discard(off, n uint64, done func(error)) {
	d, ok := m.Medium.(block.Discarder)
	if !ok {
		done(errors.ErrUnsupported)
		return
	}
	m.c.later(func() { d.Discard(off, n, done) })
}

// Discarded returns what the wrapped medium has discarded.
func (m chaosMedium) Discarded() uint64 {
	if d, ok := m.Medium.(block.Discarder); ok {
		return d.Discarded()
	}
	return 0
}

// Unit returns that of the wrapped medium.
func (m chaosMedium) Unit() uint64 {
	if d, ok := m.Medium.(block.Surveyor); ok {
		return d.Unit()
	}
	return 0
}

// Survey takes its time.
func (m chaosMedium) Survey(off uint64, done func(start, end uint64, err error)) {
	d, ok := m.Medium.(block.Surveyor)
	if !ok {
		done(0, 0, errors.ErrUnsupported)
		return
	}
	m.c.later(func() { d.Survey(off, done) })
}

type chaosRegion struct {
	block.Region
	c *Chaos
}

func (r chaosRegion) Flush(done func(error)) {
	r.c.later(func() { r.Region.Flush(done) })
}

type chaosMeta struct {
	block.MetaStore
	c *Chaos
}

// Commit keeps the order of the batches, as the contract says.
func (m chaosMeta) Commit(batch []block.KV, done func(error)) {
	c := m.c
	if c.committed > c.Clock.Now()+c.MaxDelay { // of an earlier clock
		c.committed = 0
	}
	c.committed = max(c.committed, c.Clock.Now()+c.Rand.Int64N(c.MaxDelay+1))
	c.Clock.At(c.committed, func() { m.MetaStore.Commit(batch, done) })
}

// Read takes its time, and may fail or be damaged. It sees what was committed before it.
func (m chaosMeta) Read(key []byte, done func([]byte, error)) {
	c := m.c
	if c.PageErrors+c.PageHangs == 0 {
		m.MetaStore.Read(key, done)
		return
	}
	fails, hangs, damaged := c.Rand.IntN(100) < c.PageErrors, c.Rand.IntN(100) < c.PageHangs, c.Rand.IntN(2) == 0
	m.MetaStore.Read(key, func(value []byte, err error) {
		switch {
		case fails && damaged && len(value) > 0:
			value[c.Rand.IntN(len(value))] ^= 1 << c.Rand.IntN(8)
		case fails:
			value, err = nil, ErrInjected
		}
		if hangs {
			c.Clock.At(c.Clock.Now()+c.Rand.Int64N(60e9), func() { done(value, err) })
			return
		}
		c.later(func() { done(value, err) })
	})
}
