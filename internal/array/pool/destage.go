// The first stage of destaging: at the end of a step, pools that something has changed for send
// what the cache says that they send now.

package pool

import "github.com/arraysim/arraysim/internal/block"

// DestageAll lets the pools destage that something has changed for, the one that was noted last
// first. When the back end has stopped it only forgets that something has.
func (set *Set) DestageAll() {
	for p := set.Cache.NextKicked(); p != nil; p = set.Cache.NextKicked() {
		if !set.Back.Stopped() {
			set.destage(set.pools[p.ID()])
		}
	}
}

// destage sends what the cache says that the pool sends now.
func (set *Set) destage(p *Pool) {
	pressed := p.Part.Pressed()
	for {
		u := set.getUnit()
		if !p.Part.NextDestage(&u.Batch, pressed) {
			set.giveUnit(u)
			return
		}
		u.pool, u.d, u.reason = p, p.Mdisks[u.Mdisk], block.ReasonDestage
		if u.Through {
			u.reason = block.ReasonWriteThrough
		}
		set.issue(u)
	}
}
