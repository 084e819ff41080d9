// The data of a long piece gets into NVRAM beside the executor: see admission.Fill.

package request

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

const fillLog = 64 // writes that the log has room for when one is filled: others come before its record

// fillsAside reports whether a piece of n sectors that was admitted is to be filled beside the executor: the
// last one of its command, since between two pieces all others would take the room that it found. A region
// that is not local wants to hear of what is written while the executor is held.
func (o *op) fillsAside(n uint64) bool {
	e := o.e
	return e.aside != nil && e.payload && e.answers.local && o.kind == KindWrite && o.req.Op == block.OpWrite && o.cur+n == o.stop &&
		e.aside.Long(n*block.SectorSize) && o.claim.Whole() && !o.origin.Undercover() && e.link.Fits(fillLog*layout.PieceWindows)
}

// beginFill has a piece of n sectors filled.
func (o *op) beginFill(n uint64, head bool) {
	if o.fns.fill == nil {
		o.fns.fill, o.fns.filled = o.fill.Copy, o.filled
	}
	o.fill.Head = head
	o.to(filling)
	o.e.filling++
	o.e.link.Fill(&o.fill, o.v.Cached, o.cur, o.cur+n, o.src)
	o.e.aside.Aside(n*block.SectorSize, o.fns.fill, o.fns.filled)
}

// filled goes on with a piece that has its data in its pages.
func (o *op) filled() {
	e, was := o.e, o.state
	o.to(running)
	e.filling--
	o.fill.End()
	e.GaveRoom() // if it is not committed after all
	if was == unwanted {
		o.abandon(block.Cancelled)
	} else {
		o.write(o.fill.Head)
	}
	e.EndStep()
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
