package array

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// destageUnit is the pages of one turn that go out together.
type destageUnit struct {
	pool *Pool
	d    *mdisk
	wcache.Batch
	reason block.Reason
	left   int // operations under way
	failed bool
	err    error // of the operation that failed last
	next   *destageUnit
}

func (set *poolSet) getUnit() *destageUnit {
	u := set.freeUnit
	if u == nil {
		return &destageUnit{}
	}
	set.freeUnit = u.next
	u.Reset()
	*u = destageUnit{Batch: u.Batch}
	return u
}

// issue starts the operations of a unit, one for each run of sectors without a gap.
func (set *poolSet) issue(u *destageUnit) {
	c, p := set.cache, u.pool
	var x *backend.Op
	end := ^uint64(0)       // sector where x ends
	memFrom, memEnd := 0, 0 // the last buffer of x, in sectors of NVRAM
	u.left = 1
	for n, i := range u.Pages {
		at := c.Key(i).Phys()
		for left := uint(u.Masks[n]); left != 0; {
			s := bits.TrailingZeros(left)
			run := bits.TrailingZeros(^(left >> s))
			left &^= (1<<run - 1) << s
			sector := at + uint64(s)
			if sector != end {
				u.start(x)
				_, off, _ := p.space.Locate(sector)
				x = u.d.Op(true, off, 0, u.reason)
				end = sector
			}
			end += uint64(run)
			x.IO.N += uint64(run) * block.SectorSize
			if set.payload {
				from := int(i)*layout.PageSectors + s
				if len(x.IO.Vec) > 0 && from == memEnd { // neighbours in memory are one buffer
					x.IO.Vec = x.IO.Vec[:len(x.IO.Vec)-1]
				} else {
					memFrom = from
				}
				memEnd = from + run
				x.IO.Vec = append(x.IO.Vec, c.NV.Sectors(memFrom, memEnd))
				for j, d := s, c.NV.Descriptor(i); j < s+run; j++ {
					x.IO.Sums = append(x.IO.Sums, d.Sum(j))
				}
			}
			if o := u.Origins[n]; bits.RotateLeft32(o, 4) == o {
				x.Bytes[o&15] += uint32(run) * block.SectorSize
				continue
			}
			for j := s; j < s+run; j++ {
				x.Bytes[wcache.OriginAt(u.Origins[n], j)] += block.SectorSize
			}
		}
	}
	u.start(x)
	set.unitDone(u)
}

// start starts an operation of the unit; nil is none.
func (u *destageUnit) start(x *backend.Op) {
	if x == nil {
		return
	}
	u.left++
	x.Ctx = u
	u.d.Write(x)
}

func (set *poolSet) destageDone(x *backend.Op) {
	u := x.Ctx.(*destageUnit)
	if x.IO.Err != nil {
		u.failed, u.err = true, x.IO.Err
	}
	set.unitDone(u)
}

// unitDone books one operation; when the last of a unit is done, its pages are on
// the back end and only wait for a sync. A unit that failed is sent again: its pages stay
// as they are until it succeeds, and so does what waits for them.
func (set *poolSet) unitDone(u *destageUnit) {
	if u.left--; u.left > 0 {
		return
	}
	if u.failed {
		u.failed = false
		wait := u.d.Failed(u.err)
		if u.d.Offline() {
			u.d.parked = append(u.d.parked, u)
			u.pool.part.Park(&u.Batch)
			return
		}
		set.exec.At(set.exec.Now()+wait, func() {
			set.issue(u)
			set.up.Step()
		})
		return
	}
	u.d.Works()
	set.cache.Destaged(&u.Batch)
	u.next = set.freeUnit
	set.freeUnit = u
}
