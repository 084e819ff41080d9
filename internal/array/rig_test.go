package array

import (
	"encoding/binary"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

var le = binary.LittleEndian

// Sizes by the names that these tests have for them.
const (
	windowSectors = layout.WindowSectors
	extentSectors = layout.ExtentSectors
	extentBytes   = layout.ExtentBytes
	pieceSectors  = layout.PieceSectors
)

// rigOver is a rig whose array is opened over what wrap makes of its store.
func rigOver(t testing.TB, opt Options, wrap func(under block.Store) block.Store) *rig {
	t.Helper()
	r := newRig(t, opt, false)
	r.opt.Store = wrap(r.store)
	a, err := Open(r.opt)
	if err != nil {
		t.Fatal(err)
	}
	r.a = a
	return r
}

// hookedStore has mdisks whose work goes through a test.
type hookedStore struct {
	block.Store
	submit func(m block.Medium, ios []*block.IO)
}

type hookedMedium struct {
	block.Medium
	s *hookedStore
}

// hookedRig is a rig whose mdisks' work goes through submit, which hands it to the mdisk when it likes.
func hookedRig(t testing.TB, opt Options, submit func(m block.Medium, ios []*block.IO)) *rig {
	return rigOver(t, opt, func(under block.Store) block.Store { return &hookedStore{under, submit} })
}

func (s *hookedStore) Medium(name string, size uint64) (block.Medium, error) {
	m, err := s.Store.Medium(name, size)
	return hookedMedium{m, s}, err
}

func (m hookedMedium) Submit(ios []*block.IO) { m.s.submit(m.Medium, ios) }

func (m hookedMedium) Abandon(io *block.IO) { m.Medium.(block.Abandoner).Abandon(io) }

// flowOf returns what went through the cache for a volume.
func flowOf(v *Volume, o block.Origin) pool.Flow {
	f, _ := v.Cached.Flow(o)
	return f
}

// entriesOf counts the entries of a volume's map.
func entriesOf(v *Volume) (n int) {
	ended := false
	v.CountEntries(func(m int, _ error) { n, ended = m, true })
	for clock, ok := v.Set.Exec.(*block.Virtual); ok && !ended && clock.Step(); {
	}
	return n
}
