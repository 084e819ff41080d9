// The copy manager's operation, which an EXTENDED COPY, a POPULATE TOKEN or a WRITE USING TOKEN
// starts, and its result, which an I_T_L nexus keeps for the RECEIVE COPY commands. It has a
// request of its own, because it can outlive its command. Only the files of a copy's stages
// change it: copystart.go, copysegment.go, populate.go or writetoken.go, copyend.go.

package copymgr

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// operation is a copy operation of the copy manager: an EXTENDED COPY, a POPULATE
// TOKEN or a WRITE USING TOKEN. It has a request of its own, because it can
// outlive its command (IMMED=1).
type operation struct {
	m       *Manager
	x       *server.ITL  // where the command came
	source  *source      // of x
	task    *server.Task // while the command waits for the end
	work    copier
	result  *copyResult
	kept    bool // result is in source.results
	discard bool // result goes with the end
	req     block.Request
	where   *server.Unit     // where req is; nil: at a peer
	asked   *question        // of a peer, until it is answered (peer.go)
	said    copysource.Reply // the last answer
	far     []farUnit        // units of peers that it uses
	state   operationState
	cut     interruption // what stopped it, if a unit did
	host    uint32
	port    uint32
	start   int64
	arrived uint64 // its command
	roles   []copyRole
	early   *server.Command  // that has ended at once; nil: it has waited
	waiters []*server.Waiter // what goes on when the operation is over
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
	x    *server.ITL // or:
	g    farUnit
	kind counters.Op
}

// copier is what an operation does: it submits requests one after the other.
type copier interface {
	// next submits the next request or finishes the operation.
	next(*operation)
	// ended is called when the request has ended, whatever its status.
	ended(*operation)
	// farUnits returns the units of peers that the operation uses.
	farUnits() []farUnit
	// uses returns what the operation does with a unit, and by which I_T_L nexus: in the
	// step that it is at, or in all that is left of it.
	uses(o *operation, u *server.Unit, what server.Scope) (*server.ITL, server.Use)
	// without tells why the operation, which came on another, cannot go on when an I_T_L nexus has left
	// the LUN map; sense.NoSense means that it can.
	without(o *operation, x *server.ITL) sense.Code
	// refuse finishes the operation with what a unit that it uses says to it now.
	refuse(o *operation, c interruption)
}

// interruption is why a unit ended an operation: what it would answer to the next request.
type interruption struct {
	u      *server.Unit // or:
	g      farUnit      // of a peer; nil, both: none did
	status byte
	why    sense.Code
	gone   bool // the unit cannot be reached any more
}

// aborted reports whether the operation's command is being aborted: the operation goes with it.
func (o *operation) aborted() bool { return o.task != nil && o.task.Aborting() }

// cancelled reports whether the present request's outcome matters no more.
func (o *operation) cancelled() bool { return o.state == stopping || o.aborted() }

// copyResult is what the RECEIVE COPY commands tell of one copy operation. The
// 1-byte and the 4-byte list identifiers are one set of numbers (SPC-5 5.18.4.2).
type copyResult struct {
	id        uint32
	sa        byte       // service action of the command
	op        *operation // while it runs
	status    byte       // COPY OPERATION STATUS, when it is over
	segments  uint16     // processed
	moved     uint64     // bytes transferred
	blocks    uint64     // the same, of a token's operation
	samStatus byte       // status of the command
	sense     []byte
	token     []byte // that POPULATE TOKEN made
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

// source is what the copy manager keeps for an I_T_L nexus on which copies come.
type source struct {
	results []*copyResult // of operations that run, and of some that are over
	running int           // operations that came here and are not over
}

// with returns the result of the operation with this list identifier, or nil.
func (s *source) with(id uint32) *copyResult {
	for _, r := range s.results {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (s *source) forget(r *copyResult) {
	s.results = slices.DeleteFunc(s.results, func(q *copyResult) bool { return q == r })
}

// keep makes room for a new result: of those that are over, the oldest goes.
func (s *source) keep(r *copyResult) {
	if len(s.results) >= maxHeld {
		for _, q := range s.results {
			if q.op == nil {
				s.forget(q)
				break
			}
		}
	}
	s.results = append(s.results, r)
}

// submit hands the operation's request to the device of a unit that it uses.
func (o *operation) submit(u *server.Unit) {
	o.where = u
	o.req.Host, o.req.Port, o.req.Located = o.host, o.port, false
	o.m.t.Enqueue(u, &o.req)
}

// flush has a unit that is without a write cache for its hosts (WCE=0) bring to the medium what was just
// placed there. No parameter list of a copy asks for that: it holds because the unit said so.
func (o *operation) flush(u *server.Unit) {
	r := &o.req
	r.Op, r.Range, r.Ranges, r.Ref, r.RefOffset, r.Data, r.Flags = block.OpFlush, block.Range{}, nil, nil, 0, nil, 0
	o.submit(u)
}

func total(ranges []block.Range) uint64 {
	var n uint64
	for _, r := range ranges {
		n += r.Bytes()
	}
	return n
}
