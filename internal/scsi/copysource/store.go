// Package copysource has what copies read at a target but by the units of their own commands: ROD tokens, and units that
// have a part in operations of other I/O groups, and of other arrays. Whose operation that is, and where, the package does
// not know: it is asked for steps, and answers.
package copysource

import (
	"bytes"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Store keeps the tokens and the guests of a target. Its methods are called with the target's executor held.
type Store struct {
	t      *server.Target
	tokens []*Token // in the order of creation
	valids []int    // tokens that are valid, by number of the initiator that made them
	guests []*Guest // units' parts in operations elsewhere
	gone   int      // of these, those that have left
}

// New makes the store of a target.
func New(t *server.Target) *Store { return &Store{t: t} }

// valid returns how many valid tokens an initiator has made. The pointer is good until the next call.
func (m *Store) valid(by uint32) *int {
	for uint32(len(m.valids)) <= by {
		m.valids = append(m.valids, 0)
	}
	return &m.valids[by]
}

// Valid returns how many valid tokens an initiator has made.
func (m *Store) Valid(by uint32) int { return *m.valid(by) }

// Fence ends the parts in operations elsewhere that use the unit and for which verdict has another status than GOOD; see
// server.CopyManager.
func (m *Store) Fence(u *server.Unit, w *server.Waiter, what server.Scope, verdict server.Verdict) {
	for _, g := range m.present() {
		g.fence(u, w, what, verdict)
	}
}

// Unmap ends the parts in operations elsewhere that use a unit by an I_T_L nexus that its nexus sees no longer; see
// server.CopyManager.
func (m *Store) Unmap(x *server.ITL, w *server.Waiter) {
	for _, g := range m.present() {
		if g.x == x {
			g.unmapped(w)
		}
	}
}

// UnmapLeft ends the unit's parts in operations elsewhere by I_T_L nexuses that match and are gone; see
// server.CopyManager.
func (m *Store) UnmapLeft(u *server.Unit, w *server.Waiter, match func(*server.ITL) bool) {
	for _, g := range m.present() {
		if g.x.Unit() == u && match(g.x) {
			g.unmapped(w)
		}
	}
}

// present returns the guests that have not left, in the order of their coming.
func (m *Store) present() []*Guest {
	return slices.DeleteFunc(slices.Clone(m.guests), func(g *Guest) bool { return g.left })
}

// Caller is who asks from elsewhere: units show themselves to the same initiator alone.
type Caller struct {
	Initiator, Port string
	Fabric          bool // no initiator, but a copy domain of a front end, which has the same name in all groups
}

// Wanted is a unit that the target of a copy's command does not show to its nexus.
type Wanted struct {
	CodeSet, Kind byte // Kind includes the association
	ID            []byte
	Length        uint64 // of its blocks; 0: any
	Uses          server.Use
}

// Names reports whether a unit is the one that is wanted.
func (w *Wanted) Names(u *server.Unit) bool {
	for i := range u.Names() {
		d := &u.Names()[i]
		if d.CodeSet == w.CodeSet && d.Type == w.Kind && bytes.Equal(d.ID, w.ID) {
			return true
		}
	}
	return false
}

// The steps of an operation.
const (
	Check = iota
	Hold
	Place
)

// Step is what an operation has a unit elsewhere do.
type Step struct {
	Kind     int
	Span     block.Range
	Write    bool      // of a check: whether it is to be written
	Ref      block.Ref // of a place
	Priority uint8
}

// Reply is how a step has ended.
type Reply struct {
	Status block.Status
	Gone   bool // the unit cannot be reached
	SAM    byte
	Sense  sense.Data
	Ref    block.Ref // of a hold
}

// Ending is what ended a unit's part in an operation: what the unit would answer to the next request.
type Ending struct {
	Status byte
	Why    sense.Code
	Gone   bool // the initiator cannot reach the unit any more
}
