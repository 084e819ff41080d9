package array

import "github.com/arraysim/arraysim/internal/block"

// destageAll lets the pools destage that something has changed for, the one that was noted last first.
func (set *poolSet) destageAll() {
	for p := set.cache.NextKicked(); p != nil; p = set.cache.NextKicked() {
		set.destage(set.pools[p.ID()])
	}
}

// destage sends what the cache says that the pool sends now.
func (set *poolSet) destage(p *Pool) {
	pressed := p.part.Pressed()
	for {
		u := set.getUnit()
		if !p.part.NextDestage(&u.Batch, pressed) {
			u.next = set.freeUnit
			set.freeUnit = u
			return
		}
		u.pool, u.d, u.reason = p, p.mdisks[u.Mdisk], block.ReasonDestage
		if u.Through {
			u.reason = block.ReasonWriteThrough
		}
		set.issue(u)
	}
}
