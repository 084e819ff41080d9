package store

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble"

	"github.com/arraysim/arraysim/internal/block"
)

// Meta opens the checkpoints and objects.
func (s *Files) Meta() (block.MetaStore, error) {
	db, err := pebble.Open(filepath.Join(s.dir, "meta"), &pebble.Options{
		FS:           patientFS{s.fs, &s.closing},
		Logger:       quiet{},
		MemTableSize: 16 << 20,
		// In virtual time nothing happens behind the executor's back.
		DisableAutomaticCompactions: s.opt.Later != nil,
	})
	if err != nil {
		return nil, fmt.Errorf("the checkpoints in %s cannot be opened: %w", s.dir, err)
	}
	m := &pebbleMeta{s: s, db: db, done: make(chan struct{})}
	m.cond = sync.NewCond(&m.mu)
	s.meta = m
	if s.opt.Later != nil {
		close(m.done)
		return m, nil
	}
	go m.run()
	return m, nil
}

// pebbleMeta commits on a goroutine of its own, so that batches keep their order and
// the executor never waits for a sync.
type pebbleMeta struct {
	s    *Files
	db   *pebble.DB
	done chan struct{}

	mu    sync.Mutex // guards queue and ended
	cond  *sync.Cond
	queue []commit
	ended bool
}

type commit struct {
	batch []block.KV
	done  func(error)
}

func (m *pebbleMeta) run() {
	defer close(m.done)
	for {
		m.mu.Lock()
		for len(m.queue) == 0 && !m.ended {
			m.cond.Wait()
		}
		queue := m.queue
		m.queue = nil
		m.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, c := range queue {
			err := m.CommitNow(c.batch)
			m.s.exec.Post(func() { c.done(err) })
		}
	}
}

// Commit queues a batch.
func (m *pebbleMeta) Commit(batch []block.KV, done func(error)) {
	m.mu.Lock()
	m.queue = append(m.queue, commit{batch, done})
	m.mu.Unlock()
	if m.s.opt.Later != nil {
		m.s.opt.Later(m.one)
		return
	}
	m.cond.Signal()
}

// one commits the oldest batch of the queue.
func (m *pebbleMeta) one() {
	c := m.queue[0]
	m.queue = m.queue[1:]
	err := m.CommitNow(c.batch)
	m.s.exec.Post(func() { c.done(err) })
}

// CommitNow applies a batch and syncs it.
func (m *pebbleMeta) CommitNow(batch []block.KV) error {
	b := m.db.NewBatch()
	defer b.Close()
	for _, e := range batch {
		var err error
		if e.Value == nil {
			err = b.Delete(e.Key, nil)
		} else {
			err = b.Set(e.Key, e.Value, nil)
		}
		if err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

// Load iterates over a prefix.
func (m *pebbleMeta) Load(prefix []byte, fn func(key, value []byte) error) error {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	it, err := m.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		if err := fn(it.Key(), it.Value()); err != nil {
			it.Close()
			return err
		}
	}
	return it.Close()
}

// close waits for what was queued.
func (m *pebbleMeta) close() error {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.cond.Signal()
	<-m.done
	return m.db.Close()
}

// quiet drops Pebble's messages: what matters comes back as errors.
type quiet struct{}

func (quiet) Infof(string, ...any)           {}
func (quiet) Errorf(string, ...any)          {}
func (quiet) Fatalf(format string, a ...any) { panic("meta store: " + fmt.Sprintf(format, a...)) }
