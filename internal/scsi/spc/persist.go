// Handlers of PERSISTENT RESERVE OUT and IN (SPC-5 5.14). They read parameter lists and check what
// these can be wrong in; package reservation decides, and what it returns is carried out here.

package spc

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Service actions of PERSISTENT RESERVE OUT.
const (
	PRRegister       = 0
	PRReserve        = 1
	PRRelease        = 2
	PRClear          = 3
	PRPreempt        = 4
	PRPreemptAbort   = 5
	PRRegisterIgnore = 6
	PRMove           = 7
)

// Parameter list of PERSISTENT RESERVE OUT (SPC-5 6.17.3).
const (
	prListLen   = 24
	prListFlags = 20
	prSpecIPT   = 0x08
	prAllTgPt   = 0x04
	prAPTPL     = 0x01
	// of REGISTER AND MOVE (SPC-5 6.17.4)
	prMoveFlags = 17
	prUnreg     = 0x02
	prMovePort  = 18
	prMoveIDLen = 20
	// prLongest bounds a list with TransportIDs.
	prLongest = 8192
)

// PersistentReserveOut serves PERSISTENT RESERVE OUT.
func PersistentReserveOut(t *server.Task) {
	u := t.Unit()
	if u.SPC2Holder() != nil {
		t.End(sam.StatusReservationConflict)
		return
	}
	sa := t.CDB[1] & 0x1F
	n := binary.BigEndian.Uint32(t.CDB[5:])
	if n < prListLen || n > prLongest {
		t.Check(sense.ParameterListLength)
		return
	}
	b, ok := paramlist.Of(t, int(n))
	if !ok {
		return
	}
	key, action := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	reg := u.Reservation().Of(t.Nexus().Registrant())
	if sa == PRMove {
		registerAndMove(t, reg, key, action, b)
		return
	}
	flags := b[prListFlags]
	switch {
	case flags&prSpecIPT != 0 && sa != PRRegister,
		flags&prAPTPL != 0 && !u.CanSave() && (sa == PRRegister || sa == PRRegisterIgnore):
		t.Fault(sense.InList(sense.InvalidFieldInList, prListFlags))
		return
	case flags&prSpecIPT == 0 && n != prListLen:
		t.Check(sense.ParameterListLength)
		return
	}
	if sa == PRRegister || sa == PRRegisterIgnore {
		register(t, reg, key, action, sa == PRRegisterIgnore, b)
		return
	}
	if reg == nil || reg.Key != key {
		t.End(sam.StatusReservationConflict)
		return
	}
	kind := reservation.Type(t.CDB[2] & 0x0F)
	// REGISTER and CLEAR ignore SCOPE and TYPE, and so does a PREEMPT that takes no reservation
	// (SPC-4 5.12.11.4.4).
	preempts := sa == PRPreempt || sa == PRPreemptAbort
	if sa != PRClear && (!preempts || u.Reservation().Falls(action)) && (t.CDB[2]>>4 != 0 || !kind.Valid()) { // LU_SCOPE only
		t.Fault(sense.InCDB(2, 7))
		return
	}
	switch sa {
	case PRReserve:
		if !u.Reservation().Reserve(reg, kind) {
			t.End(sam.StatusReservationConflict)
			return
		}
		settleChange(t, true, nil)
	case PRRelease:
		releasePersistent(t, reg, kind)
	case PRClear:
		changed(t, u.Reservation().Clear(reg), false)
	default:
		preempt(t, reg, action, kind, sa == PRPreemptAbort)
	}
}

// releasePersistent serves RELEASE. Who holds nothing has nothing to release.
func releasePersistent(t *server.Task, reg *reservation.Registration, kind reservation.Type) {
	switch pr := t.Unit().Reservation(); {
	case !pr.Holds(reg):
		t.Good()
	case pr.Type() != kind:
		t.Check(sense.InvalidRelease)
	default:
		changed(t, pr.Release(reg), false)
	}
}

// preempt serves PREEMPT and PREEMPT AND ABORT (SPC-5 5.14.11.4, 5.14.11.5).
func preempt(t *server.Task, reg *reservation.Registration, victim uint64, kind reservation.Type, abort bool) {
	pr := t.Unit().Reservation()
	if victim == 0 && !pr.AllRegistrants() {
		t.Fault(sense.InList(sense.InvalidFieldInList, 8))
		return
	}
	c, ok := pr.Preempt(reg, victim, kind)
	if !ok {
		t.End(sam.StatusReservationConflict)
		return
	}
	changed(t, c, abort)
}

// register serves REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-5 5.14.7). Only a nexus that
// is not registered may register other ports.
func register(t *server.Task, reg *reservation.Registration, key, action uint64, ignore bool, b []byte) {
	n := t.Nexus()
	var have uint64
	if reg != nil {
		have = reg.Key
	}
	if !ignore && key != have {
		t.End(sam.StatusReservationConflict)
		return
	}
	if reg == nil && action == 0 {
		t.Good() // there is nothing to unregister, and nothing else is touched
		return
	}
	flags := b[prListFlags]
	q := reservation.Registering{By: n.Registrant(), Ports: []uint16{n.TargetPort()}, Key: action, Ignore: ignore, APTPL: flags&prAPTPL != 0}
	if flags&prAllTgPt != 0 {
		q.Ports = n.Target().ALUA().Ports()
	}
	if flags&prSpecIPT != 0 {
		if reg != nil {
			t.Fault(sense.InList(sense.InvalidFieldInList, prListFlags))
			return
		}
		others, s := transportIDs(b)
		if s.Code != sense.NoSense {
			t.Fault(s)
			return
		}
		q.Others = others
	}
	c, ok := t.Unit().Reservation().Register(q)
	if !ok {
		t.Check(sense.InsufficientRegs)
		return
	}
	changed(t, c, false)
}

