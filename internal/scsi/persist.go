// Handlers of PERSISTENT RESERVE OUT and IN (SPC-5 5.14), but for the service actions that
// register, which are in register.go. Nothing is changed before everything is checked.

package scsi

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
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
	// maxRegistrations bounds what peers can make a unit keep.
	maxRegistrations = 1024
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
	reg := u.pr.of(st.n)
	if sa == prMove {
		u.move(t, reg, key, action, b)
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
		u.register(t, reg, key, action, sa == prRegisterIgnore, b)
		return
	}
	if reg == nil || reg.key != key {
		t.end(sense.StatusReservationConflict)
		return
	}
	kind := t.CDB[2] & 0x0F
	// REGISTER and CLEAR ignore SCOPE and TYPE, and so does a PREEMPT that takes no reservation
	// (SPC-4 5.12.11.4.4).
	victim := action
	preempts := sa == prPreempt || sa == prPreemptAbort
	if sa != prClear && (!preempts || u.pr.falls(victim)) && (t.CDB[2]>>4 != 0 || 1<<kind&prTypeMask == 0) { // LU_SCOPE only
		t.fault(sense.InCDB(2, 7))
		return
	}
	switch sa {
	case prReserve:
		u.reserve(t, reg, kind)
	case prRelease:
		u.release(t, reg, kind)
	case prClear:
		u.clear(t, reg)
	default:
		u.preempt(t, reg, victim, kind, sa == prPreemptAbort)
	}
}

func (u *Unit) reserve(t *Task, reg *registration, kind byte) {
	p := &u.pr
	if p.reserved && (!p.holds(reg) || p.kind != kind) {
		t.end(sense.StatusReservationConflict)
		return
	}
	p.take(reg, kind)
	u.prDone(t)
}

func (u *Unit) release(t *Task, reg *registration, kind byte) {
	p := &u.pr
	if !p.holds(reg) {
		t.good()
		return
	}
	if p.kind != kind {
		t.check(sense.InvalidRelease)
		return
	}
	p.reserved, p.holder = false, nil
	if registrants(kind) {
		for _, q := range p.regs {
			if q != reg {
				u.establishRegistered(q, sense.UAReservationsReleased)
			}
		}
	}
	u.prDone(t)
}

func (u *Unit) clear(t *Task, reg *registration) {
	p := &u.pr
	for _, q := range p.regs {
		if q != reg {
			u.establishRegistered(q, sense.UAReservationsPreempted)
		}
	}
	*p = persistent{generation: p.generation + 1, kept: p.kept}
	u.prDone(t)
}

// preempt serves PREEMPT and PREEMPT AND ABORT (SPC-5 5.14.11.4, 5.14.11.5).
func (u *Unit) preempt(t *Task, reg *registration, victim uint64, kind byte, abort bool) {
	p := &u.pr
	all := p.reserved && allRegistrants(p.kind)
	if victim == 0 && !all {
		t.fault(sense.InList(sense.InvalidFieldInList, 8))
		return
	}
	takes := p.falls(victim)
	var gone []*registration
	matched := takes
	for _, q := range p.regs {
		if q.key == victim || victim == 0 {
			matched = true
			if q != reg || !takes && victim != 0 {
				gone = append(gone, q)
			}
		}
	}
	if !matched {
		t.end(sense.StatusReservationConflict)
		return
	}
	was := p.kind
	for _, q := range gone {
		if !takes {
			u.unregister(q)
		} else {
			p.regs = slices.DeleteFunc(p.regs, func(r *registration) bool { return r == q })
		}
		if q != reg {
			u.establishRegistered(q, sense.UARegistrationsPreempted)
		}
	}
	if takes {
		p.take(reg, kind)
		if was != kind {
			for _, q := range p.regs {
				if q != reg {
					u.establishRegistered(q, sense.UAReservationsReleased)
				}
			}
		}
	}
	p.generation++
	if !abort {
		gone = nil
	}
	u.settleChange(t, true, gone)
}

// prHead begins the parameter data of PERSISTENT RESERVE IN.
func (u *Unit) prHead() []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 0, 256), u.pr.generation)
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
	for _, r := range u.pr.regs {
		b = binary.BigEndian.AppendUint64(b, r.key)
	}
	t.prReply(b)
}

func doReadReservation(t *Task) {
	u := t.state.u
	b := append(u.prHead(), 0, 0, 0, 0)
	if u.pr.reserved {
		var key uint64 // 0 with the All Registrants types
		if u.pr.holder != nil {
			key = u.pr.holder.key
		}
		b = binary.BigEndian.AppendUint64(b, key)
		b = append(b, 0, 0, 0, 0, 0, u.pr.kind, 0, 0)
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
	if t.state.u.pr.aptpl {
		now |= ptplA
	}
	t.reply([]byte{0, 8, can, now, typesLow, typesHigh, 0, 0}, int(binary.BigEndian.Uint16(t.CDB[7:])))
}

func doReadFullStatus(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	b := append(u.prHead(), 0, 0, 0, 0)
	for _, r := range u.pr.regs {
		b = append(be.AppendUint64(b, r.key), 0, 0, 0, 0)
		if u.pr.holds(r) {
			b = append(b, 1, u.pr.kind)
		} else {
			b = append(b, 0, 0)
		}
		b = be.AppendUint16(append(b, 0, 0, 0, 0), r.targetPort)
		id := names.TransportID(r.port)
		b = be.AppendUint32(b, uint32(len(id)))
		b = append(b, id...)
	}
	t.prReply(b)
}
