// Handlers of PERSISTENT RESERVE OUT and IN (SPC-5 5.14). They read parameter lists and check what
// these can be wrong in; package reservation decides, and what it returns is carried out here.

package scsi

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Service actions of PERSISTENT RESERVE OUT.
const (
	prRegister       = 0
	prReserve        = 1
	prRelease        = 2
	prClear          = 3
	prPreempt        = 4
	prPreemptAbort   = 5
	prRegisterIgnore = 6
	prMove           = 7
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

// doPROut serves PERSISTENT RESERVE OUT.
func doPROut(t *Task) {
	st := &t.state
	u := st.u
	if u.spc2Holder != nil {
		t.end(sense.StatusReservationConflict)
		return
	}
	sa := t.CDB[1] & 0x1F
	n := binary.BigEndian.Uint32(t.CDB[5:])
	if n < prListLen || n > prLongest {
		t.check(sense.ParameterListLength)
		return
	}
	b, ok := t.list(int(n))
	if !ok {
		return
	}
	key, action := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	reg := u.pr.Of(st.n.it())
	if sa == prMove {
		t.registerAndMove(reg, key, action, b)
		return
	}
	flags := b[prListFlags]
	switch {
	case flags&prSpecIPT != 0 && sa != prRegister,
		flags&prAPTPL != 0 && u.opt.Save == nil && (sa == prRegister || sa == prRegisterIgnore):
		t.fault(sense.InList(sense.InvalidFieldInList, prListFlags))
		return
	case flags&prSpecIPT == 0 && n != prListLen:
		t.check(sense.ParameterListLength)
		return
	}
	if sa == prRegister || sa == prRegisterIgnore {
		t.register(reg, key, action, sa == prRegisterIgnore, b)
		return
	}
	if reg == nil || reg.Key != key {
		t.end(sense.StatusReservationConflict)
		return
	}
	kind := reservation.Type(t.CDB[2] & 0x0F)
	// REGISTER and CLEAR ignore SCOPE and TYPE, and so does a PREEMPT that takes no reservation
	// (SPC-4 5.12.11.4.4).
	preempts := sa == prPreempt || sa == prPreemptAbort
	if sa != prClear && (!preempts || u.pr.Falls(action)) && (t.CDB[2]>>4 != 0 || !kind.Valid()) { // LU_SCOPE only
		t.fault(sense.InCDB(2, 7))
		return
	}
	switch sa {
	case prReserve:
		if !u.pr.Reserve(reg, kind) {
			t.end(sense.StatusReservationConflict)
			return
		}
		t.settleChange(true, nil)
	case prRelease:
		t.releasePersistent(reg, kind)
	case prClear:
		t.changed(u.pr.Clear(reg), false)
	default:
		t.preempt(reg, action, kind, sa == prPreemptAbort)
	}
}

// releasePersistent serves RELEASE. Who holds nothing has nothing to release.
func (t *Task) releasePersistent(reg *reservation.Registration, kind reservation.Type) {
	switch pr := &t.state.u.pr; {
	case !pr.Holds(reg):
		t.good()
	case pr.Type() != kind:
		t.check(sense.InvalidRelease)
	default:
		t.changed(pr.Release(reg), false)
	}
}

// preempt serves PREEMPT and PREEMPT AND ABORT (SPC-5 5.14.11.4, 5.14.11.5).
func (t *Task) preempt(reg *reservation.Registration, victim uint64, kind reservation.Type, abort bool) {
	pr := &t.state.u.pr
	if victim == 0 && !pr.AllRegistrants() {
		t.fault(sense.InList(sense.InvalidFieldInList, 8))
		return
	}
	c, ok := pr.Preempt(reg, victim, kind)
	if !ok {
		t.end(sense.StatusReservationConflict)
		return
	}
	t.changed(c, abort)
}

// register serves REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-5 5.14.7). Only a nexus that
// is not registered may register other ports.
func (t *Task) register(reg *reservation.Registration, key, action uint64, ignore bool, b []byte) {
	n := t.state.n
	var have uint64
	if reg != nil {
		have = reg.Key
	}
	if !ignore && key != have {
		t.end(sense.StatusReservationConflict)
		return
	}
	if reg == nil && action == 0 {
		t.good() // there is nothing to unregister, and nothing else is touched
		return
	}
	flags := b[prListFlags]
	q := reservation.Registering{By: n.it(), Ports: []uint16{n.targetPort}, Key: action, Ignore: ignore, APTPL: flags&prAPTPL != 0}
	if flags&prAllTgPt != 0 {
		q.Ports = n.t.groups.Ports()
	}
	if flags&prSpecIPT != 0 {
		if reg != nil {
			t.fault(sense.InList(sense.InvalidFieldInList, prListFlags))
			return
		}
		others, s := transportIDs(b)
		if s.Code != sense.NoSense {
			t.fault(s)
			return
		}
		q.Others = others
	}
	c, ok := t.state.u.pr.Register(q)
	if !ok {
		t.check(sense.InsufficientRegs)
		return
	}
	t.changed(c, false)
}

// registerAndMove serves REGISTER AND MOVE (SPC-5 5.14.8): another nexus becomes registered and
// holds the reservation.
func (t *Task) registerAndMove(reg *reservation.Registration, key, action uint64, b []byte) {
	be := binary.BigEndian
	u, n := t.state.u, t.state.n
	if reg == nil || reg.Key != key || u.pr.Holder() != reg {
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
	case !slices.Contains(n.t.groups.Ports(), id):
		t.fault(sense.InList(sense.InvalidFieldInList, prMovePort))
		return
	case uint64(be.Uint32(b[prMoveIDLen:])) != uint64(len(b)-prListLen):
		t.check(sense.ParameterListLength)
		return
	}
	port, size, ok := names.ParseTransportID(b[prListLen:])
	to := reservation.Nexus{Port: port, TargetPort: id}
	if !ok || size != len(b)-prListLen || to == n.it() {
		t.fault(sense.InList(sense.InvalidFieldInList, prListLen))
		return
	}
	c, ok := u.pr.Move(reg, to, action, flags&prUnreg != 0, flags&prAPTPL != 0)
	if !ok {
		t.check(sense.InsufficientRegs)
		return
	}
	t.changed(c, false)
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
func (t *Task) changed(c reservation.Change, abort bool) {
	u := t.state.u
	for _, notice := range c.Notices {
		u.establishFor(notice.To, notice.UA)
	}
	if !abort {
		c.Lost = nil
	}
	t.settleChange(true, c.Lost)
}

// prHead begins the parameter data of PERSISTENT RESERVE IN.
func (u *Unit) prHead() []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 0, 256), u.pr.Generation())
}

