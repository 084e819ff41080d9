package store

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/vfs"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// fullFS takes no writes of the meta store while it is full.
type fullFS struct {
	FS
	full *atomic.Bool
	t    *testing.T
}

type fullFile struct {
	vfs.File
	fs fullFS
}

func (f fullFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	if err == nil {
		f.t.Cleanup(func() { _ = file.Close() }) // Pebble leaves its manifest open when it cannot write it
	}
	return fullFile{file, f}, err
}

func (f fullFile) Write(b []byte) (int, error) {
	if f.fs.full.Load() {
		return 0, unix.ENOSPC
	}
	return f.File.Write(b)
}

// inTime fails the test if fn does not end.
func inTime(t *testing.T, what string, fn func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- fn() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end", what)
	}
	return nil
}

// TestStartWaitsForRoom: the file system is full while the meta store is opened, or while the first batch is committed. Both wait
// for room for some time, and say so once. A batch of a running array waits as long as it takes.
func TestStartWaitsForRoom(t *testing.T) {
	was := startPatience
	defer func() { startPatience = was }()
	exec := block.NewLive()
	defer exec.Stop()
	dir, full := t.TempDir(), new(atomic.Bool)
	var said []string
	open := func() *Files {
		said = nil
		s, err := OpenFiles(exec, dir, FilesOptions{FS: fullFS{OS, full, t}, Notice: func(line string) { said = append(said, line) }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "make room") || len(said) == 0 || !strings.Contains(said[0], "waits up to") || strings.Contains(strings.Join(said[1:], ""), "waits up to") {
			t.Errorf("%s ends with %v; it said %q", what, err, said)
		}
	}
	batch := []block.KV{{Key: []byte("x"), Value: []byte("y")}}

	startPatience = 500 * time.Millisecond
	full.Store(true)
	s := open()
	told("opening", inTime(t, "opening", func() error { _, err := s.Meta(); return err }))
	s.Close()

	startPatience = time.Hour
	s = open()
	time.AfterFunc(500*time.Millisecond, func() { full.Store(false) })
	var m block.MetaStore
	if err := inTime(t, "opening", func() (err error) { m, err = s.Meta(); return err }); err != nil {
		t.Fatal(err)
	}
	if err := m.CommitNow(batch); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	ended := make(chan error, 1)
	exec.Lock()
	s.starts.until = time.Now() // the start is over
	m.Commit(batch, func(err error) { ended <- err })
	exec.Unlock()
	select {
	case err := <-ended:
		t.Errorf("a batch of a running array ends with %v", err)
	case <-time.After(5 * fullPause):
	}
	full.Store(false)
	if err := inTime(t, "a batch for which there is room", func() error { return <-ended }); err != nil {
		t.Error(err)
	}
	s.Close()

	startPatience = 500 * time.Millisecond
	s = open()
	if m, err := s.Meta(); err != nil {
		t.Error(err)
	} else {
		full.Store(true)
		told("the first batch", inTime(t, "the first batch", func() error { return m.CommitNow(batch) }))
	}
	s.Close()
}
