// The life of an I_T nexus: login, what its LUN map lets it see, and its loss. A unit that leaves
// the map loses with the I_T_L nexus all that it kept for it (detach); persistent reservations
// are by the names of ports and stay. An initiator is a host by its name alone: its sessions and
// ports share one number and one set of limits.

package server

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// OpenNexus makes an I_T nexus. initiator is the initiator's name, port the name
// of its port (for iSCSI name + ",i,0x" + ISID), targetPort the relative target
// port identifier. Front ends close the old nexus of the same port first.
func (t *Target) OpenNexus(initiator, port string, targetPort uint16) *Nexus {
	port, _ = names.CanonicalPort(port)
	n := &Nexus{t: t, initiator: initiator, port: port, targetPort: targetPort, group: t.groups.OfPort(targetPort), host: t.initiators.Named(initiator),
		portNumber: t.ports.Number(port)}
	t.nexuses = append(t.nexuses, n)
	n.remap(nil)
	absence, left := t.ports.Left(port)
	for _, x := range n.luns {
		if x != nil {
			x.ua = sense.AtLogin(absence.Missed(x.lun, x.u.powerOn), left, t.opt.Survived)
		}
	}
	return n
}

// OpenFabricNexus makes a nexus of a front end whose target ports are not the target's own (LIO's
// fabrics): its units say nothing of ports in the terms of iSCSI. name is that of initiator and
// port.
func (t *Target) OpenFabricNexus(name string) *Nexus {
	n := t.OpenNexus(name, name, t.groups.Ports()[0])
	n.fabric = true
	return n
}

// remap makes n.luns what the LUN map says and raises REPORTED LUNS DATA HAS
// CHANGED when that is something else than before. It appends what has gone, whose tasks remain.
func (n *Nexus) remap(gone []*ITL) []*ITL {
	want := n.t.maps.Of(n.initiator)
	changed, since := false, uint64(0)
	for lun := range max(len(want), len(n.luns)) {
		var u *Unit
		if lun < len(want) {
			u = want[lun]
		}
		if lun >= len(n.luns) {
			n.luns = append(n.luns, nil)
		}
		old := n.luns[lun]
		if old != nil && old.u == u || old == nil && u == nil {
			continue
		}
		if n.countRemap != nil && !changed {
			since = n.countRemap()
		}
		changed = true
		if old != nil {
			old.detach()
			gone = append(gone, old)
		}
		n.luns[lun] = nil
		if u != nil {
			x := &ITL{n: n, u: u, lun: uint16(lun), since: since, ua: sense.UAPowerOn, stats: u.stats.Host(n.host.Name)}
			u.itls = append(u.itls, x)
			n.luns[lun] = x
		}
	}
	if changed {
		n.raise(sense.UALUNsChanged)
	}
	return gone
}

// raise raises ua for all units of the nexus.
func (n *Nexus) raise(ua sense.Attentions) {
	for _, x := range n.luns {
		if x != nil {
			x.ua |= ua
		}
	}
}

// Missed raises what may have been pending on a former nexus of the same port whose host has not logged in again.
func (n *Nexus) Missed() { n.raise(sense.Missable) }

// AccessChanged raises ASYMMETRIC ACCESS STATE CHANGED for all units: the nexus's port had another state before it was here.
func (n *Nexus) AccessChanged() { n.raise(sense.UAAccess) }

// detach ends what the unit keeps for an I_T_L nexus that is going away: what an
// I_T nexus loss ends (SAM-5 6.3.4).
func (x *ITL) detach() {
	u := x.u
	x.gone = true
	u.itls = slices.DeleteFunc(u.itls, func(y *ITL) bool { return y == x })
	u.t.detached = append(slices.DeleteFunc(u.t.detached, func(y *ITL) bool { return y.tasks == 0 }), x)
	if u.spc2Holder == x {
		u.spc2Holder = nil
	}
	u.t.copies.Drop(x)
}

// Close ends the nexus (I_T nexus loss): its tasks are aborted, those too whose LUN it sees no
// longer. done is called when the last of them has ended.
func (n *Nexus) Close(done func()) {
	t := n.t
	t.Enter()
	defer t.Leave()
	if n.closed {
		t.call(done)
		return
	}
	t.Flush()
	n.closed = true
	w := NewWaiter(done)
	for _, x := range n.luns {
		if x != nil {
			x.u.abortWhere(w, nil, func(task *Task) bool { return task.state.itl == x })
		}
	}
	n.abortLeft(w, func(*Task) bool { return true })
	t.StopCopies(w, func(x *ITL) bool { return x.n == n })
	var unheard []uint16
	for _, x := range n.luns {
		if x != nil {
			if x.ua&sense.UAPowerOn != 0 {
				unheard = append(unheard, x.lun)
			}
			x.detach()
		}
	}
	t.nexuses = slices.DeleteFunc(t.nexuses, func(m *Nexus) bool { return m == n })
	t.ports.Leave(n.port, unheard)
	w.Less(t)
}

// Establish raises ua on every I_T nexus of the unit but one (nil spares none).
func (u *Unit) Establish(ua sense.Attentions, except *ITL) {
	for _, x := range u.itls {
		if x != except {
			x.ua |= ua
		}
	}
}

// EstablishFor raises ua on the I_T_L nexuses of an I_T nexus.
func (u *Unit) EstablishFor(n reservation.Nexus, ua sense.Attentions) {
	for _, x := range u.itls {
		if x.n.Registrant() == n {
			x.ua |= ua
		}
	}
}
