package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble"

	"github.com/arraysim/arraysim/internal/block"
)

// metaNames are the folders of the copies of checkpoints and objects.
var metaNames = [...]string{"meta", "meta.copy"}

// Meta opens the checkpoints and objects, of which there are two copies. A folder of an older version has one; the array
// makes the other.
func (s *Files) Meta() (block.MetaStore, error) {
	if s.closed {
		return nil, ErrClosed
	}
	m := &metaCopies{s: s}
	s.noteNew()
	open := func(i int) { m.copies[i], m.errs[i] = s.openMeta(i) }
	var wg sync.WaitGroup
	for i := range metaNames {
		if s.opt.Later != nil {
			open(i)
		} else {
			wg.Go(func() { open(i) }) // each replays a log
		}
	}
	wg.Wait()
	var first error
	good := 0
	for _, err := range m.errs {
		if err == nil {
			good++
		} else if first == nil {
			first = err
		}
	}
	s.meta = m
	if good == 0 {
		return nil, first
	}
	return m, nil
}

// openMeta opens a copy, an empty one where there is none.
func (s *Files) openMeta(i int) (*pebbleMeta, error) {
	path, err := s.metaPath(i)
	if err == nil {
		err = s.finishMeta(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the checkpoints in %s cannot be opened: %w", s.metaLink(i), err)
	}
	if err := s.checkMeta(path); err != nil {
		return nil, fmt.Errorf("the checkpoints in %s are damaged: %w", path, err)
	}
	return s.openStore(path)
}

// openStore opens a copy in a folder, which is made where there is none.
func (s *Files) openStore(path string) (*pebbleMeta, error) {
	p := &patience{s: s}
	defer p.hurry()()
	fs := newFrozenFS(patientFS{s.fs, p})
	fail := func(err error) (*pebbleMeta, error) {
		return nil, fmt.Errorf("the checkpoints in %s cannot be opened: %w", path, err)
	}
	if err := makeFolder(s.fs, path, filepath.Dir(path) != s.dir); err != nil {
		return fail(err)
	}
	opt := &pebble.Options{
		FS:           fs,
		Logger:       quiet{},
		MemTableSize: 16 << 20,
		// What a compaction cannot read or write it would try again for ever.
		EventListener: &pebble.EventListener{BackgroundError: fs.freeze},
	}
	if s.opt.Later != nil { // in virtual time nothing happens behind the executor's back
		opt.DisableAutomaticCompactions = true
		opt.L0StopWritesThreshold = 1 << 20 // tables that nothing will join are nothing to wait for
	}
	db, err := openPebble(path, opt)
	if err != nil {
		return fail(err)
	}
	fs.arm()
	m := &pebbleMeta{s: s, fs: fs, p: p, db: db, done: make(chan struct{})}
	m.cond = sync.NewCond(&m.mu)
	if s.opt.Later != nil {
		close(m.done)
		return m, nil
	}
	go m.run()
	return m, nil
}

// openPebble is pebble.Open where no error of the disk is fatal.
func openPebble(dir string, opt *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			panic(r)
		case error:
			db, err = nil, r
		default:
			panic(r)
		}
	}()
	return pebble.Open(dir, opt)
}

// metaCopies are copies of one meta store. A batch is committed when it is in all copies that work; a copy whose disk fails
// is left alone until the next start, which makes it anew.
type metaCopies struct {
	s      *Files
	copies [len(metaNames)]*pebbleMeta // nil: it could not be opened
	errs   [len(metaNames)]error       // why
	chosen int
}

var _ block.MetaCopies = (*metaCopies)(nil)

func (m *metaCopies) Copies() int  { return len(m.copies) }
func (m *metaCopies) Choose(i int) { m.chosen = i }
func (m *metaCopies) Chosen() int  { return m.chosen }

// Behind reports whether the disk of a copy has failed.
func (m *metaCopies) Behind() bool {
	return slices.ContainsFunc(m.errs[:], func(err error) bool { return err != nil })
}

// Load reads the chosen copy.
func (m *metaCopies) Load(prefix []byte, fn func(key, value []byte) error) error {
	if c := m.copies[m.chosen]; c != nil {
		return c.Load(prefix, fn)
	}
	return m.errs[m.chosen]
}

// Get reads the chosen copy.
func (m *metaCopies) Get(key []byte) ([]byte, error) {
	if c := m.copies[m.chosen]; c != nil {
		return c.get(key)
	}
	return nil, m.errs[m.chosen]
}

