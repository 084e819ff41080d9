package torture

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestLostWhileRead: a pool that runs out of space gives a reference up while its last piece is on its way from a
// slow mdisk. The copy ends without space, to another pool of the group as to another group: what was
// read may be newer than the reference.
func TestLostWhileRead(t *testing.T) {
	for _, far := range []bool{false, true} {
		r := slowGroups(t, 1<<20)
		arr := r.g[0].arr
		carry := func(d *array.Volume, q *block.Request) *bool {
			done := new(bool)
			q.Done = func(*block.Request) { *done = true }
			d.Submit([]*block.Request{q})
			return done
		}
		wait := func(done *bool) {
			for !*done && r.clock.Step() {
			}
		}
		volume := func(spec array.VolumeSpec) (made *array.Volume) {
			arr.CreateVolume(spec, func(v *array.Volume, err error) { made = v })
			r.settle()
			return made
		}
		var thick *array.Volume
		for size := uint64(60); thick == nil && size > 0; size-- { // what the pool has room for
			thick = volume(array.VolumeSpec{Name: "thick", Pool: "p", Sectors: size << 11, BlockSize: 512})
		}
		arr.CreatePool(array.PoolSpec{Name: "q", Mdisks: []array.MdiskSpec{{Name: "mq", Size: 64 << 20, Bandwidth: 1 << 20}}}, func(*array.Pool, error) {})
		r.settle()
		to := volume(array.VolumeSpec{Name: "near", Pool: "q", Sectors: groupSectors, BlockSize: 512, Thin: true})
		if thick == nil || to == nil {
			t.Fatal("the volumes are not there")
		}
		const n = 512
		wait(carry(thick, &block.Request{Op: block.OpWrite, Range: block.Range{Count: n}, Data: [][]byte{stamps(1, n*512)}}))
		full := false
		for i := uint64(0); i < groupSectors && !full; i += 128 {
			q := &block.Request{Op: block.OpWrite, Range: block.Range{Start: i, Count: 128}, Data: [][]byte{stamps(2, 128*512)}}
			done := carry(r.g[0].vols[0], q)
			for end := r.clock.Now() + 2e9; !*done && r.clock.StepUntil(end); {
			}
			full = *done && q.Status == block.NoSpace
		}
		r.clock.RunUntil(r.clock.Now() + 60e9)
		hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Count: n}}}
		wait(carry(thick, hold))
		ref := hold.Ref
		if far {
			ref, to = hold.Ref.(block.Lendable).Lend(func() {}), r.g[1].vols[0]
		}
		place := &block.Request{Op: block.OpPlace, Origin: block.OriginXCopy, Range: block.Range{Count: n}, Ref: ref}
		placed := carry(to, place)
		r.clock.RunUntil(r.clock.Now() + 1e6)
		write := &block.Request{Op: block.OpWrite, Range: block.Range{Count: n}, Data: [][]byte{stamps(99, n*512)}}
		wait(carry(thick, write))
		if lost := hold.Ref.(interface{ Lost() bool }).Lost(); !full || write.Status != block.OK || !lost || *placed {
			t.Fatalf("full %t, the write %v, lost %t, copied before %t", full, write.Status, lost, *placed)
		}
		if wait(placed); place.Status != block.NoSpace {
			t.Errorf("to another group %t: the copy ends with %v", far, place.Status)
		}
	}
}

// TestResetOfManyCopies: a host resets a unit to which nine copies are under way from a group that is slow and
// well, and begins the next one at once. It is carried out.
func TestResetOfManyCopies(t *testing.T) {
	r := slowGroups(t, 20<<20)
	who := r.both("iqn.2026-11.org.example:a")
	r.write(0, 0, 0, stamps(1, 3<<20))
	r.clock.RunUntil(r.clock.Now() + 60e9)
	for i := range 9 {
		list := r.list(where{0, 0}, where{1, 0}, 4096, 0, uint64(i))
		r.start(who[1], 0, scsitest.CopyCDB(list), list, 0)
	}
	r.clock.RunUntil(r.clock.Now() + 1e6)
	who[1].Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {})
	r.clock.RunUntil(r.clock.Now() + 1e6)
	r.do(who[1], 1, make([]byte, 6), nil, 0) // takes the unit attention
	list := r.list(where{0, 0}, where{1, 1}, 2048, 0, 4096)
	if c := r.do(who[1], 1, scsitest.CopyCDB(list), list, 0); c.Status != 0 {
		t.Errorf("the copy behind the reset ends with %v", c)
	}
}
