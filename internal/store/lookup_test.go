package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestReadsBesideCommits: goroutines read entries of both copies while batches are written, and none is under way when the store is closed.
func TestReadsBesideCommits(t *testing.T) {
	exec := block.NewLive()
	defer exec.Stop()
	s, err := OpenFiles(exec, t.TempDir(), FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	copies := m.(block.MetaCopies)
	var left sync.WaitGroup
	exec.Lock()
	for i := range 200 {
		key := fmt.Appendf(nil, "n%d", i%10)
		left.Add(1)
		copies.Commit([]block.KV{{Key: key, Value: key}}, func(err error) {
			if err != nil {
				t.Error(err)
			}
			for c := range copies.Copies() {
				left.Add(1)
				copies.ReadFrom(c, key, func(value []byte, err error) {
					if err != nil || string(value) != string(key) {
						t.Errorf("copy %d has %q of %q: %v", c, value, key, err)
					}
					left.Done()
				})
			}
			left.Done()
		})
	}
	exec.Unlock()
	left.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	exec.Lock()
	left.Add(1)
	copies.Read([]byte("n1"), func(_ []byte, err error) {
		if err == nil {
			t.Error("a store that was closed reads")
		}
		left.Done()
	})
	exec.Unlock()
	left.Wait()
}
