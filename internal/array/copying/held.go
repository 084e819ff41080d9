// What references to points in time may take of memory.

package copying

import (
	"math"

	"github.com/arraysim/arraysim/internal/block"
)

// Whoever writes every other sector decides how many runs a reference has, some 32 bytes each. One
// host's references leave room for others'.
const (
	maxRuns       = 1 << 18 // of a reference, which is made in one step
	maxRunsOfHost = 1 << 20 // of all that the commands of a host have made
	maxRunsOfAll  = 1 << 22
)

// Held is the runs of the references that an array's hosts have made and not given back. The zero value
// has none.
type Held struct {
	all  int
	host map[uint32]int
}

// Room returns how many runs the reference may have that a request makes. What moves a volume for the
// administrator holds all of it, and counts for nobody.
func (h *Held) Room(q *block.Request) int {
	if q.Origin == block.OriginMigrate {
		return math.MaxInt
	}
	return min(maxRuns, maxRunsOfHost-h.host[q.Host], maxRunsOfAll-h.all)
}

// Book books the runs of a reference that a request has made to its host, and returns how many these
// are for GiveBack.
func (h *Held) Book(q *block.Request, runs int) (booked int) {
	if q.Origin == block.OriginMigrate {
		return 0
	}
	if h.host == nil {
		h.host = map[uint32]int{}
	}
	h.all += runs
	h.host[q.Host] += runs
	return runs
}

// GiveBack ends what Book began.
func (h *Held) GiveBack(host uint32, booked int) {
	if booked == 0 {
		return
	}
	h.all -= booked
	if h.host[host] -= booked; h.host[host] == 0 {
		delete(h.host, host)
	}
}
