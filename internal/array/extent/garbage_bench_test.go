package extent

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// noPages is a source that has no page.
type noPages struct{}

func (noPages) Read([]byte, func([]byte, error)) {}
func (noPages) Hurry([]byte)                     {}
func (noPages) ReadNow([]byte) ([]byte, error)   { return nil, fmt.Errorf("there is none") }

// garbageArena has an arena with absent leaves of a volume that is gone among its garbage, which were cut off in an order, and the
// map of another volume.
func garbageArena(leaves []uint64) (*Arena, *Map) {
	a := NewArena(func() {})
	a.Bound(1<<30, noPages{}, demand.Hooks{Asked: func() {}, Turned: func() {}, Heard: func() {}, Now: func() int64 { return 0 }})
	space := alloc.New([]int{64}, alloc.Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
	a.acct.OpenPool(0, space)
	m := a.NewMap(Config{Space: space, Volume: 1, Sectors: 1 << 37})
	gone := &Map{arena: a, space: space, vol: 2}
	for _, i := range leaves {
		a.away.leaves++
		a.liveNodes++
		a.cutOff(gone, window.Absent(window.Sums{Data: 128}), i)
	}
	return a, m
}

// BenchmarkLeavesBesideGarbage makes leaves while very many others wait to be collected: for each the garbage is asked whether it
// lacks one with its key, and whether it has one, when the leaf is written. What a leaf costs must not depend on how many wait.
func BenchmarkLeavesBesideGarbage(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 14, 1 << 18} {
		for _, order := range []string{"found by a start", "in any order"} {
			leaves := make([]uint64, n)
			for i := range leaves {
				leaves[i] = uint64(i)
			}
			if order == "in any order" {
				rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { leaves[i], leaves[j] = leaves[j], leaves[i] })
			}
			b.Run(fmt.Sprintf("%d leaves %s", n, order), func(b *testing.B) {
				a, m := garbageArena(leaves)
				b.ResetTimer()
				for i := range b.N {
					leaf := uint64(i) % (1 << 22)
					if m.Missing(block.Range{Start: leaf * node.LeafSectors, Count: 8}, SetData) != nil {
						b.Fatal("a leaf is missing")
					}
					a.eachCutOff(node.LeafKey(1, leaf), a.acct.Overwritten)
				}
			})
		}
	}
}
