package array

import (
	"math/bits"

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

func (a *Array) getUnit() *destageUnit {
	u := a.freeUnit
	if u == nil {
		return &destageUnit{}
	}
	a.freeUnit = u.next
	u.Reset()
	*u = destageUnit{Batch: u.Batch}
	return u
}

// issue starts the operations of a unit, one for each run of sectors without a gap.
func (a *Array) issue(u *destageUnit) {
	c, p := a.cache, u.pool
	var x *diskIO
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
				a.startDestage(u, x)
				x = a.getIO()
				_, x.io.Off, _ = p.space.Locate(sector)
				x.io.Write, x.io.N, x.reason = true, 0, u.reason
				end = sector
			}
			end += uint64(run)
			x.io.N += uint64(run) * block.SectorSize
			if a.payload {
				from := int(i)*pageSectors + s
				if len(x.io.Vec) > 0 && from == memEnd { // neighbours in memory are one buffer
					x.io.Vec = x.io.Vec[:len(x.io.Vec)-1]
				} else {
					memFrom = from
				}
				memEnd = from + run
				x.io.Vec = append(x.io.Vec, c.NV.Sectors(memFrom, memEnd))
				for j, d := s, c.NV.Descriptor(i); j < s+run; j++ {
					x.io.Sums = append(x.io.Sums, d.Sum(j))
				}
			}
			if o := u.Origins[n]; bits.RotateLeft32(o, 4) == o {
				x.bytes[o&15] += uint32(run) * block.SectorSize
				continue
			}
			for j := s; j < s+run; j++ {
				x.bytes[wcache.OriginAt(u.Origins[n], j)] += block.SectorSize
			}
		}
	}
	a.startDestage(u, x)
	a.unitDone(u)
}

func (a *Array) startDestage(u *destageUnit, x *diskIO) {
	if x == nil {
		return
	}
	u.left++
	x.ctx = u
	x.done = a.destageDoneFn
	u.d.start(x)
}

func (a *Array) destageDone(x *diskIO) {
	u := x.ctx.(*destageUnit)
	if x.io.Err != nil {
		u.failed, u.err = true, x.io.Err
	}
	a.unitDone(u)
}

// unitDone books one operation; when the last of a unit is done, its pages are on
// the back end and only wait for a sync. A unit that failed is sent again: its pages stay
// as they are until it succeeds, and so does what waits for them.
func (a *Array) unitDone(u *destageUnit) {
	if u.left--; u.left > 0 {
		return
	}
	if u.failed {
		u.failed = false
		wait := u.d.failed(u.err)
		if u.d.offline {
			u.d.parked = append(u.d.parked, u)
			u.pool.part.Park(&u.Batch)
			return
		}
		a.exec.At(a.exec.Now()+wait, func() {
			a.issue(u)
			a.endStep()
		})
		return
	}
	u.d.works()
	a.cache.Destaged(&u.Batch)
	u.next = a.freeUnit
	a.freeUnit = u
}
