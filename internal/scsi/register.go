// PERSISTENT RESERVE OUT, the service actions that register: REGISTER, REGISTER AND IGNORE
// EXISTING KEY, REGISTER AND MOVE. What one does to all its registrations is decided as a whole
// before any of it is done, so one that is refused has changed nothing.

package scsi

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// registering is what a REGISTER does to a unit's registrations, decided as a whole before
// any of it is done.
type registering struct {
	key     uint64          // 0 unregisters
	aptpl   bool            // from now on
	changes []*registration // become key
	adds    []*registration
}

// register serves REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-5 5.14.7).
func (u *Unit) register(t *Task, reg *registration, key, action uint64, ignore bool, b []byte) {
	var have uint64
	if reg != nil {
		have = reg.key
	}
	if !ignore && key != have {
		t.end(sense.StatusReservationConflict)
		return
	}
	if reg == nil && action == 0 {
		t.good() // there is nothing to unregister, and nothing else is touched
		return
	}
	d, s := u.decide(t.state.n, reg, action, ignore, b)
	if s.Code != sense.NoSense {
		t.fault(s)
		return
	}
	u.pr.generation++
	u.enroll(d)
	u.prDone(t)
}

// decide works out which registrations a REGISTER of the nexus n, whose key is right, concerns.
// With ALL_TG_PT=1 it is as if it came through each target port: those of the same initiator port
// that have another key stay as they are, unless the existing key is to be ignored. With
// SPEC_I_PT=1, which only a nexus that is not registered may set, further initiator ports are
// registered; those that are registered belong to others and stay as they are.
func (u *Unit) decide(n *Nexus, reg *registration, action uint64, ignore bool, b []byte) (d registering, s sense.Data) {
	p := &u.pr
	flags := b[prListFlags]
	d = registering{key: action, aptpl: flags&prAPTPL != 0}
	by := []uint16{n.targetPort}
	if flags&prAllTgPt != 0 {
		by = n.t.portIDs()
	}
	var more []string
	if flags&prSpecIPT != 0 {
		if reg != nil {
			return d, sense.InList(sense.InvalidFieldInList, prListFlags)
		}
		if more, s = transportIDs(b); s.Code != sense.NoSense {
			return d, s
		}
	}
	for _, id := range by {
		switch r := p.find(n.port, id); {
		case r == nil && action != 0:
			d.adds = append(d.adds, &registration{port: n.port, targetPort: id, key: action})
		case r != nil && (ignore || reg != nil && r.key == reg.key):
			d.changes = append(d.changes, r)
		}
		for _, port := range more {
			if port != n.port && p.find(port, id) == nil {
				d.adds = append(d.adds, &registration{port: port, targetPort: id, key: action})
			}
		}
	}
	if len(p.regs)+len(d.adds) > maxRegistrations {
		return d, sense.Data{Code: sense.InsufficientRegs}
	}
	return d, sense.Data{}
}

// enroll does what was decided.
func (u *Unit) enroll(d registering) {
	p := &u.pr
	p.aptpl = d.aptpl
	for _, r := range d.changes {
		if d.key == 0 {
			u.unregister(r)
		} else {
			r.key = d.key
		}
	}
	p.regs = append(p.regs, d.adds...)
}

// move serves REGISTER AND MOVE (SPC-5 5.14.8): another nexus becomes registered
// and holds the reservation.
func (u *Unit) move(t *Task, reg *registration, key, action uint64, b []byte) {
	be := binary.BigEndian
	p, n := &u.pr, t.state.n
	if reg == nil || reg.key != key || !p.reserved || p.holder != reg {
		t.end(sense.StatusReservationConflict)
		return
	}
	id := be.Uint16(b[prMovePort:])
	flags := b[prMoveFlags]
	switch {
	case action == 0:
		t.fault(sense.InList(sense.InvalidFieldInList, 8))
		return
	case flags&prAPTPL != 0 && u.opt.Save == nil:
		t.fault(sense.InList(sense.InvalidFieldInList, prMoveFlags))
		return
	case !slices.Contains(n.t.portIDs(), id):
		t.fault(sense.InList(sense.InvalidFieldInList, prMovePort))
		return
	case uint64(be.Uint32(b[prMoveIDLen:])) != uint64(len(b)-prListLen):
		t.check(sense.ParameterListLength)
		return
	}
	port, size, ok := names.ParseTransportID(b[prListLen:])
	if !ok || size != len(b)-prListLen || port == n.port && id == n.targetPort {
		t.fault(sense.InList(sense.InvalidFieldInList, prListLen))
		return
	}
	to := p.find(port, id)
	if to == nil {
		if len(p.regs) >= maxRegistrations {
			t.check(sense.InsufficientRegs)
			return
		}
		to = &registration{port: port, targetPort: id}
		p.regs = append(p.regs, to)
	}
	to.key = action
	p.holder = to
	if flags&prUnreg != 0 {
		u.unregister(reg)
	}
	p.aptpl = flags&prAPTPL != 0
	p.generation++
	u.prDone(t)
}

// transportIDs reads the additional data of a REGISTER with SPEC_I_PT=1.
func transportIDs(b []byte) ([]string, sense.Data) {
	const lenAt, first = prListLen, prListLen + 4
	if len(b) < first || uint64(binary.BigEndian.Uint32(b[lenAt:])) != uint64(len(b)-first) {
		return nil, sense.Data{Code: sense.ParameterListLength}
	}
	var ports []string
	for at := first; at < len(b); {
		port, size, ok := names.ParseTransportID(b[at:])
		if !ok {
			return nil, sense.InList(sense.InvalidFieldInList, at)
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		at += size
	}
	return ports, sense.Data{}
}
