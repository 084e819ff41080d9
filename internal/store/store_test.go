package store

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// virtual drives the suite in virtual time.
type virtual struct{ block.Virtual }

func (v *virtual) Wait(start func(done func())) {
	ended := false
	start(func() { ended = true })
	for !ended && v.Step() {
	}
	if !ended {
		panic("it never ended")
	}
}

// live drives it by the wall clock.
type live struct{ *block.Live }

func (l live) Wait(start func(done func())) {
	ch := make(chan struct{})
	l.Lock()
	start(func() { close(ch) })
	l.Unlock()
	<-ch
}

// openFolder opens a store in a folder until the test ends.
func openFolder(t *testing.T, dir string, opt FilesOptions) (live, *Files) {
	t.Helper()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	s, err := OpenFiles(exec, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return live{exec}, s
}

// openMedium opens a store with an mdisk of so many bytes in it until the test ends.
func openMedium(t *testing.T, dir string, opt FilesOptions, size uint64) (live, block.Medium) {
	t.Helper()
	d, s := openFolder(t, dir, opt)
	m, err := s.Medium("m", size)
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

func TestMemory(t *testing.T) {
	stores := map[string]*Memory{}
	blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
		v := &virtual{}
		// Opening again is what a restart of the array does: a clone of what was left.
		if old := stores[t.Name()]; old != nil {
			stores[t.Name()] = old.Clone(v)
		} else {
			stores[t.Name()] = NewMemory(v, MemoryOptions{})
		}
		return stores[t.Name()], v
	})
}

// folder returns an empty folder: of the temporary one, or on tmpfs.
func folder(t testing.TB, tmpfs bool) string {
	if !tmpfs {
		return t.TempDir()
	}
	dir, err := testkit.MemoryDir(t)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// engines are what carries out transfers that may wait for a disk.
var engines = map[string]FilesOptions{"ring": {}, "goroutines": {NoRing: true}, "direct": {Direct: true}}

// needRing skips what needs a ring where the kernel gives none.
func needRing(t testing.TB, s *Files) {
	if s.ring != nil || s.opt.NoRing || s.instant {
		return
	}
	if testkit.HasRings() {
		t.Fatal("the kernel offers io_uring, and the store has no ring")
	}
	t.Skip("the kernel offers no io_uring")
}

func TestFiles(t *testing.T) {
	suite := func(t *testing.T, tmpfs bool, opt FilesOptions) {
		dirs := map[string]string{}
		blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
			if dirs[t.Name()] == "" {
				dirs[t.Name()] = folder(t, tmpfs)
			}
			l := live{block.NewLive()}
			t.Cleanup(l.Stop)
			s, err := OpenFiles(l.Live, dirs[t.Name()], opt)
			if err != nil {
				t.Fatal(err)
			}
			needRing(t, s)
			return s, l
		})
	}
	t.Run("tmpfs", func(t *testing.T) { suite(t, true, FilesOptions{}) })
	for name, opt := range engines {
		t.Run(name, func(t *testing.T) {
			suite(t, false, opt)
		})
	}
}

func TestFilesRefuses(t *testing.T) {
	dir := t.TempDir()
	exec, s := openFolder(t, dir, FilesOptions{})
	for _, c := range []struct {
		name, want string
		do         func() error
	}{
		{"a folder in use", "in use by another arraysim", func() error { _, err := OpenFiles(exec, dir, FilesOptions{}); return err }},
		{"a file in the folder's place", "cannot be created", func() error { _, err := OpenFiles(exec, filepath.Join(dir, "lock"), FilesOptions{}); return err }},
		{"a write cache larger than the disk", "make room or set a smaller cache size", func() error { _, _, err := s.Region("nvram", block.RegionLayout{State: 1 << 50}); return err }},
	} {
		if err := c.do(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDiscardKeepsNothing(t *testing.T) {
	v := &virtual{}
	s := NewMemory(v, MemoryOptions{Discard: true})
	m, err := s.Medium("m", 1<<50)
	if err != nil || s.Payload() {
		t.Fatal("a store without payload: ", err)
	}
	for _, write := range []bool{true, false} {
		v.Wait(func(done func()) {
			m.Submit([]*block.IO{{Write: write, Off: 1 << 49, N: 1 << 30, Done: func(*block.IO) { done() }}})
		})
	}
	if len(m.(*memMedium).chunks) != 0 {
		t.Error("a store without payload keeps some")
	}
}

// TestMemoryRegion: what the process dies over, the next one finds.
func TestMemoryRegion(t *testing.T) {
	blocktest.Region(t, testkit.Seed(t), func(*testing.T, *rand.Rand) blocktest.RegionRig {
		m := NewMemory(nil, MemoryOptions{})
		return blocktest.RegionRig{
			Open: func(exec *block.Virtual) (block.Store, error) { m = m.Reopen(exec); return m, nil },
			Kill: func() {},
		}
	})
}
