// Target port groups as front ends and hosts see and change them. Package alua has their states;
// check.go asks what a state keeps from a command.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Groups describes the target port groups in the order of the ports. The caller holds
// the executor.
func (t *Target) Groups() []alua.Description { return t.groups.Describe() }

// AddPorts adds target ports, those of another node, that are not there yet. Hosts hear of them when their state changes.
// The caller holds the executor.
func (t *Target) AddPorts(ports []alua.Port) { t.groups = t.groups.With(ports) }

// SetAccess puts a target port group into a state (an implicit change): hosts
// hear of it by a unit attention condition.
func (t *Target) SetAccess(group uint16, s alua.State) error {
	g, err := t.groups.Settable(group, s)
	if err == nil {
		t.ChangeAccess(g, s, alua.Implicitly, nil)
	}
	return err
}

// ChangeAccess puts a group into a state. All nexuses but by, which may be nil, hear of it.
func (t *Target) ChangeAccess(g *alua.Group, s alua.State, why alua.Cause, by *Nexus) {
	if !g.Set(s, why) {
		return
	}
	for _, n := range t.nexuses {
		if n != by {
			n.raise(sense.UAAccess)
		}
	}
}
