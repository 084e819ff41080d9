package storetest

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestRegionOverDisk: the file store's NVRAM holds the contract: a mapped file, which the death of the process leaves as it is, on a
// disk that writes back when it likes, fails to sync, and forgets.
func TestRegionOverDisk(t *testing.T) {
	blocktest.Region(t, testkit.Seed(t), func(_ *testing.T, rnd *rand.Rand) blocktest.RegionRig {
		d := NewDisk(rnd.Uint64())
		var s *store.Files
		return blocktest.RegionRig{
			Open: func(exec *block.Virtual) (_ block.Store, err error) {
				later := func(fn func()) { exec.At(exec.Now()+rnd.Int64N(2000), fn) }
				s, err = store.OpenFiles(exec, "/data", store.FilesOptions{FS: d, Later: later})
				return s, err
			},
			Kill: func() { d = d.Kill() },
			Cut:  func() { d = d.Cut() },
			Fail: func(yes bool) {
				d.SetFault(func(op Op, _ string, n int) (int, error) {
					if yes && op == Sync {
						return 0, errors.New("input/output error")
					}
					return n, nil
				})
			},
			WriteBack: func() { d.WriteBack(rnd) },
		}
	})
}
