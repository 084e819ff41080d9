package array

import (
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// partition is a pool's part of the write cache, and who waits for it.
type partition struct {
	*wcache.Partition
	stall   bool // the ramp delays all writes
	waiting waitQueue
	inLine  bool       // the array knows that somebody waits
	tag     int64      // what it has been served, weighted; see share.go
	braked  brakeQueue // offloads behind their budget
}

// destage sends what the cache says that the pool sends now.
func (a *Array) destage(p *Pool) {
	pt := &p.part
	waiting := !pt.waiting.empty() || a.opt.Policy.Budget.Pressure && !pt.braked.empty() ||
		a.line.lacks&lackRoom != 0 && !pt.Room.WithinFloor(0)
	for {
		u := a.getUnit()
		if !pt.NextDestage(&u.Batch, waiting) {
			u.next = a.freeUnit
			a.freeUnit = u
			return
		}
		u.pool, u.d, u.reason = p, p.mdisks[u.Mdisk], block.ReasonDestage
		if u.Through {
			u.reason = block.ReasonWriteThrough
		}
		a.issue(u)
	}
}
