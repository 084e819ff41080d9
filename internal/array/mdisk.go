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
// Invariant: while an mdisk redoes, mdisk.redo has the pages that were written to it and not synced,
// and none of them is in Array.written or in a sync under way. They are buried when the redo ends.

// mdisk is one back-end disk of a pool, with what the cache keeps for it.
type mdisk struct {
	*backend.Mdisk
	pool     *Pool
	destages int            // units under way, those that wait to be sent again, too
	pinned   dirtyList      // dirty pages that only it can take
	parked   []*destageUnit // units that failed because it is offline
	redo     []uint32       // while it redoes: the pages that are written again
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
		Synced:    a.synced,
		Rewrite:   a.toRewrite,
		Rewritten: a.rewritten,
		Step:      a.endStep,
	})
}

// mdisk returns what the array has for an attached mdisk.
func (a *Array) mdisk(d *backend.Mdisk) *mdisk { return a.pools[d.Pool()].mdisks[d.Number()] }

// mdiskOf returns the mdisk that a page goes to.
func (a *Array) mdiskOf(i uint32) *mdisk {
	k := a.cache.pages[i].key
	p := a.poolByID(k.Pool())
	md, _, _ := p.space.Locate(k.Phys())
	return p.mdisks[md]
}

// takeWritten moves the pages that are written to a redoing mdisk from a list to those that its redo
// writes again, and returns the rest.
func (a *Array) takeWritten(pages []uint32, redoes func(*mdisk) bool) []uint32 {
	kept := pages[:0]
	for _, i := range pages {
		if d := a.mdiskOf(i); redoes(d) {
			d.redo = append(d.redo, i)
		} else {
			kept = append(kept, i)
		}
	}
	return kept
}

// toRewrite returns what a redo of an mdisk writes: all pages that are written and not synced.
func (a *Array) toRewrite(b *backend.Mdisk) ([]backend.Rewrite, bool) {
	d := a.mdisk(b)
	if d.destages > 0 { // what is on its way has to be written again, too
		return nil, false
	}
	a.written = a.takeWritten(a.written, func(x *mdisk) bool { return x == d })
	return a.newestOf(d.pool, d.redo), true
}

// newestOf sorts out what each page has to write: what no newer one of its address has.
func (a *Array) newestOf(p *Pool, pages []uint32) []backend.Rewrite {
	c := a.cache
	var todo []backend.Rewrite
	slices.SortFunc(pages, func(x, y uint32) int {
		return cmp.Compare(c.nv.Descriptor(y).Seq(), c.nv.Descriptor(x).Seq())
	})
	covered := map[pageKey]uint8{}
	for _, i := range pages {
		pg := &c.pages[i]
		// Dropped sectors, too: a loss of power may undo the drop.
		mask := pg.mask
		if a.payload {
			mask = c.nv.Descriptor(i).Mask()
		}
		if left := mask &^ covered[pg.key]; left != 0 {
			w := backend.Rewrite{Mask: left}
			_, w.Off, _ = p.space.Locate(pg.key.Phys())
			if a.payload {
				w.Data = c.nv.Page(i)
				for s := range w.Sums {
					w.Sums[s] = c.nv.Descriptor(i).Sum(s)
				}
			}
			todo = append(todo, w)
		}
		covered[pg.key] |= mask
	}
	return todo
}

// rewritten buries what a redo has written: it is on the back end for good.
func (a *Array) rewritten(b *backend.Mdisk) {
	d := a.mdisk(b)
	a.buryWritten(d.redo)
	d.redo = nil
	a.needDestage(d.pool)
}
