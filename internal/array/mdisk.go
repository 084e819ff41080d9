package array

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/block"
)

// What the array has for each mdisk beside the back end's own state, and what it answers the back end:
// an mdisk there knows the numbers of its pool and of itself, here they become a pool and its pages.
//
// Invariant: while an mdisk redoes, the cache holds back what goes to it, and mdisk.redo has the pages
// that were written to it and not synced. They are retired when the redo ends.

// mdisk is one back-end disk of a pool.
type mdisk struct {
	*backend.Mdisk
	pool   *Pool
	parked []*destageUnit // units that failed because it is offline
	redo   []uint32       // while it redoes: the pages that are written again
}

// openBackend makes the back end, without mdisks.
func (a *Array) openBackend() {
	a.back = backend.New(a.exec, a.rows, backend.Hooks{
		Read:      a.readDone,
		Abandoned: a.readAbandoned,
		Unwanted:  func(x *backend.Op) bool { return x.Ctx.(*reading).unwanted() },
		Written:   a.destageDone,
		Turned:    func(d *backend.Mdisk) { a.mdisk(d).pool.tellHealth() },
		Overdue:   func(d *backend.Mdisk, s block.Status) { a.mdisk(d).pool.endWaiters(s, a.exec.Now()-patience) },
		Watch:     a.watch,
		Synced:    func() { a.cache.EndSync() },
		Lost:      a.lost,
		Rewrite:   a.toRewrite,
		Rewritten: a.rewritten,
		Step:      a.endStep,
	})
}

// mdisk returns what the array has for an attached mdisk.
func (a *Array) mdisk(d *backend.Mdisk) *mdisk { return a.pools[d.Pool()].mdisks[d.Number()] }

// lost takes the pages out of a sync that it has failed to make durable.
func (a *Array) lost(b *backend.Mdisk) {
	d := a.mdisk(b)
	d.redo = d.pool.part.Lost(b.Number())
	d.pool.part.Hold(b.Number(), true)
}

// toRewrite returns what a redo of an mdisk writes: all pages that are written and not synced.
func (a *Array) toRewrite(b *backend.Mdisk) ([]backend.Rewrite, bool) {
	d := a.mdisk(b)
	if d.pool.part.InFlight(b.Number()) > 0 { // what is on its way has to be written again, too
		return nil, false
	}
	d.redo = d.pool.part.Rewrite(b.Number(), d.redo)
	return a.newestOf(d.pool, d.redo), true
}

// newestOf sorts out what each page has to write: what no newer one of its address has.
func (a *Array) newestOf(p *Pool, pages []uint32) []backend.Rewrite {
	c := a.cache
	var todo []backend.Rewrite
	slices.SortFunc(pages, func(x, y uint32) int {
		return cmp.Compare(c.NV.Descriptor(y).Seq(), c.NV.Descriptor(x).Seq())
	})
	covered := map[pageKey]uint8{}
	for _, i := range pages {
		// Dropped sectors, too: a loss of power may undo the drop.
		k, mask := c.Key(i), c.Sealed(i)
		if left := mask &^ covered[k]; left != 0 {
			w := backend.Rewrite{Mask: left}
			_, w.Off, _ = p.space.Locate(k.Phys())
			if a.payload {
				w.Data = c.NV.Page(i)
				for s := range w.Sums {
					w.Sums[s] = c.NV.Descriptor(i).Sum(s)
				}
			}
			todo = append(todo, w)
		}
		covered[k] |= mask
	}
	return todo
}

// rewritten lets the pages go that a redo has written: they are on the back end for good.
func (a *Array) rewritten(b *backend.Mdisk) {
	d := a.mdisk(b)
	d.pool.part.Hold(b.Number(), false)
	a.cache.Retire(d.redo)
	d.redo = nil
	d.pool.part.Kick()
}
