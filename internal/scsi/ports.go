// Target port groups as front ends and hosts see and change them. Package alua has their states;
// check.go asks what a state keeps from a command.

package scsi

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// What of package alua front ends use.
type (
	Port        = alua.Port
	AccessState = alua.State
)

// Asymmetric access states that a group can be put into.
const (
	AccessOptimized    = alua.Optimized
	AccessNonOptimized = alua.NonOptimized
	AccessStandby      = alua.Standby
	AccessUnavailable  = alua.Unavailable
)

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
		out = append(out, PortGroup{ID: g.ID, State: g.State(), Ports: g.Ports()})
	}
	return out
}

// SetAccess puts a target port group into a state (an implicit change): hosts
// hear of it by a unit attention condition.
func (t *Target) SetAccess(group uint16, s AccessState) error {
	g := t.groups.Group(group)
	if g == nil {
		return fmt.Errorf("target port group %d does not exist", group)
	}
	if !s.Valid() {
		return fmt.Errorf("target port group %d: %d is not an asymmetric access state", group, s)
	}
	t.setAccess(g, s, alua.Implicitly, nil)
	return nil
}

// setAccess puts a group into a state. All nexuses but by, which may be nil, hear of it.
func (t *Target) setAccess(g *alua.Group, s AccessState, why alua.Cause, by *Nexus) {
	if !g.Set(s, why) {
		return
	}
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

// doReportGroups serves REPORT TARGET PORT GROUPS.
func doReportGroups(t *Task) {
	b, ok := t.state.n.t.groups.Report(t.CDB[1] >> 5)
	if !ok {
		t.fault(sense.InCDB(1, 7))
		return
	}
	t.reply(b, int(min(binary.BigEndian.Uint32(t.CDB[6:]), 1<<30)))
}

// doSetGroups serves SET TARGET PORT GROUPS (SPC-5 6.46). Nothing is changed
// unless the whole list is right.
func doSetGroups(t *Task) {
	n := binary.BigEndian.Uint32(t.CDB[6:])
	switch {
	case n == 0:
		t.good()
		return
	case !alua.ListFits(n):
		t.check(sense.ParameterListLength)
		return
	}
	b, ok := t.list(int(n))
	if !ok {
		return
	}
	tg := t.state.n.t
	wishes, s := tg.groups.Parse(b)
	if s.Code != sense.NoSense {
		t.fault(s)
		return
	}
	for _, w := range wishes {
		tg.setAccess(w.Group, w.State, alua.ByCommand, t.state.n)
	}
	t.good()
}
