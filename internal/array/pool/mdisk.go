// What a set has for each mdisk beside the back end's own state, and what it answers the back end:
// an mdisk there knows the numbers of its pool and of itself, here they become a pool and its
// pages.
//
// Invariant: while an mdisk redoes, the cache holds back what goes to it, and Mdisk.redo has the
// pages that were written to it and not synced. They are retired when the redo ends. A redo does not wait
// for units for which there is no room, which may be never: those are sent again behind it, all of each.

package pool

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Mdisk is one back-end disk of a pool.
type Mdisk struct {
	*backend.Mdisk
	pool   *Pool
	parked []*Unit // units that failed, and are sent again when it is not offline any more
	later  []*Unit // units that failed, and are sent again after a while
	// resting is how many units that were refused for want of room wait to be sent again: nothing of them is on its way.
	resting int
	behind  []*Unit  // of these, those that wait for the end of a redo
	redo    []uint32 // while it redoes: the pages that are written again
	lane    lane     // its discards
}

// ReadHooks are what the mdisks tell of the requests' reads.
type ReadHooks struct {
	Read, Abandoned func(*backend.Op)
	Unwanted        func(*backend.Op) bool
	Overdue         func(p *Pool, s block.Status)
	Watch           func()
}

// OpenBackend makes the back end, without mdisks.
func (set *Set) OpenBackend(h ReadHooks) {
	set.Back = backend.New(set.Exec, set.Rows, backend.Hooks{
		Read:      h.Read,
		Abandoned: h.Abandoned,
		Unwanted:  h.Unwanted,
		Written:   set.destageDone,
		Turned:    func(d *backend.Mdisk) { set.mdisk(d).pool.tellHealth() },
		Overdue:   func(d *backend.Mdisk, s block.Status) { h.Overdue(set.mdisk(d).pool, s) },
		Watch:     h.Watch,
		Synced:    func() { set.Cache.EndSync() },
		Lost:      set.lost,
		Late:      func(d *backend.Mdisk, late bool) { set.mdisk(d).pool.Part.Late(d.Number(), late) },
		Rewrite:   set.toRewrite,
		Rewritten: set.rewritten,
		Step:      set.Up.Step,
	})
}

// mdisk returns what the array has for an attached mdisk.
func (set *Set) mdisk(d *backend.Mdisk) *Mdisk { return set.pools[d.Pool()].Mdisks[d.Number()] }

// lost takes the pages out of a sync that it has failed to make durable.
func (set *Set) lost(b *backend.Mdisk) {
	d := set.mdisk(b)
	d.redo = d.pool.Part.Lost(b.Number())
	d.pool.Part.Hold(b.Number(), true)
}

// toRewrite returns what a redo of an mdisk writes: all pages that are written and not synced.
func (set *Set) toRewrite(b *backend.Mdisk) ([]backend.Rewrite, bool) {
	d := set.mdisk(b)
	if d.pool.Part.InFlight(b.Number()) > d.resting { // what is on its way has to be written again, too
		return nil, false
	}
	// A page may have been there whose space is free by now. Where that is being discarded, it is free for good.
	if slices.ContainsFunc(d.lane.under, func(w *withheld) bool { return !w.begun }) {
		return nil, false
	}
	d.redo = d.pool.Part.Rewrite(b.Number(), d.redo)
	return set.newestOf(d.pool, d.redo), true
}

// newestOf sorts out what each page has to write: what no newer one of its address has, and nothing where space is being
// discarded.
func (set *Set) newestOf(p *Pool, pages []uint32) []backend.Rewrite {
	c := set.Cache
	var todo []backend.Rewrite
	slices.SortFunc(pages, func(x, y uint32) int {
		return cmp.Compare(c.NV.Descriptor(y).Seq(), c.NV.Descriptor(x).Seq())
	})
	covered := map[layout.PageKey]uint8{}
	for _, i := range pages {
		// Dropped sectors, too: a loss of power may undo the drop.
		k, mask := c.Key(i), c.Sealed(i)
		if left := mask &^ covered[k]; left != 0 && !p.discarded(k.Phys()) {
			w := backend.Rewrite{Mask: left}
			_, w.Off, _ = p.Alloc.Locate(k.Phys())
			if set.Payload {
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

// discarded reports whether the grain of a physical sector is being discarded. One that is free gets bytes by the redo
// once more.
func (p *Pool) discarded(phys uint64) bool {
	if !p.Set.discards.on {
		return false
	}
	e, bit := uint32(phys/layout.ExtentSectors), uint64(1)<<(phys>>layout.WindowShift%layout.ExtentGrains)
	if p.Alloc.Withholds(e)&bit != 0 {
		return true
	}
	p.Alloc.Written(phys, 1)
	return false
}

// rewritten lets the pages go that a redo has written: they are on the back end for good.
func (set *Set) rewritten(b *backend.Mdisk) {
	d := set.mdisk(b)
	if d.pool.Part.AnyRefused(b.Number()) { // it has failed since there is no room, and goes on to
		b.FailsStill(block.ErrFull)
	} else {
		b.Works()
	}
	d.pool.Part.Hold(b.Number(), false)
	set.Cache.Retire(d.redo)
	d.redo = nil
	if set.Back.Stopped() { // what is behind stays in NVRAM
		return
	}
	behind := d.behind
	d.behind = nil
	for _, u := range behind {
		set.retry(u)
	}
	d.pool.discardSoon()
	d.pool.Part.Kick()
}
