package scsi

import (
	"encoding/binary"
	"slices"
	"strings"
)

// register serves REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-5 5.14.7) for
// the nexus, with SPEC_I_PT=1 for further initiator ports, with ALL_TG_PT=1 by
// every target port.
func (u *Unit) register(t *Task, reg *registration, key, action uint64, ignore bool, b []byte) {
	p, n := &u.pr, t.state.n
	var have uint64
	if reg != nil {
		have = reg.key
	}
	if !ignore && key != have {
		t.end(StatusReservationConflict)
		return
	}
	flags := b[prListFlags]
	ports := []string{n.port}
	if flags&prSpecIPT != 0 {
		if reg != nil {
			t.fault(inList(invalidFieldInList, prListFlags))
			return
		}
		more, s := transportIDs(b)
		if s.code != noSense {
			t.fault(s)
			return
		}
		for _, port := range more {
			if port != n.port {
				ports = append(ports, port)
			}
		}
	}
	by := []uint16{n.targetPort}
	if flags&prAllTgPt != 0 {
		by = n.t.portIDs()
	}
	var old []*registration
	var fresh []*registration
	for _, port := range ports {
		for _, id := range by {
			r := p.find(port, id)
			if r == nil {
				fresh = append(fresh, &registration{port: port, targetPort: id, key: action})
			} else {
				old = append(old, r)
			}
		}
	}
	if action == 0 {
		fresh = nil
	}
	if len(p.regs)+len(fresh) > maxRegistrations {
		t.check(insufficientRegs)
		return
	}
	p.aptpl = flags&prAPTPL != 0
	for _, r := range old {
		if action == 0 {
			u.unregister(r)
		} else {
			r.key = action
		}
	}
	p.regs = append(p.regs, fresh...)
	if len(old)+len(fresh) > 0 {
		p.generation++
	}
	u.prDone(t)
}

// move serves REGISTER AND MOVE (SPC-5 5.14.8): another nexus becomes registered
// and holds the reservation.
func (u *Unit) move(t *Task, reg *registration, key, action uint64, b []byte) {
	be := binary.BigEndian
	p, n := &u.pr, t.state.n
	if reg == nil || reg.key != key || !p.reserved || p.holder != reg {
		t.end(StatusReservationConflict)
		return
	}
	id := be.Uint16(b[prMovePort:])
	flags := b[prMoveFlags]
	switch {
	case action == 0:
		t.fault(inList(invalidFieldInList, 8))
		return
	case flags&prAPTPL != 0 && u.opt.Save == nil:
		t.fault(inList(invalidFieldInList, prMoveFlags))
		return
	case !slices.Contains(n.t.portIDs(), id):
		t.fault(inList(invalidFieldInList, prMovePort))
		return
	case uint64(be.Uint32(b[prMoveIDLen:])) != uint64(len(b)-prListLen):
		t.check(parameterListLength)
		return
	}
	port, size, ok := parseTransportID(b[prListLen:])
	if !ok || size != len(b)-prListLen || port == n.port && id == n.targetPort {
		t.fault(inList(invalidFieldInList, prListLen))
		return
	}
	to := p.find(port, id)
	if to == nil {
		if len(p.regs) >= maxRegistrations {
			t.check(insufficientRegs)
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

// transportID is the iSCSI TransportID of an initiator port (SPC-5 7.6.4.6).
func transportID(port string) []byte {
	const minName = 20
	name := nameString(port)
	for len(name) < minName {
		name = append(name, 0, 0, 0, 0)
	}
	b := binary.BigEndian.AppendUint16([]byte{1<<6 | protocolISCSI, 0}, uint16(len(name)))
	return append(b, name...)
}

// parseTransportID reads an iSCSI TransportID (SPC-5 7.6.4.6) at the beginning of b
// and returns the name of the port, and how long it is. One that names a device
// and no port (format 00b) is not taken: registrations are of ports.
func parseTransportID(b []byte) (port string, size int, ok bool) {
	const portFormat = 1
	if len(b) < 4 || b[0]&0x0F != protocolISCSI || b[0]>>6 != portFormat {
		return "", 0, false
	}
	size = 4 + int(binary.BigEndian.Uint16(b[2:]))
	if size > len(b) || size%4 != 0 {
		return "", 0, false
	}
	name, _, _ := strings.Cut(string(b[4:size]), "\x00")
	if port, ok = canonicalPort(strings.ToLower(name)); !ok {
		return "", 0, false
	}
	return port, size, true
}

// transportIDs reads the additional data of a REGISTER with SPEC_I_PT=1.
func transportIDs(b []byte) ([]string, sense) {
	const lenAt, first = prListLen, prListLen + 4
	if len(b) < first || uint64(binary.BigEndian.Uint32(b[lenAt:])) != uint64(len(b)-first) {
		return nil, sense{code: parameterListLength}
	}
	var ports []string
	for at := first; at < len(b); {
		port, size, ok := parseTransportID(b[at:])
		if !ok {
			return nil, inList(invalidFieldInList, at)
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		at += size
	}
	return ports, sense{}
}
