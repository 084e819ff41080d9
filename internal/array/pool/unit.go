// The second stage of destaging: a unit of pages becomes operations of an mdisk, and is sent again
// until all of it is on the back end.
//
// Invariant: a page of a unit stays as it is until the unit has succeeded.

package pool

import (
	"errors"
	"math/bits"
	"slices"

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
	since   int64 // when the unit failed first, 0: it has not
	timer   block.Timer
	againFn func()
	next    *Unit
}

func (set *Set) getUnit() *Unit {
	u := set.freeUnit
	if u == nil {
		u = &Unit{}
		u.againFn = func() { set.again(u) }
		return u
	}
	set.freeUnit, u.next = u.next, nil
	u.Reset()
	u.err, u.since = nil, 0
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
				x.Bytes[block.OriginAt(u.Origins[n], j)] += block.SectorSize
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
	switch {
	case set.forget(u):
	case u.d.Offline(): // since the end of its redo
		u.park()
	default:
		set.issue(u)
	}
}

// forget takes out of a unit that has failed what nothing refers to any more, such as the pages of a
// volume that was deleted: there may never be room for them. It reports whether nothing is left, and
// the unit is over.
func (set *Set) forget(u *Unit) bool {
	if !set.Cache.Forget(&u.Batch, u.refused) {
		return false
	}
	// The mdisk works as far as anybody knows, if this was the last that it has not taken.
	if part := u.pool.Part; !part.AnyRefused(u.Mdisk) && (u.refused || part.InFlight(u.Mdisk) == 0) {
		u.d.Works()
	}
	u.refused = false
	set.giveUnit(u)
	return true
}

// later has a unit that failed sent again after a while.
func (set *Set) later(u *Unit, wait int64) {
	if u.refused {
		u.d.resting++
	}
	u.d.later = append(u.d.later, u)
	u.timer = set.Exec.At(set.Exec.Now()+wait, u.againFn)
}

// again sends a unit again whose time has come.
func (set *Set) again(u *Unit) {
	u.d.later = slices.DeleteFunc(u.d.later, func(x *Unit) bool { return x == u })
	if !set.Back.Stopped() { // else its pages stay in NVRAM
		set.retry(u)
		set.Up.Step()
	}
}

// park has a unit that failed wait until its mdisk is not offline any more.
func (u *Unit) park() {
	u.d.parked = append(u.d.parked, u)
	u.pool.Part.Park(len(u.Pages))
}

// parkAll does that with all units of an mdisk that goes offline: to send one again would be in vain.
func (d *Mdisk) parkAll() {
	for _, u := range d.later {
		u.timer.Stop()
		if u.refused {
			d.resting--
		}
		u.park()
	}
	d.later = nil
}

// unparkAll sends them again, at once.
func (d *Mdisk) unparkAll() {
	parked := d.parked
	d.parked = nil
	for _, u := range parked {
		u.pool.Part.Park(-len(u.Pages))
		if set := d.pool.Set; !set.forget(u) {
			set.issue(u)
		}
	}
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
		wait, now := u.d.Failed(u.err), set.Exec.Now()
		if u.since == 0 {
			u.since = max(1, now)
		}
		if u.d.Offline() {
			u.park()
			return
		}
		if !u.refused && errors.Is(u.err, block.ErrFull) {
			u.refused = true
			u.pool.Part.Refuse(&u.Batch, 1)
		}
		if !u.refused { // that there has been no room for others for long does not matter to it
			wait = backend.BackOff(now - u.since)
		}
		set.later(u, wait)
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
