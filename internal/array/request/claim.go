// What a write asks the gate to the write cache, and what that asks the write (package admission). The
// data of a long piece that was admitted gets into NVRAM beside the executor: see admission.Fill.

package request

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// ask asks whether n sectors from o.cur on may enter the write cache now. head says that the op is
// the first that waits for room in its partition.
func (o *op) ask(n uint64, head bool) admission.Verdict {
	c := &o.claim
	c.Writer, c.Pool, c.Owner, c.Origin, c.Host = o, o.v.Pool().Part, &o.v.turns, o.origin, o.host
	c.Pages, c.Sectors = layout.PagesOf(o.cur, n), n
	return o.e.link.Admit(c, head)
}

// Claim returns what the op asks the cache for.
func (o *op) Claim() *admission.Claim { return &o.claim }

// Overwrites is DirtyHits of the op's piece; see admission.Writer.
func (o *op) Overwrites(needed int) int { return o.v.DirtyHits(o.cur, o.claim.Sectors, needed) }

// Throttle has an op that stood first for room wait for its budget.
func (o *op) Throttle() {
	o.unqueue()
	o.throttle()
}

const fillLog = 64 // writes that the log has room for when one is filled: others come before its record

// fillsAside reports whether a piece of n sectors that was admitted is to be filled beside the executor: the
// last one of its command, since between two pieces all others would take the room that it found. A region
// that is not local wants to hear of what is written while the executor is held.
func (o *op) fillsAside(n uint64) bool {
	e := o.e
	return e.aside != nil && e.payload && e.answers.Local && o.kind == KindWrite && o.req.Op == block.OpWrite && o.cur+n == o.stop &&
		e.aside.Long(n*block.SectorSize) && o.claim.Whole() && !o.origin.Undercover() && e.link.Fits(fillLog*layout.PieceWindows)
}

// admitted is ask for a piece that may have been admitted, and filled, before: then what it was admitted
// to is still there.
func (o *op) admitted(n uint64, head, filled bool) admission.Verdict {
	if filled && o.v.Pool().Part.ModeNow() == o.claim.Way && o.e.link.Fits(layout.PieceWindows) {
		return admission.Admitted
	}
	o.fill.Forget()
	return o.ask(n, head)
}
