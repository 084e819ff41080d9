package storetest

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestMetaReads: the file store and that in memory read entries beside commits.
func TestMetaReads(t *testing.T) {
	stores := map[string]func(exec *block.Virtual, rnd *rand.Rand) (block.Store, error){
		"files": func(exec *block.Virtual, rnd *rand.Rand) (block.Store, error) {
			later := func(fn func()) { exec.At(exec.Now()+rnd.Int64N(2000), fn) }
			return store.OpenFiles(exec, "/data", store.FilesOptions{FS: NewDisk(rnd.Uint64()), Later: later})
		},
		"memory": func(exec *block.Virtual, _ *rand.Rand) (block.Store, error) {
			return store.NewMemory(exec, store.MemoryOptions{}), nil
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			blocktest.MetaReads(t, testkit.Seed(t), func(t *testing.T, rnd *rand.Rand, exec *block.Virtual) block.MetaStore {
				s, err := open(exec, rnd)
				if err != nil {
					t.Fatal(err)
				}
				m, err := s.Meta()
				if err != nil {
					t.Fatal(err)
				}
				return m
			})
		})
	}
}
