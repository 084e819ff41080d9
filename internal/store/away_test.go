package store

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// awayFS is a file system whose reads hang until it is let go, and which hears of what is done with a
// file that was closed: its descriptor may be another file's then.
type awayFS struct {
	FS
	hold   chan struct{} // closed: it answers
	closed atomic.Int64  // files
	after  atomic.Int64  // operations on them
}

type awayFile struct {
	DataFile
	fs   *awayFS
	gone *atomic.Bool
}

func (a *awayFS) Instant(string) bool { return false }

func (a *awayFS) OpenData(path string) (DataFile, error) {
	f, err := a.FS.OpenData(path)
	return awayFile{f, a, new(atomic.Bool)}, err
}

func (f awayFile) used() {
	if f.gone.Load() {
		f.fs.after.Add(1)
	}
}

func (f awayFile) Descriptor() int { return f.DataFile.(descriptor).Descriptor() }

func (f awayFile) ReadNow([][]byte, int64) (int, error) {
	f.used()
	return 0, unix.EAGAIN
}

func (f awayFile) Readv(vec [][]byte, off int64) (int, error) {
	if f.fs.hold != nil {
		<-f.fs.hold
	}
	f.used()
	return f.DataFile.Readv(vec, off)
}

func (f awayFile) Writev(vec [][]byte, off int64) (int, error) {
	if f.fs.hold != nil {
		<-f.fs.hold
	}
	f.used()
	return f.DataFile.Writev(vec, off)
}

func (f awayFile) Close() error {
	f.used()
	f.gone.Store(true)
	f.fs.closed.Add(1)
	return f.DataFile.Close()
}

// TestRemovedMediumIsLeftAlone: an mdisk is removed while it has reads that nobody waits for any more,
// some under way, some held behind them or behind a write. When they have ended it is closed, once, and
// its files are not touched again.
func TestRemovedMediumIsLeftAlone(t *testing.T) {
	for range 10 {
		testRemoved(t, depth+50, func(i int) *block.IO { return &block.IO{Off: uint64(i) * 4096} })
		testRemoved(t, 3, func(i int) *block.IO { return &block.IO{Write: i == 0} })
	}
}

func testRemoved(t *testing.T, ios int, transfer func(i int) *block.IO) {
	t.Helper()
	exec := block.NewLive()
	defer exec.Stop()
	fs := &awayFS{FS: OS}
	s, err := OpenFiles(exec, t.TempDir(), FilesOptions{FS: fs, NoRing: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Medium("m", 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	fs.closed.Store(0)
	fs.hold = make(chan struct{})
	ended, removed := make(chan struct{}, ios), make(chan error, 1)
	exec.Lock()
	for i := range ios {
		io := transfer(i)
		io.N, io.Vec, io.Done = 4096, [][]byte{make([]byte, 4096)}, func(*block.IO) { ended <- struct{}{} }
		m.Submit([]*block.IO{io})
		if !io.Write {
			m.(block.Abandoner).Abandon(io)
		}
	}
	s.RemoveMedium("m", func(err error) { removed <- err })
	exec.Unlock()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if n := fs.closed.Load(); n != 0 {
		t.Errorf("%d files are closed while they are read", n)
	}
	close(fs.hold)
	for range ios {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a read never ended")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := fs.closed.Load(); n != mdiskFiles {
		t.Errorf("%d files were closed, and not %d", n, mdiskFiles)
	}
	if n := fs.after.Load(); n != 0 {
		t.Errorf("%d operations on closed files", n)
	}
	if s.hotParts != len(s.cold) {
		t.Errorf("of %d buffers of checksums %d came back", s.hotParts, len(s.cold))
	}
}

// TestRemovedMediumIsRefused: what is asked of an mdisk that was removed does nothing to the one that has
// its descriptors' numbers now.
func TestRemovedMediumIsRefused(t *testing.T) {
	exec, s := openFolder(t, t.TempDir(), FilesOptions{FS: &awayFS{FS: OS}, NoRing: true})
	medium := func(name string) *fileMedium {
		m, err := s.Medium(name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return m.(*fileMedium)
	}
	wait := func(begin func(done func(error))) error {
		ended := make(chan error)
		exec.Lock()
		begin(func(err error) { go func() { ended <- err }() })
		exec.Unlock()
		return <-ended
	}
	old := medium("old")
	if err := wait(func(done func(error)) { s.RemoveMedium("old", done) }); err != nil {
		t.Fatal(err)
	}
	m := medium("new")
	if m.fds[0] != old.fds[0] {
		t.Fatalf("descriptors %v and %v: nothing is shown", old.fds, m.fds)
	}
	data := []byte{0: 7, 4095: 7}
	if err := wait(func(done func(error)) {
		m.Submit([]*block.IO{{Write: true, N: 4096, Vec: [][]byte{data}, Done: func(io *block.IO) { done(io.Err) }}})
	}); err != nil {
		t.Fatal(err)
	}
	if wait(old.Sync) == nil {
		t.Error("it was synced")
	}
	if wait(func(done func(error)) { old.Discard(0, 4096, done) }) == nil {
		t.Error("it was discarded")
	}
	got := make([]byte, 4096)
	if err := readFull(m.f, [][]byte{got}, 0); err != nil || got[0] != 7 {
		t.Errorf("the first byte of the other mdisk is %d (%v)", got[0], err)
	}
}
