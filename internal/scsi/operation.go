// The copy manager's operation, which an EXTENDED COPY, a POPULATE TOKEN or a WRITE USING TOKEN
// starts, and its result, which an I_T_L nexus keeps for the RECEIVE COPY commands. It has a
// request of its own, because it can outlive its command. Only the files of a copy's stages
// change it: copystart.go, copysegment.go or odx.go, copyend.go.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// operation is a copy operation of the copy manager: an EXTENDED COPY, a POPULATE
// TOKEN or a WRITE USING TOKEN. It has a request of its own, because it can
// outlive its command (IMMED=1).
type operation struct {
	t       *Target
	x       *itl  // where the command came
	task    *Task // while the command waits for the end
	work    copier
	result  *copyResult
	kept    bool // result is in x.copies
	discard bool // result goes with the end
	req     block.Request
	where   *Unit // where req is
	state   operationState
	cut     interruption // what stopped it, if a unit did
	host    uint32
	port    uint32
	start   int64
	arrived uint64 // its command
	roles   []copyRole
	waiters []*waiter // what goes on when the operation is over
}

// operationState only grows.
type operationState uint8

const (
	running  operationState = iota
	stopping                // its present request is the last, and what that brings is given back
	over                    // its result stands, and its command has ended or is about to
)

// copyRole is a unit's part in a copy, for the counters.
type copyRole struct {
	x    *itl
	kind opKind
}

// copier is what an operation does: it submits requests one after the other.
type copier interface {
	// next submits the next request or finishes the operation.
	next(*operation)
	// ended is called when the request has ended, whatever its status.
	ended(*operation)
	// uses returns what the operation does with a unit, and by which I_T_L nexus: in the
	// step that it is at, or in all that is left of it.
	uses(o *operation, u *Unit, what scope) (*itl, use)
	// refuse finishes the operation with what a unit that it uses says to it now.
	refuse(o *operation, u *Unit, status byte, why code)
}

// use is what a copy operation does with a unit.
type use uint8

const (
	usesRead  use = 1 << iota // reads it
	usesWrite                 // writes it
	usesData                  // has a token's reference to what it held
)

// scope is which part of an operation is looked at.
type scope uint8

const (
	step scope = iota // what it does now
	rest              // what is left of it
)

// interruption is why a unit ended an operation: what it would answer to the next request.
type interruption struct {
	u      *Unit // nil: none did
	status byte
	why    code
}

// aborted reports whether the operation's command is being aborted: the operation goes with it.
func (o *operation) aborted() bool { return o.task != nil && o.task.state.phase == aborting }

// cancelled reports whether the present request's outcome matters no more.
func (o *operation) cancelled() bool { return o.state == stopping || o.aborted() }

// copyResult is what the RECEIVE COPY commands tell of one copy operation. The
// 1-byte and the 4-byte list identifiers are one set of numbers (SPC-5 5.18.4.2).
type copyResult struct {
	id       uint32
	sa       byte       // service action of the command
	op       *operation // while it runs
	status   byte       // COPY OPERATION STATUS, when it is over
	segments uint16     // processed
	moved    uint64     // bytes transferred
	blocks   uint64     // the same, of a token's operation
	sam      byte       // status of the command
	sense    []byte
	token    []byte // that POPULATE TOKEN made
}

// Values of COPY OPERATION STATUS (SPC-5 table 182).
const (
	copyDone       = 0x01
	copyError      = 0x02
	copyPartROD    = 0x03 // done; of the token's data a part was used
	copyResidual   = 0x04 // done; the token has less than what was asked for
	copyForeground = 0x11
	copyBackground = 0x12
	copyTerminated = 0x60
)

// failed reports whether the operation ended badly.
func (r *copyResult) failed() bool { return r.status == copyError || r.status == copyTerminated }

func (x *itl) copyWith(id uint32) *copyResult {
	for _, r := range x.copies {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (x *itl) forget(r *copyResult) {
	x.copies = slices.DeleteFunc(x.copies, func(q *copyResult) bool { return q == r })
}

// keep makes room for a new result: of those that are over, the oldest goes.
func (x *itl) keep(r *copyResult) {
	if len(x.copies) >= maxHeld {
		for _, q := range x.copies {
			if q.op == nil {
				x.forget(q)
				break
			}
		}
	}
	x.copies = append(x.copies, r)
}
