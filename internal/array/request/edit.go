// Map edits: WRITE SAME of zeros, UNMAP, and copies by reference. The records of one claim
// commit them, so that each is atomic, but for a copy by reference of very many runs (see place) and an
// UNMAP of very many windows (pool.EditOf). Their cost depends on entries and never on bytes.

package request

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// edit carries out a WRITE SAME of zeros or an UNMAP, or lets it wait.
func (o *op) edit() {
	e, v := o.e, o.v
	x := v.EditOf(o.req, &e.one, o.started)
	if s := o.barred(); s != block.OK {
		o.end(s)
		return
	}
	if o.lacksLeaf() {
		return
	}
	for _, g := range x.Ranges {
		if v.conflict(o, g) {
			o.await(&v.lockWait)
			return
		}
	}
	if e.owes() {
		o.letCollect()
		return
	}
	n := pool.CountRanges(x.Ranges)
	if !e.link.EverFits(n) {
		o.end(block.Unsupported)
		return
	}
	if x.State == block.Anchored && v.Spec.Thin {
		ok, more, guessed := v.CanAnchor(x.Ranges)
		switch {
		case more:
			o.again()
			return
		case !ok && guessed && !o.needs.exact:
			o.needs.exact = true
			o.needs.pins.Release() // it keeps more now
			o.edit()
			return
		case !ok:
			o.end(block.NoSpace)
			return
		}
	}
	room, ok := e.link.Claim(n)
	if !ok {
		o.waitForLog(n)
		return
	}
	e.edits = e.edits[:0]
	for _, g := range x.Ranges {
		if g.Count > 0 {
			e.edits = append(e.edits, nvlog.Edit{Volume: v.ID(), State: x.State, Range: g})
		}
	}
	if !e.applyEdits(v, &room) {
		o.end(block.Hardware)
		return
	}
	o.needs.pins.Release()
	if o.started += uint64(len(x.Ranges)); !x.Last {
		e.yield(o)
		return
	}
	v.CountOffload(x.Prim, pool.PathMetadata, v.Pool().ID(), x.Bytes)
	o.end(block.OK)
}

// owes reports whether maps grow faster than their garbage is collected: who is about to edit them waits
// for its turn then.
func (e *Engine) owes() bool {
	owes := e.arena.Pay()
	if owes {
		e.GaveRoom()
	}
	return owes
}

// applyEdits commits e.edits, all of v, in the records of a claim and carries them out. It returns
// false, having done nothing, when the claim is not theirs.
func (e *Engine) applyEdits(v *Volume, room *nvlog.Claim) bool {
	if len(e.edits) == 0 {
		return true
	}
	for rest, ok := e.edits, true; len(rest) > 0; {
		if rest, ok = room.Append(rest, 0); !ok {
			e.BreakDown("internal error: a command has lost its room in the log")
			return false
		}
	}
	for i := range e.edits {
		v.Apply(&e.edits[i])
		e.changed(v, e.edits[i].Range)
	}
	e.edits = e.edits[:0]
	v.Account()
	e.GaveRoom()
	return true
}
