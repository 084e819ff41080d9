package array

import "github.com/arraysim/arraysim/internal/block"

// destageAll lets the pools destage that something has changed for, the one that was noted last first.
func (a *Array) destageAll() {
	for p := a.cache.NextKicked(); p != nil; p = a.cache.NextKicked() {
		a.destage(a.pools[p.ID()])
	}
}

// destage sends what the cache says that the pool sends now.
func (a *Array) destage(p *Pool) {
	pressed := p.part.Pressed()
	for {
		u := a.getUnit()
		if !p.part.NextDestage(&u.Batch, pressed) {
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
