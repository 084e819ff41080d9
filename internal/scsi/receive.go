// Stage 1 of a command, receive: a task gets its number, its I_T_L nexus and its place in the
// unit's task set. What names no unit, and what finds the set full, is answered here. The stages
// after this one: enable.go, check.go, a handler, device.go, complete.go.

package scsi

import "encoding/binary"

// Submit starts tasks, in order.
func (n *Nexus) Submit(tasks []*Task) {
	t := n.t
	t.enter()
	now := t.exec.Now()
	for _, task := range tasks {
		n.arrive(task, now)
	}
	t.leave()
}

func (n *Nexus) arrive(t *Task, now int64) {
	st := &t.state
	if st.phase != idle {
		panic("scsi: internal error: task submitted twice")
	}
	t.Status, t.Sense, t.DataIn, t.InTotal, t.OutTotal, t.Aborted = StatusGood, nil, nil, 0, 0, false
	n.t.arrivals++
	st.n, st.start, st.row, st.arrived = n, now, nil, n.t.arrivals
	st.aborted, st.told, st.blocks = false, false, false
	st.itl = n.lookup(t.LUN)
	if st.itl == nil || n.closed {
		st.itl, st.u = nil, nil
		st.phase = enabled
		n.withoutUnit(t)
		return
	}
	u := st.itl.u
	st.u = u
	if u.size >= u.limit {
		st.row = lookup(t.CDB)
		st.phase = enabled
		t.end(StatusTaskSetFull)
		return
	}
	u.push(t)
	switch t.Attr {
	case AttrOrdered:
		st.blocks = true
		u.blockers++
	case AttrHeadOfQueue:
		st.blocks = true
		u.blockers++
		u.heads++
	case AttrACA:
		// NACA is refused, so no ACA condition exists that would admit it.
		st.phase = enabled
		t.check(invalidFieldInCDB)
		return
	default:
		if u.blockers == 0 {
			st.phase = enabled
			t.begin()
			return
		}
	}
	st.phase = dormant
	if t.Attr == AttrHeadOfQueue {
		st.phase = enabled
		t.begin()
		return
	}
	u.schedule()
}

// withoutUnit serves commands to a LUN without a unit (SPC-5 4.3.2, 6.34).
func (n *Nexus) withoutUnit(t *Task) {
	t.state.row = lookup(t.CDB)
	var op byte = 0xFF
	if len(t.CDB) >= 6 {
		op = t.CDB[0]
	}
	switch {
	case op == 0x12 && t.CDB[1]&1 == 0:
		var b [inquiryLen]byte
		n.t.describe(b[:])
		b[0] = inquiryNoUnit
		t.reply(b[:], int(binary.BigEndian.Uint16(t.CDB[3:])))
	case op == 0x03:
		s := sense{code: lunNotSupported}
		var b [64]byte
		t.reply(s.encode(b[:], t.CDB[1]&1 != 0), int(t.CDB[4]))
	case op == 0xA0 && len(t.CDB) >= 12 && t.LUN == 0:
		doReportLUNs(t)
	default:
		t.check(lunNotSupported)
	}
}
