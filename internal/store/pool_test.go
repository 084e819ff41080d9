package store

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// gateFS is a file system on a disk of which some operations hang, until they are let go.
type gateFS struct {
	FS
	mu     sync.Mutex
	hangs  func(op, path string) bool // guarded by mu
	opened chan struct{}              // closed: nothing hangs any more
}

func newGate() *gateFS { return &gateFS{FS: OS, opened: make(chan struct{})} }

func (g *gateFS) set(hangs func(op, path string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangs = hangs
}

func (g *gateFS) pass(op, path string) {
	g.mu.Lock()
	wait := g.hangs != nil && g.hangs(op, filepath.Base(path))
	g.mu.Unlock()
	if wait {
		<-g.opened
	}
}

func (g *gateFS) Instant(string) bool { return false }

func (g *gateFS) OpenData(path string) (DataFile, error) {
	f, err := g.FS.OpenData(path)
	return gateFile{f, g, path}, err
}

type gateFile struct {
	DataFile
	g    *gateFS
	path string
}

func (f gateFile) ReadNow([][]byte, int64) (int, error) { return 0, errWaits }

func (f gateFile) Readv(vec [][]byte, off int64) (int, error) {
	f.g.pass("read", f.path)
	return f.DataFile.Readv(vec, off)
}

func (f gateFile) Writev(vec [][]byte, off int64) (int, error) {
	f.g.pass("write", f.path)
	return f.DataFile.Writev(vec, off)
}

func (f gateFile) Sync() error {
	f.g.pass("sync", f.path)
	return f.DataFile.Sync()
}

func (f gateFile) Punch(off, n int64) error {
	f.g.pass("punch", f.path)
	return f.DataFile.Punch(off, n)
}

// TestNothingStandsInTheSameLine: while syncs, discards or writes of an mdisk hang in the disk, its
// reads end; and while everything of some mdisks hangs, hundreds of their transfers included, another
// mdisk works, and a new one is made and removed.
func TestNothingStandsInTheSameLine(t *testing.T) {
	g := newGate()
	exec, s := openFolder(t, folder(t, true), FilesOptions{FS: g}) // what others do to a disk is no line of ours
	var media []block.Medium
	for _, name := range []string{"a", "b", "c", "d", "z"} {
		m, err := s.Medium(name, 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		media = append(media, m)
	}
	hung, left := make(chan struct{}), 0
	hang := func(begin func(done func())) { // with the executor held
		left++
		begin(func() {
			if left--; left == 0 {
				close(hung)
			}
		})
	}
	ends := func(what string, begin func(done func())) {
		t.Helper()
		ended := make(chan struct{})
		exec.Lock()
		begin(func() { close(ended) })
		exec.Unlock()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s waits for what hangs", what)
		}
	}
	transfer := func(m block.Medium, write bool, at uint64) func(done func()) {
		return func(done func()) {
			m.Submit([]*block.IO{{Write: write, Off: at, N: 4096, Vec: [][]byte{make([]byte, 4096)}, Done: func(*block.IO) { done() }}})
		}
	}
	sync := func(m block.Medium) func(done func()) {
		return func(done func()) { m.Sync(func(error) { done() }) }
	}
	discard := func(m block.Medium) func(done func()) {
		return func(done func()) { m.(block.Discarder).Discard(2<<20, 4096, func(error) { done() }) }
	}
	g.set(func(op, path string) bool { return op != "read" && strings.HasPrefix(path, "z.") })
	z := media[len(media)-1]
	exec.Lock()
	for i := range 4 {
		hang(sync(z))
		hang(discard(z))
		hang(transfer(z, true, 1<<20+uint64(i)*4096))
	}
	exec.Unlock()
	for at := range uint64(50) {
		ends("a read", transfer(z, false, at*4096))
	}
	g.set(func(op, path string) bool { return !strings.HasPrefix(path, "d.") && !strings.HasPrefix(path, "new.") })
	exec.Lock()
	for _, m := range media[:3] {
		for at := range uint64(300) {
			hang(transfer(m, at%2 == 0, at*4096))
		}
	}
	exec.Unlock()
	d := media[3]
	for at := range uint64(50) {
		ends("a write of another mdisk", transfer(d, true, at*4096))
		ends("a read of another mdisk", transfer(d, false, at*4096))
	}
	ends("a sync of another mdisk", sync(d))
	ends("a discard of another mdisk", discard(d))
	ends("making an mdisk", func(done func()) { s.MakeMedium("new", 1<<20, func(error) { done() }) })
	ends("removing an mdisk", func(done func()) { s.RemoveMedium("new", func(error) { done() }) })
	select {
	case <-hung:
		t.Error("nothing hung")
	default:
	}
	close(g.opened)
	select {
	case <-hung:
	case <-time.After(time.Minute):
		t.Error("what hung never ended")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s.pool.more != 0 {
		t.Errorf("%d goroutines are counted that have ended", s.pool.more)
	}
}

// TestThreadsAreBounded: of more lines than there may be threads, all of which hang, as many work as
// may, the others wait; when the disk answers all is done, each line's in its order.
func TestThreadsAreBounded(t *testing.T) {
	const lines, jobs = 2 * mostThreads, 3
	var p pool
	all, next := make([]line, lines), make([]int, lines)
	begun, hold := make(chan struct{}, lines*jobs), make(chan struct{})
	var ended sync.WaitGroup
	ended.Add(lines * jobs)
	for n := range jobs {
		for i := range all {
			all[i].limit = 1
			p.put(&all[i], job{fn: func() {
				begun <- struct{}{}
				<-hold
				if next[i] != n {
					t.Errorf("line %d does job %d in the place of %d", i, n, next[i])
				}
				next[i]++
				ended.Done()
			}})
		}
	}
	for range mostThreads {
		<-begun
	}
	time.Sleep(20 * time.Millisecond)
	if n := len(begun); n != 0 {
		t.Errorf("%d more than %d threads", n, mostThreads)
	}
	// One that may not wait for others, as often as it has something to do, adds no thread that stays.
	flushes := line{limit: 1, first: true}
	for range 100 {
		flushed := make(chan struct{})
		p.put(&flushes, job{fn: func() { close(flushed) }})
		select {
		case <-flushed:
		case <-time.After(time.Minute):
			t.Fatal("a flush waits for those")
		}
	}
	if n := len(begun); n != 0 {
		t.Errorf("%d threads stayed", n)
	}
	close(hold)
	ended.Wait()
	p.close()
	if p.more != 0 || p.threads != 0 || len(p.waiting) != 0 {
		t.Errorf("%d, %d threads are left, %d lines wait", p.more, p.threads, len(p.waiting))
	}
}

// TestBusyLinesMakeWay: a line whose jobs never end does not keep those waiting that found no thread.
func TestBusyLinesMakeWay(t *testing.T) {
	var p pool
	all := make([]line, mostThreads)
	var stop atomic.Bool
	var again func(l *line)
	again = func(l *line) {
		p.put(l, job{fn: func() {
			if time.Sleep(time.Millisecond); !stop.Load() {
				again(l)
			}
		}})
	}
	for i := range all {
		all[i].limit = 1
		again(&all[i])
	}
	done := make(chan struct{})
	last := line{limit: 1}
	p.put(&last, job{fn: func() { close(done) }})
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("its job never began")
	}
	stop.Store(true)
	p.close()
}
