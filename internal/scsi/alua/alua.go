// Package alua has target port groups and their asymmetric access states (SPC-5 5.17): which ports
// are in which group, what the state of each group is and what changed it, and the parameter data
// that commands read and write them by. Who is told of a change is not its matter.
//
// What a command sets leaves at least one group in which the units can be reached.
package alua

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Port is a target port: a portal of the iSCSI target, say. Ports of one group
// share an asymmetric access state (SPC-5 5.17).
type Port struct {
	ID    uint16 // relative target port identifier, from 1
	Group uint16 // target port group
	// Preferred makes the group a preferred one (PREF): hosts that see several come back to it.
	Preferred bool
	// State is that in which the group begins; the first port of a group decides.
	State State
	// Transits says that the group may be found transitioning (T_SUP), as that of a node may while another node takes the
	// array over. What answers then is not this package: there is no device server.
	Transits bool
}

// State is an asymmetric access state; the numbers are those of SPC-5 table 178.
type State byte

// Asymmetric access states that a group can be put into.
const (
	Optimized    State = 0
	NonOptimized State = 1
	Standby      State = 2
	Unavailable  State = 3
	numStates          = 4
)

// Valid reports whether a group can be put into the state.
func (s State) Valid() bool { return s < numStates }

// accessible reports whether a unit can be reached in this state.
func (s State) accessible() bool { return s <= NonOptimized }

// Cause is what changed a group's state, as STATUS CODE says it.
type Cause byte

// Causes of changes; 0 is that nothing has changed yet.
const (
	ByCommand  Cause = 1
	Implicitly Cause = 2
)

// Group is a target port group.
type Group struct {
	ID    uint16
	ports []uint16
	state State
	why   Cause
	pref  byte // PREF, as it stands beside the state
	tSup  byte // T_SUP, as it stands beside the other supported states
}

// Description is a target port group as front ends are told of it.
type Description struct {
	ID    uint16
	State State
	Ports []uint16 // relative target port identifiers
}

// State returns the asymmetric access state of the group.
func (g *Group) State() State { return g.state }

// Ports returns the relative target port identifiers of the group.
func (g *Group) Ports() []uint16 { return slices.Clone(g.ports) }

// Set puts the group into a state, and reports whether it was in another one.
func (g *Group) Set(s State, why Cause) bool {
	if g.state == s {
		return false
	}
	g.state, g.why = s, why
	return true
}

// Groups are the target port groups of a target, in the order of their ports.
type Groups []*Group

// New returns the groups of these ports; without any there is port 1 in group 1.
func New(ports []Port) Groups {
	if len(ports) == 0 {
		ports = []Port{{ID: 1, Group: 1}}
	}
	return Groups(nil).With(ports)
}

// With returns the groups with these ports added; those that are there already stay as they are.
func (all Groups) With(ports []Port) Groups {
	for _, p := range ports {
		g := all.Group(p.Group)
		if g == nil {
			g = &Group{ID: p.Group, state: p.State}
			all = append(all, g)
		}
		if !slices.Contains(g.ports, p.ID) {
			g.ports = append(g.ports, p.ID)
		}
		if p.Preferred {
			g.pref = groupPref
		}
		if p.Transits {
			g.tSup = groupTransits
		}
	}
	return all
}

// Describe describes the groups in the order of their ports.
func (all Groups) Describe() (out []Description) {
	for _, g := range all {
		out = append(out, Description{ID: g.ID, State: g.state, Ports: g.Ports()})
	}
	return out
}

// Group returns a group by its number, or nil.
func (all Groups) Group(id uint16) *Group {
	for _, g := range all {
		if g.ID == id {
			return g
		}
	}
	return nil
}

// Settable returns a group by its number, if it exists and can be put into the state s.
func (all Groups) Settable(id uint16, s State) (*Group, error) {
	g := all.Group(id)
	switch {
	case g == nil:
		return nil, fmt.Errorf("target port group %d does not exist", id)
	case !s.Valid():
		return nil, fmt.Errorf("target port group %d: %d is not an asymmetric access state", id, s)
	}
	return g, nil
}

// OfPort returns the group of a relative target port identifier; one that
// is in no group counts to the first.
func (all Groups) OfPort(port uint16) *Group {
	for _, g := range all {
		if slices.Contains(g.ports, port) {
			return g
		}
	}
	return all[0]
}

// Ports returns the relative target port identifiers.
func (all Groups) Ports() []uint16 {
	var ids []uint16
	for _, g := range all {
		ids = append(ids, g.ports...)
	}
	return ids
}

// Several reports whether there is more than one port, or may be: hosts look once whether a unit has target port groups, and
// the other nodes may link behind that.
func (all Groups) Several() bool { return len(all) > 1 || len(all[0].ports) > 1 || all[0].tSup != 0 }

// Parameter data of REPORT TARGET PORT GROUPS (SPC-5 6.37).
const (
	groupPref     = 0x80
	groupStates   = 0x0F // U, S, AN and AO are supported
	groupTransits = 0x80 // T_SUP
	groupExtended = 1    // PARAMETER DATA FORMAT
)

// Report makes the parameter data of REPORT TARGET PORT GROUPS in a PARAMETER DATA FORMAT; ok is
// false when there is no such format.
func (all Groups) Report(dataFormat byte) (b []byte, ok bool) {
	be := binary.BigEndian
	b = make([]byte, 4, 64)
	switch dataFormat {
	case 0:
	case groupExtended:
		b = append(b, groupExtended<<4, 0, 0, 0)
	default:
		return nil, false
	}
	for _, g := range all {
		b = append(b, g.pref|byte(g.state), groupStates|g.tSup)
		b = be.AppendUint16(b, g.ID)
		b = append(b, 0, byte(g.why), 0, byte(len(g.ports)))
		for _, p := range g.ports {
			b = be.AppendUint16(append(b, 0, 0), p)
		}
	}
	be.PutUint32(b, uint32(len(b)-4))
	return b, true
}

// Parameter list of SET TARGET PORT GROUPS (SPC-5 6.46).
const (
	setHead    = 4
	setDescLen = 4
	setLongest = setHead + setDescLen*256
)

// ListFits reports whether a parameter list of SET TARGET PORT GROUPS can have this length.
func ListFits(n uint32) bool { return n >= setHead && n <= setLongest && n%setDescLen == 0 }

// Wish is a state that a group shall be put into.
type Wish struct {
	Group *Group
	State State
}

// Parse reads a parameter list of SET TARGET PORT GROUPS and returns what it asks for, in its
// order; a list that is not right as a whole asks for nothing.
func (all Groups) Parse(b []byte) ([]Wish, sense.Data) {
	want := make([]State, len(all))
	for i, g := range all {
		want[i] = g.state
	}
	var out []Wish
	for at := setHead; at < len(b); at += setDescLen {
		s := State(b[at] & 0x0F)
		if !s.Valid() {
			return nil, sense.InList(sense.InvalidFieldInList, at)
		}
		g := all.Group(binary.BigEndian.Uint16(b[at+2:]))
		if g == nil {
			return nil, sense.InList(sense.InvalidFieldInList, at+2)
		}
		want[slices.Index(all, g)] = s
		out = append(out, Wish{g, s})
	}
	if !slices.ContainsFunc(want, State.accessible) {
		return nil, sense.InList(sense.InvalidFieldInList, setHead) // nobody could reach the units any more
	}
	return out, sense.Data{}
}
