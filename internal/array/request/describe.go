// What requests are doing, for whoever looks for one that hangs. Nothing in the firmware asks for
// it: tests do, after every step, so that a waiter who is forgotten or a resource that is not given
// back shows there.

package request

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// Doing says what a request that was submitted does now: its state, what it waits for, and what its
// pieces do. It returns "" for one that has ended, and for a host's read.
func Doing(r *block.Request) string {
	o, ok := r.Priv.(*op)
	if !ok {
		return ""
	}
	what := o.doing()
	if len(o.pieces) > 0 && o.state == moving {
		var pieces []string
		for _, c := range o.pieces {
			pieces = append(pieces, c.doing())
		}
		what += " (" + strings.Join(pieces, ", ") + ")"
	}
	return what
}

func (o *op) doing() string {
	if o.state == waiting {
		return "waiting for " + o.For().String()
	}
	return stateNames[o.state]
}

// Forgotten looks at everybody who waits, which a step itself never does, and says who could go on:
// nobody may when a step has ended. trimming says that somebody makes room in the log. It changes
// nothing.
func (e *Engine) Forgotten(trimming bool) (what string) {
	if e.wakes.given != 0 {
		return fmt.Sprintf("resources %b were given to nobody", e.wakes.given)
	}
	if o := headOf(&e.wakes.log); o != nil && e.link.Fits(o.logEdits) {
		return fmt.Sprintf("the log has room for %d edits", o.logEdits)
	}
	if !e.wakes.log.Empty() && !e.link.Starved() && !trimming {
		return "nobody asks for room in the log"
	}
	if c := &e.copies; !c.Moves.Empty() && c.Room() || !c.Reads.Empty() && c.ReadRoom() {
		return "the copy engine has room"
	}
	var pools []*admission.Pool
	for _, p := range e.set.Pools() {
		if s := p.Alloc; !p.SpaceWait.Empty() && (s.Leaving()+s.Withheld() == 0 || min(s.Available(), s.Takeable()) >= layout.PieceWindows) {
			return "no transfer and no discard keeps space, or there is enough"
		}
		pools = append(pools, p.Part)
	}
	return e.link.Forgotten(pools)
}

// Leftover says what there still is of requests, "" if nothing: nothing may when all of them have
// ended, and what they wrote through is on the back end.
func (e *Engine) Leftover() string {
	for _, x := range e.set.Volumes() {
		if v := Of(x); v.ops != 0 || len(v.locks) != 0 || !v.lockWait.Empty() {
			return fmt.Sprintf("volume %s has %d requests and %d locks", v.Name(), v.ops, len(v.locks))
		}
	}
	if c := &e.copies; c.Out != 0 || c.Reading != 0 {
		return fmt.Sprintf("%d bytes of pieces and %d reads are in progress", c.Out, c.Reading)
	}
	if n := len(e.settling.pages); n != 0 || e.Settling() {
		return fmt.Sprintf("%d pages are waited for", n)
	}
	if n := e.link.Waiters(); n != 0 {
		return fmt.Sprintf("%d writes wait for room or a budget", n)
	}
	if o := e.freeOp; o != nil && (o.state != free || o.Queued() || o.For() != ticket.Nothing) {
		return "a recycled request is " + o.doing()
	}
	return ""
}

// CopyBuffers returns how many buffers the pieces of copies have, and how many are kept for later.
func (e *Engine) CopyBuffers() (lent, kept int) { return e.copies.Buffers() }

// String returns the name of the kind.
func (k Kind) String() string { return kindNames[k] }

// String returns the name of the state.
func (s State) String() string { return stateNames[s] }

// Forbid takes a transition of a kind from what requests of this engine may do, and reports whether
// they might. A test shows with it that each entry of the table is needed.
func (e *Engine) Forbid(k Kind, from, to State) bool {
	may := e.rules.may[k][to]
	e.rules.may[k][to] &^= 1 << from
	return may>>from&1 != 0
}

// ForbidWait is Forbid of waiting for a resource.
func (e *Engine) ForbidWait(k Kind, r ticket.Resource) bool { return e.rules.lack[k].Take(r) }
