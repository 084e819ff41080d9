package array

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/block"
)

// destageUnit is the pages of one turn that go out together.
type destageUnit struct {
	pool    *Pool
	d       *mdisk
	pages   []uint32
	masks   []uint8
	origins []uint32
	reason  block.Reason
	left    int // operations under way
	failed  bool
	err     error // of the operation that failed last
	next    *destageUnit
}

func (a *Array) getUnit() *destageUnit {
	u := a.freeUnit
	if u == nil {
		return &destageUnit{}
	}
	a.freeUnit = u.next
	*u = destageUnit{pages: u.pages[:0], masks: u.masks[:0], origins: u.origins[:0]}
	return u
}

// issue starts the operations of a unit, one for each run of sectors without a gap.
func (a *Array) issue(u *destageUnit) {
	c, p := a.cache, u.pool
	var x *backend.Op
	end := ^uint64(0)       // sector where x ends
	memFrom, memEnd := 0, 0 // the last buffer of x, in sectors of NVRAM
	u.left = 1
	for n, i := range u.pages {
		at := c.pages[i].key.Phys()
		for left := uint(u.masks[n]); left != 0; {
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
			if a.payload {
				from := int(i)*pageSectors + s
				if len(x.IO.Vec) > 0 && from == memEnd { // neighbours in memory are one buffer
					x.IO.Vec = x.IO.Vec[:len(x.IO.Vec)-1]
				} else {
					memFrom = from
				}
				memEnd = from + run
				x.IO.Vec = append(x.IO.Vec, c.nv.Sectors(memFrom, memEnd))
				for j, d := s, c.nv.Descriptor(i); j < s+run; j++ {
					x.IO.Sums = append(x.IO.Sums, d.Sum(j))
				}
			}
			if o := u.origins[n]; bits.RotateLeft32(o, 4) == o {
				x.Bytes[o&15] += uint32(run) * block.SectorSize
				continue
			}
			for j := s; j < s+run; j++ {
				x.Bytes[originAt(u.origins[n], j)] += block.SectorSize
			}
		}
	}
	u.start(x)
	a.unitDone(u)
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

// joins returns the page of a key if it can go out with its neighbour, or noPage.
func (a *Array) joins(v *Volume, k pageKey) uint32 {
	i := a.cache.lookup(k)
	if i == noPage {
		return noPage
	}
	p := &a.cache.pages[i]
	if p.state != pageDirty || p.vol != v.id || p.flags&flagUnder != 0 || !a.flushedPage(i) {
		return noPage
	}
	return i
}

func (a *Array) destageDone(x *backend.Op) {
	u := x.Ctx.(*destageUnit)
	if x.IO.Err != nil {
		u.failed, u.err = true, x.IO.Err
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
		wait := u.d.Failed(u.err)
		if u.d.Offline() {
			p := u.pool
			u.d.parked = append(u.d.parked, u)
			p.pinMore(len(u.pages))
			return
		}
		a.exec.At(a.exec.Now()+wait, func() {
			a.issue(u)
			a.endStep()
		})
		return
	}
	c, p := a.cache, u.pool
	c.touchPages(u.pages)
	u.d.destages--
	u.d.Works()
	v := (*Volume)(nil)
	for n, i := range u.pages {
		pg := &c.pages[i]
		if v == nil || v.id != pg.vol {
			v = a.volumeByID(pg.vol)
			v.meter()
		}
		v.leaveDirty(u.masks[n], u.origins[n], cellDestaged)
		pg.state = pageWritten
		a.settled(i)
		a.written = append(a.written, i)
		if pg.flags&flagHeir != 0 {
			pg.flags &^= flagHeir
			heir := c.rare[i].heir
			h := &c.pages[heir]
			h.flags &^= flagUnder
			p.addDirty(a.volumeByID(h.vol), heir)
		}
	}
	u.next = a.freeUnit
	a.freeUnit = u
	a.needDestage(p)
}
