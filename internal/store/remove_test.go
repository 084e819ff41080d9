package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// opened counts the descriptors of files in a folder, removed ones included.
func opened(t *testing.T, dir string) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if name, err := os.Readlink(p); err == nil && strings.HasPrefix(name, filepath.Join(dir, "mdisk")) {
			n++
		}
	}
	return n
}

// TestRemovedMediumIsClosed makes and removes mdisks, with a write and a sync under way: no descriptor stays, and a
// new one of the same name is empty.
func TestRemovedMediumIsClosed(t *testing.T) {
	dir := t.TempDir()
	exec := block.NewLive()
	defer exec.Stop()
	s, err := OpenFiles(exec, dir, FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.instant = false // a worker does everything
	const size = 4 << 20
	for range 20 {
		written, synced := make(chan error, 1), make(chan error, 1)
		exec.Lock()
		m, err := s.Medium("m", size)
		if err != nil {
			exec.Unlock()
			t.Fatal(err)
		}
		got := bytes.Repeat([]byte{1}, 512)
		if err := readFull(m.(*fileMedium).f, [][]byte{got}, 0); err != nil || got[0] != 0 {
			t.Errorf("a new mdisk reads %v, %x", err, got[0])
		}
		io := &block.IO{Write: true, N: 1 << 20, Vec: [][]byte{bytes.Repeat([]byte{7}, 1<<20)}, Done: func(io *block.IO) { written <- io.Err }}
		m.Submit([]*block.IO{io})
		m.Sync(func(err error) { synced <- err })
		removed := make(chan error, 1)
		s.RemoveMedium("m", func(err error) { removed <- err })
		exec.Unlock()
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Errorf("the write under way ended %v", err)
		}
		if err := <-synced; err != nil {
			t.Errorf("the sync under way ended %v", err)
		}
	}
	// A worker closes it after its last job has ended.
	n := opened(t, dir)
	for end := time.Now().Add(30 * time.Second); n != 0 && time.Now().Before(end); n = opened(t, dir) {
		time.Sleep(time.Millisecond)
	}
	if n != 0 {
		t.Errorf("%d descriptors of removed mdisks are left", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRemovedByTheOneBefore: who hears of the end of a transfer removes the mdisk. What was submitted with it does not begin: the
// files may be closed by then.
func TestRemovedByTheOneBefore(t *testing.T) {
	exec := block.NewLive()
	defer exec.Stop()
	s, err := OpenFiles(exec, folder(t, true), FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := s.Medium("m", 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []bool{true, false} {
		removed, ended := make(chan error, 1), make(chan error, 1)
		exec.Lock()
		m.Submit([]*block.IO{
			{Write: write, N: 4096, Vec: [][]byte{make([]byte, 4096)}, Done: func(*block.IO) { s.RemoveMedium("m", func(err error) { removed <- err }) }},
			{Write: write, Off: 8192, N: 4096, Vec: [][]byte{make([]byte, 4096)}, Done: func(io *block.IO) { ended <- io.Err }},
		})
		exec.Unlock()
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errAbandoned) {
			t.Errorf("write %v: a transfer behind the removal ends with %v", write, err)
		}
		if m, err = s.Medium("m", 4<<20); err != nil {
			t.Fatal(err)
		}
	}
}
