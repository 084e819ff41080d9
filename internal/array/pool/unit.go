// The second stage of destaging: a unit of pages becomes operations of an mdisk, and is sent again
// until all of it is on the back end.
//
// Invariant: a page of a unit stays as it is until the unit has succeeded.

package pool

import (
	"errors"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Unit is the pages of one turn that go out together.
type Unit struct {
	pool *Pool
	d    *Mdisk
	wcache.Batch
	reason block.Reason
	Left   int // operations under way
	failed bool
	// refused: its mdisk had no room for it when it was sent, and has not taken it since.
	refused bool
	err     error // of the operation that failed last
	next    *Unit
}

func (set *Set) getUnit() *Unit {
	u := set.freeUnit
	if u == nil {
		return &Unit{}
	}
	set.freeUnit, u.next = u.next, nil
	u.Reset()
	u.err = nil
	return u
}

// issue starts the operations of a unit, one for each run of sectors without a gap.
func (set *Set) issue(u *Unit) {
	c, p := set.Cache, u.pool
	var x *backend.Op
	end := ^uint64(0)       // sector where x ends
	memFrom, memEnd := 0, 0 // the last buffer of x, in sectors of NVRAM
	u.Left = 1
	for n, i := range u.Pages {
		at := c.Key(i).Phys()
		for left := uint(u.Masks[n]); left != 0; {
			s := bits.TrailingZeros(left)
			run := bits.TrailingZeros(^(left >> s))
			left &^= (1<<run - 1) << s
			sector := at + uint64(s)
			if sector != end {
				u.start(x)
				_, off, _ := p.Alloc.Locate(sector)
				x = u.d.Op(true, off, 0, u.reason)
				x.Phys, end = sector, sector
			}
			end += uint64(run)
			x.IO.N += uint64(run) * block.SectorSize
			if set.Payload {
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
func (u *Unit) start(x *backend.Op) {
	if x == nil {
		return
	}
	u.Left++
	x.Ctx = u
	if u.pool.Set.discards.on {
		u.pool.Alloc.Written(x.Phys, x.IO.N/block.SectorSize)
	}
	u.d.Write(x)
}

// Roomless reports whether so much of the pool's cache waits for room at its mdisks that nothing is to be added for which they
// would need more: the rest of it is for what has its place there.
func (p *Pool) Roomless() bool { return p.Part.Refused()*4 > p.Part.Limit() }

// retry sends a unit that failed again. One that was refused waits for the end of a redo, which did not wait for it.
func (set *Set) retry(u *Unit) {
	if u.refused {
		if u.d.Redoing() {
			u.d.behind = append(u.d.behind, u)
			return
		}
		u.d.resting--
	}
	if !set.forget(u) {
		set.issue(u)
	}
}

// forget takes out of a unit that has failed what nothing refers to any more, such as the pages of a
// volume that was deleted: there may never be room for them. It reports whether nothing is left, and
// the unit is over.
func (set *Set) forget(u *Unit) bool {
	if !set.Cache.AnyDropped(&u.Batch) {
		return false
	}
	part := u.pool.Part
	if u.refused {
		part.Refuse(&u.Batch, -1)
	}
	set.Cache.Forget(&u.Batch)
	if len(u.Pages) > 0 {
		if u.refused {
			part.Refuse(&u.Batch, 1)
		}
		return false
	}
	// The mdisk works as far as anybody knows, if this was the last that it has not taken.
	if !part.AnyRefused(u.Mdisk) && (u.refused || part.InFlight(u.Mdisk) == 0) {
		u.d.Works()
	}
	u.refused = false
	set.giveUnit(u)
	return true
}

func (set *Set) giveUnit(u *Unit) {
	u.next = set.freeUnit
	set.freeUnit = u
}

func (set *Set) destageDone(x *backend.Op) {
	u := x.Ctx.(*Unit)
	if x.IO.Err != nil {
		u.failed, u.err = true, x.IO.Err
	}
	set.unitDone(u)
}

// unitDone books one operation; when the last of a unit is done, its pages are on
// the back end and only wait for a sync. A unit that failed is sent again: its pages stay
// as they are until it succeeds, and so does what waits for them.
func (set *Set) unitDone(u *Unit) {
	if u.Left--; u.Left > 0 {
		return
	}
	if u.failed {
		u.failed = false
		wait := u.d.Failed(u.err)
		if u.d.Offline() {
			u.d.parked = append(u.d.parked, u)
			u.pool.Part.Park(len(u.Batch.Pages))
			return
		}
		if !u.refused && errors.Is(u.err, block.ErrFull) {
			u.refused = true
			u.pool.Part.Refuse(&u.Batch, 1)
		}
		if u.refused {
			u.d.resting++
		}
		set.Exec.At(set.Exec.Now()+wait, func() {
			if !set.Back.Stopped() { // else its pages stay in NVRAM
				set.retry(u)
				set.Up.Step()
			}
		})
		return
	}
	if u.refused {
		u.refused = false
		u.pool.Part.Refuse(&u.Batch, -1)
	}
	if !u.pool.Part.AnyRefused(u.Mdisk) { // else it has no room, though it takes what needs none
		u.d.Works()
	}
	set.Cache.Destaged(&u.Batch)
	set.giveUnit(u)
}
