package sbc

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/testkit"
)

// unmaps sends an UNMAP and returns what reaches the device.
func (r *rig) unmaps(t *testing.T, list []block.Range) []block.Range {
	t.Helper()
	be := binary.BigEndian
	b := make([]byte, unmapHeader, unmapHeader+len(list)*unmapDesc)
	be.PutUint16(b, uint16(unmapHeader-2+len(list)*unmapDesc))
	be.PutUint16(b[2:], uint16(len(list)*unmapDesc))
	for _, x := range list {
		b = be.AppendUint64(b, x.Start)
		b = be.AppendUint32(b, uint32(x.Count))
		b = append(b, 0, 0, 0, 0)
	}
	c := []byte{0x42, 9: 0}
	be.PutUint16(c[7:], uint16(len(b)))
	task, q := r.send(c, b)
	if code(task) != 0 {
		t.Fatalf("an UNMAP ends with %06x", code(task))
	}
	if q == nil {
		return nil
	}
	return q.Ranges
}

func unmapRow() *server.Command { return row(0x42, 10, Unmap, server.NeedMedium) }

// TestUnmapOfAllThereIs: MAXIMUM UNMAP LBA COUNT is FFFFFFFFh, so an UNMAP may have as many blocks as its descriptors say.
func TestUnmapOfAllThereIs(t *testing.T) {
	const most = 1<<32 - 1
	r := newRig(t, disk(4096, 1<<33), unmapRow())
	got := r.unmaps(t, []block.Range{{Start: 1 << 32, Count: most}, {Start: 0, Count: most}})
	if len(got) != 2 || got[0] != (block.Range{Start: 1 << 35, Count: most << 3}) || got[1] != (block.Range{Start: 0, Count: most << 3}) {
		t.Errorf("two descriptors of FFFFFFFFh blocks reach the device as %v", got)
	}
}

// TestUnmapOfTheSameBlocks: descriptors may overlap. Where they have more blocks than the unit, the device gets none of them twice,
// and gets all of them; else it gets the descriptors as they are.
func TestUnmapOfTheSameBlocks(t *testing.T) {
	base := testkit.Seed(t)
	merged := 0
	for seed := base; seed < base+300; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		blocks := 1 + rng.Uint64N(60)
		r := newRig(t, disk(512, blocks), unmapRow())
		want, sum := make([]bool, blocks), uint64(0)
		var list []block.Range
		for range rng.IntN(12) {
			x := block.Range{Start: rng.Uint64N(blocks)}
			x.Count = rng.Uint64N(blocks - x.Start + 1)
			list = append(list, x)
			for i := x.Start; i < x.End(); i++ {
				want[i] = true
			}
			sum += x.Count
		}
		times, all := make([]int, blocks), uint64(0)
		for _, x := range r.unmaps(t, list) {
			for i := x.Start; i < x.End(); i++ {
				times[i]++
			}
			if all += x.Count; x.Count == 0 {
				t.Errorf("seed %d: an empty range reaches the device", seed)
			}
		}
		for i, n := range times {
			if want[i] != (n > 0) || sum > blocks && n > 1 {
				t.Fatalf("seed %d: %v of %d blocks: block %d is unmapped %d times", seed, list, blocks, i, n)
			}
		}
		if sum > blocks {
			merged++
		} else if all != sum {
			t.Errorf("seed %d: %d blocks of %d reach the device", seed, all, sum)
		}
	}
	if merged == 0 {
		t.Error("no list has more blocks than its unit")
	}
}
