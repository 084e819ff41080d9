// What a write asks the gate to the write cache, and what that asks the write: see package
// admission.

package request

import "github.com/arraysim/arraysim/internal/array/admission"

// ask asks whether n sectors from o.cur on may enter the write cache now. head says that the op is
// the first that waits for room in its partition.
func (o *op) ask(n uint64, head bool) admission.Verdict {
	c := &o.claim
	c.Writer, c.Pool, c.Owner, c.Origin, c.Host = o, o.v.Pool().Part, &o.v.turns, o.origin, o.host
	c.Pages, c.Sectors = o.piecePagesOf(n), n
	return o.e.link.Admit(c, head)
}

// Claim returns what the op asks the cache for.
func (o *op) Claim() *admission.Claim { return &o.claim }

// Overwrites counts the pages of the op's piece whose dirty contents it would replace; see
// admission.Writer.
func (o *op) Overwrites(needed int) int { return o.v.DirtyHits(o.cur, o.claim.Sectors, needed) }

// Throttle has an op that stood first for room wait for its budget.
func (o *op) Throttle() {
	o.unqueue()
	o.throttle()
}
