// Target port groups and their asymmetric access states (SPC-5 5.17). At least one group stays
// accessible when a command changes states. check.go asks what a state keeps from a command.

package scsi

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
}

// AccessState is an asymmetric access state; the numbers are those of SPC-5 table 178.
type AccessState byte

// Asymmetric access states that a group can be put into.
const (
	AccessOptimized    AccessState = 0
	AccessNonOptimized AccessState = 1
	AccessStandby      AccessState = 2
	AccessUnavailable  AccessState = 3
	numAccessStates                = 4
)

// portGroup is a target port group.
type portGroup struct {
	id    uint16
	state AccessState
	why   byte // STATUS CODE
	pref  byte // PREF, as it stands beside the state
	ports []uint16
}

// Values of STATUS CODE: what changed the state.
const (
	changedByCommand  = 1
	changedImplicitly = 2
)

func (t *Target) makeGroups(ports []Port) {
	if len(ports) == 0 {
		ports = []Port{{ID: 1, Group: 1}}
	}
	for _, p := range ports {
		g := t.groupOf(p.Group)
		if g == nil {
			g = &portGroup{id: p.Group}
			t.groups = append(t.groups, g)
		}
		g.ports = append(g.ports, p.ID)
		if p.Preferred {
			g.pref = groupPref
		}
	}
}

func (t *Target) groupOf(id uint16) *portGroup {
	for _, g := range t.groups {
		if g.id == id {
			return g
		}
	}
	return nil
}

// groupOfPort returns the group of a relative target port identifier; one that
// is in no group counts to the first.
func (t *Target) groupOfPort(port uint16) *portGroup {
	for _, g := range t.groups {
		for _, p := range g.ports {
			if p == port {
				return g
			}
		}
	}
	return t.groups[0]
}

// portIDs returns the relative target port identifiers.
func (t *Target) portIDs() []uint16 {
	var ids []uint16
	for _, g := range t.groups {
		ids = append(ids, g.ports...)
	}
	return ids
}

// PortGroup describes a target port group.
type PortGroup struct {
	ID    uint16
	State AccessState
	Ports []uint16 // relative target port identifiers
}

// Groups describes the target port groups in the order of the ports. The caller holds
// the executor.
func (t *Target) Groups() []PortGroup {
	var out []PortGroup
	for _, g := range t.groups {
		out = append(out, PortGroup{ID: g.id, State: g.state, Ports: slices.Clone(g.ports)})
	}
	return out
}

// SetAccess puts a target port group into a state (an implicit change): hosts
// hear of it by a unit attention condition.
func (t *Target) SetAccess(group uint16, s AccessState) error {
	g := t.groupOf(group)
	if g == nil {
		return fmt.Errorf("target port group %d does not exist", group)
	}
	if s >= numAccessStates {
		return fmt.Errorf("target port group %d: %d is not an asymmetric access state", group, s)
	}
	t.change(g, s, changedImplicitly, nil)
	return nil
}

func (t *Target) change(g *portGroup, s AccessState, why byte, by *Nexus) {
	if g.state == s {
		return
	}
	g.state, g.why = s, why
	for _, n := range t.nexuses {
		if n == by {
			continue
		}
		for _, x := range n.luns {
			if x != nil {
				x.ua |= sense.UAAccess
			}
		}
	}
}

// Parameter data of REPORT TARGET PORT GROUPS (SPC-5 6.37).
const (
	groupPref     = 0x80
	groupStates   = 0x0F // U, S, AN and AO are supported
	groupExtended = 1    // PARAMETER DATA FORMAT
	// TPGS of standard INQUIRY data: whether states change by themselves, or by command.
	inquiryImplicit = 0x10
	inquiryExplicit = 0x20
)

// doReportGroups serves REPORT TARGET PORT GROUPS.
func doReportGroups(t *Task) {
	be := binary.BigEndian
	b := make([]byte, 4, 64)
	switch t.CDB[1] >> 5 {
	case 0:
	case groupExtended:
		b = append(b, groupExtended<<4, 0, 0, 0)
	default:
		t.fault(sense.InCDB(1, 7))
		return
	}
	for _, g := range t.state.n.t.groups {
		b = append(b, g.pref|byte(g.state), groupStates)
		b = be.AppendUint16(b, g.id)
		b = append(b, 0, g.why, 0, byte(len(g.ports)))
		for _, p := range g.ports {
			b = be.AppendUint16(append(b, 0, 0), p)
		}
	}
	be.PutUint32(b, uint32(len(b)-4))
	t.reply(b, int(min(be.Uint32(t.CDB[6:]), 1<<30)))
}

// doSetGroups serves SET TARGET PORT GROUPS (SPC-5 6.46). Nothing is changed
// unless the whole list is right.
func doSetGroups(t *Task) {
	const head, descLen, longest = 4, 4, 4 + 4*256
	be := binary.BigEndian
	n := be.Uint32(t.CDB[6:])
	switch {
	case n == 0:
		t.good()
		return
	case n < head || n > longest || n%descLen != 0:
		t.check(sense.ParameterListLength)
		return
	}
	b, ok := t.list(int(n))
	if !ok {
		return
	}
	tg := t.state.n.t
	want := make([]AccessState, len(tg.groups))
	for i, g := range tg.groups {
		want[i] = g.state
	}
	for at := head; at < len(b); at += descLen {
		if AccessState(b[at]&0x0F) >= numAccessStates {
			t.fault(sense.InList(sense.InvalidFieldInList, at))
			return
		}
		i := slices.Index(tg.groups, tg.groupOf(be.Uint16(b[at+2:])))
		if i < 0 {
			t.fault(sense.InList(sense.InvalidFieldInList, at+2))
			return
		}
		want[i] = AccessState(b[at] & 0x0F)
	}
	if !slices.ContainsFunc(want, func(s AccessState) bool { return s <= AccessNonOptimized }) {
		t.fault(sense.InList(sense.InvalidFieldInList, head)) // nobody could reach the units any more
		return
	}
	for at := head; at < len(b); at += descLen {
		tg.change(tg.groupOf(be.Uint16(b[at+2:])), AccessState(b[at]&0x0F), changedByCommand, t.state.n)
	}
	t.good()
}