// Read reads the chosen copy.
func (m *metaCopies) Read(key []byte, done func([]byte, error)) { m.ReadFrom(m.chosen, key, done) }

// ReadFrom reads a copy, in a goroutine of the store. One that is left alone is not asked as long as another one works: its
// disk may never answer. Where none can be written any longer, all may still be read.
func (m *metaCopies) ReadFrom(i int, key []byte, done func([]byte, error)) {
	c, err := m.copies[i], m.errs[i]
	if c == nil || err != nil && slices.Contains(m.errs[:], nil) {
		m.s.exec.Post(func() { done(nil, err) })
		return
	}
	var value []byte
	m.s.call(&m.s.lookups[i], nil, func() (err error) {
		value, err = c.get(key)
		return err
	}, func(err error) { done(value, err) })
}

// Limit is the same for all copies.
func (m *metaCopies) Limit() int { return batchLimit }

// Commit queues a batch in all copies.
func (m *metaCopies) Commit(batch []block.KV, done func(error)) {
	err := block.CheckBatch(batch, m.Limit())
	if m.s.closed {
		err = ErrClosed
	}
	if err != nil {
		m.s.exec.Post(func() { done(err) })
		return
	}
	left, good := 0, 0
	var failed error
	for _, c := range m.copies {
		if c != nil {
			left++
		}
	}
	for i, c := range m.copies {
		if c == nil {
			continue
		}
		c.Commit(batch, func(err error) { // on the executor
			if err == nil {
				good++
			} else {
				failed = err
				m.leave(i, err)
			}
			if left--; left > 0 {
				return
			}
			if good > 0 {
				failed = nil
			}
			done(failed)
		})
	}
}

// leave leaves a copy alone.
func (m *metaCopies) leave(i int, err error) {
	if m.errs[i] == nil {
		m.errs[i] = err
		m.s.notice("the checkpoints in %s cannot be written: %v; the array continues with the other copy, and rebuilds this one at its next start", metaNames[i], err)
	}
}

// CommitNow applies a batch to all copies.
func (m *metaCopies) CommitNow(batch []block.KV) error {
	if m.s.closed {
		return ErrClosed
	}
	if err := block.CheckBatch(batch, m.Limit()); err != nil {
		return err
	}
	good := false
	var failed error
	for i, c := range m.copies {
		if c == nil {
			continue
		}
		if err := c.commitInTime(batch); err != nil {
			failed = err
			m.leave(i, err)
		} else {
			good = true
		}
	}
	if good {
		return nil
	}
	return failed
}

// close closes all copies, and says before which one.
func (m *metaCopies) close(at func(i int)) (err error) {
	for i, c := range m.copies {
		if c != nil {
			at(i)
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// pebbleMeta commits on a goroutine of its own, so that batches keep their order and
// the executor never waits for a sync.
type pebbleMeta struct {
	s    *Files
	fs   *frozenFS
	p    *patience
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
	err := ErrClosed
	if !m.s.closed {
		err = m.CommitNow(c.batch)
	}
	m.s.exec.Post(func() { c.done(err) })
}

// CommitNow applies a batch and syncs it.
func (m *pebbleMeta) CommitNow(batch []block.KV) error {
	if err := m.fs.failure(); err != nil {
		return err
	}
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
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	return m.fs.failure()
}

// get reads one key.
func (m *pebbleMeta) get(key []byte) ([]byte, error) {
	v, closer, err := m.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own := append([]byte{}, v...)
	return own, closer.Close()
}

// Load iterates over a prefix.
func (m *pebbleMeta) Load(prefix []byte, fn func(key, value []byte) error) error {
	var end []byte
	if len(prefix) > 0 {
		end = append(end, prefix...)
		end[len(end)-1]++
	}
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

// empty tells whether nothing was ever committed.
func (m *pebbleMeta) empty() bool {
	some := errors.New("there is something")
	return m.Load(nil, func(_, _ []byte) error { return some }) == nil
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

// quiet drops Pebble's messages: what matters comes back as errors. What is fatal for Pebble is no error of the disk, see
// frozenFS, but for one that keeps a store from being opened.
type quiet struct{}

// fatalError is what Pebble cannot go on after.
type fatalError string

func (e fatalError) Error() string { return string(e) }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, a ...any) {
	panic(fatalError("meta store: " + fmt.Sprintf(format, a...)))
}