// registerAndMove serves REGISTER AND MOVE (SPC-5 5.14.8): another nexus becomes registered and
// holds the reservation.
func registerAndMove(t *server.Task, reg *reservation.Registration, key, action uint64, b []byte) {
	be := binary.BigEndian
	u, n := t.Unit(), t.Nexus()
	if reg == nil || reg.Key != key || u.Reservation().Holder() != reg {
		t.End(sam.StatusReservationConflict)
		return
	}
	id := be.Uint16(b[prMovePort:])
	flags := b[prMoveFlags]
	switch {
	case action == 0:
		t.Fault(sense.InList(sense.InvalidFieldInList, 8))
		return
	case flags&prAPTPL != 0 && !u.CanSave():
		t.Fault(sense.InList(sense.InvalidFieldInList, prMoveFlags))
		return
	case !slices.Contains(n.Target().ALUA().Ports(), id):
		t.Fault(sense.InList(sense.InvalidFieldInList, prMovePort))
		return
	case uint64(be.Uint32(b[prMoveIDLen:])) != uint64(len(b)-prListLen):
		t.Check(sense.ParameterListLength)
		return
	}
	port, size, ok := names.ParseTransportID(b[prListLen:])
	to := reservation.Nexus{Port: port, TargetPort: id}
	if !ok || size != len(b)-prListLen || to == n.Registrant() {
		t.Fault(sense.InList(sense.InvalidFieldInList, prListLen))
		return
	}
	c, ok := u.Reservation().Move(reg, to, action, flags&prUnreg != 0, flags&prAPTPL != 0)
	if !ok {
		t.Check(sense.InsufficientRegs)
		return
	}
	changed(t, c, false)
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

// changed ends a command that has changed the persistent reservation: who is concerned is notified,
// and, with abort, what those who lost their registration have under way is aborted.
func changed(t *server.Task, c reservation.Change, abort bool) {
	u := t.Unit()
	for _, notice := range c.Notices {
		u.EstablishFor(notice.To, notice.UA)
	}
	if !abort {
		c.Lost = nil
	}
	settleChange(t, true, c.Lost)
}

// prHead begins the parameter data of PERSISTENT RESERVE IN.
func prHead(u *server.Unit) []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 0, 256), u.Reservation().Generation())
}

// prReply ends the command with parameter data that begins with the generation
// and a length at offset 4.
func prReply(t *server.Task, b []byte) {
	if t.Unit().SPC2Holder() != nil {
		t.End(sam.StatusReservationConflict)
		return
	}
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	t.Reply(b, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

// ReadKeys serves READ KEYS (SPC-5 6.16.2).
func ReadKeys(t *server.Task) {
	u := t.Unit()
	b := append(prHead(u), 0, 0, 0, 0)
	for _, r := range u.Reservation().Registrations() {
		b = binary.BigEndian.AppendUint64(b, r.Key)
	}
	prReply(t, b)
}

// ReadReservation serves READ RESERVATION (SPC-5 6.16.3).
func ReadReservation(t *server.Task) {
	u := t.Unit()
	b := append(prHead(u), 0, 0, 0, 0)
	if u.Reservation().Reserved() {
		var key uint64 // 0 with the All Registrants types
		if h := u.Reservation().Holder(); h != nil {
			key = h.Key
		}
		b = binary.BigEndian.AppendUint64(b, key)
		b = append(b, 0, 0, 0, 0, 0, byte(u.Reservation().Type()), 0, 0)
	}
	prReply(t, b)
}

// ReportCapabilities serves REPORT CAPABILITIES (SPC-5 6.16.4).
func ReportCapabilities(t *server.Task) {
	if t.Unit().SPC2Holder() != nil {
		t.End(sam.StatusReservationConflict)
		return
	}
	const sipC, atpC, ptplC, tmv, ptplA, typesLow, typesHigh = 0x08, 0x04, 0x01, 0x80, 0x01, 0xEA, 0x01
	can, now := byte(sipC|atpC), byte(tmv)
	if t.Unit().CanSave() {
		can |= ptplC
	}
	if t.Unit().Reservation().Persists() {
		now |= ptplA
	}
	t.Reply([]byte{0, 8, can, now, typesLow, typesHigh, 0, 0}, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

// ReadFullStatus serves READ FULL STATUS (SPC-5 6.16.5).
func ReadFullStatus(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	b := append(prHead(u), 0, 0, 0, 0)
	for _, r := range u.Reservation().Registrations() {
		b = append(be.AppendUint64(b, r.Key), 0, 0, 0, 0)
		if u.Reservation().Holds(r) {
			b = append(b, 1, byte(u.Reservation().Type()))
		} else {
			b = append(b, 0, 0)
		}
		b = be.AppendUint16(append(b, 0, 0, 0, 0), r.TargetPort)
		id := names.TransportID(r.Port)
		b = be.AppendUint32(b, uint32(len(id)))
		b = append(b, id...)
	}
	prReply(t, b)
}
