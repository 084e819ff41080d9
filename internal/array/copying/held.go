// What references to points in time may take of memory.

package copying

import (
	"math"

	"github.com/arraysim/arraysim/internal/block"
)

// Whoever writes every other sector decides how many runs a reference has, some 32 bytes each. One
// host's references leave room for others' (block.Left). What other arrays have held here is apart from that, whatever
// host they name: they have half of all, and nothing of what hosts have here.
const (
	maxRuns       = 1 << 18 // of a reference, which is made in one step
	maxRunsOfHost = 1 << 20 // of all that the commands of a host have made
	maxRunsOfAll  = 1 << 22
	maxRunsLent   = maxRunsOfAll / 2
)

// Holder is whose references are counted together.
type Holder struct {
	host uint32
	lent bool
}

// HolderOf returns for whom a request makes a reference.
func HolderOf(q *block.Request) Holder { return Holder{q.Host, q.Lent} }

// Held is the runs of the references that an array's hosts have made and not given back. The zero value
// has none.
type Held struct {
	runs block.Shares[Holder]
	lent int // of all
}

// Room returns how many runs the reference may have that a request makes. What moves a volume for the
// administrator holds all of it, and counts for nobody.
func (h *Held) Room(q *block.Request) int {
	if q.Origin == block.OriginMigrate {
		return math.MaxInt
	}
	own := h.runs.Of(HolderOf(q))
	room := min(maxRuns, maxRunsOfHost-own)
	if q.Lent {
		room = min(room, block.Left(own, h.lent, maxRunsLent))
	}
	return min(room, h.runs.Left(HolderOf(q), maxRunsOfAll))
}

// Book books the runs of a reference that a request has made to its holder, and returns how many these
// are for GiveBack.
func (h *Held) Book(q *block.Request, runs int) (booked int) {
	if q.Origin == block.OriginMigrate {
		return 0
	}
	h.add(HolderOf(q), runs)
	return runs
}

// GiveBack ends what Book began.
func (h *Held) GiveBack(by Holder, booked int) { h.add(by, -booked) }

func (h *Held) add(by Holder, runs int) {
	h.runs.Add(by, runs)
	if by.lent {
		h.lent += runs
	}
}