// prReply ends the command with parameter data that begins with the generation
// and a length at offset 4.
func (t *Task) prReply(b []byte) {
	if t.state.u.spc2Holder != nil {
		t.end(sense.StatusReservationConflict)
		return
	}
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	t.reply(b, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

func doReadKeys(t *Task) {
	u := t.state.u
	b := append(u.prHead(), 0, 0, 0, 0)
	for _, r := range u.pr.Registrations() {
		b = binary.BigEndian.AppendUint64(b, r.Key)
	}
	t.prReply(b)
}

func doReadReservation(t *Task) {
	u := t.state.u
	b := append(u.prHead(), 0, 0, 0, 0)
	if u.pr.Reserved() {
		var key uint64 // 0 with the All Registrants types
		if h := u.pr.Holder(); h != nil {
			key = h.Key
		}
		b = binary.BigEndian.AppendUint64(b, key)
		b = append(b, 0, 0, 0, 0, 0, byte(u.pr.Type()), 0, 0)
	}
	t.prReply(b)
}

// doReportCapabilities serves REPORT CAPABILITIES (SPC-5 6.16.4).
func doReportCapabilities(t *Task) {
	if t.state.u.spc2Holder != nil {
		t.end(sense.StatusReservationConflict)
		return
	}
	const sipC, atpC, ptplC, tmv, ptplA, typesLow, typesHigh = 0x08, 0x04, 0x01, 0x80, 0x01, 0xEA, 0x01
	can, now := byte(sipC|atpC), byte(tmv)
	if t.state.u.opt.Save != nil {
		can |= ptplC
	}
	if t.state.u.pr.Persists() {
		now |= ptplA
	}
	t.reply([]byte{0, 8, can, now, typesLow, typesHigh, 0, 0}, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

func doReadFullStatus(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	b := append(u.prHead(), 0, 0, 0, 0)
	for _, r := range u.pr.Registrations() {
		b = append(be.AppendUint64(b, r.Key), 0, 0, 0, 0)
		if u.pr.Holds(r) {
			b = append(b, 1, byte(u.pr.Type()))
		} else {
			b = append(b, 0, 0)
		}
		b = be.AppendUint16(append(b, 0, 0, 0, 0), r.TargetPort)
		id := names.TransportID(r.Port)
		b = be.AppendUint32(b, uint32(len(id)))
		b = append(b, id...)
	}
	t.prReply(b)
}
