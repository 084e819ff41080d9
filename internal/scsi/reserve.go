package scsi

// reservedFor tells whether a reservation of another I_T nexus keeps the command
// from x (SPC-2 5.5, SPC-5 5.14.1).
func (u *Unit) reservedFor(x *itl, t *Task, row *command) bool {
	if u.holder == nil && !u.pr.reserved {
		return false
	}
	if u.holder != nil && u.holder != x && row.flags&passLegacy == 0 {
		return !permissive(t)
	}
	if !u.pr.reserved || row.flags&passReserve != 0 {
		return false
	}
	return u.pr.excludes(x.n, row.flags&passRead != 0) && !permissive(t)
}

// permissive tells whether the command passes reservations because of what its
// CDB asks for: PREVENT=0, and START=1 without a power condition.
func permissive(t *Task) bool {
	switch t.CDB[0] {
	case 0x1E:
		return t.CDB[4]&3 == 0
	case 0x1B:
		return t.state.u.holder == nil && t.CDB[4]&(maskCondition|bitStart|bitLOEJ) == bitStart
	}
	return false
}

// doReserve serves RESERVE(6) and (10) of the whole unit. Persistent
// registrations exclude it (CRH=0, SPC-5 5.14.3).
func doReserve(t *Task) {
	st := &t.state
	if len(st.u.pr.regs) > 0 {
		t.end(StatusReservationConflict)
		return
	}
	if t.CDB[1]&0x1F != 0 { // third-party and extent reservations are obsolete
		t.fault(inCDB(1, 4))
		return
	}
	st.u.holder = st.itl
	st.u.settleChange(t, false, nil)
}

// excluded reports whether a reservation keeps the I_T_L nexus from writing, or reading.
func (x *itl) excluded(write bool) bool {
	u := x.u
	return u.holder != nil && u.holder != x || u.pr.excludes(x.n, !write)
}

// doRelease serves RELEASE(6) and (10): releasing what one does not hold is no
// error.
func doRelease(t *Task) {
	st := &t.state
	if len(st.u.pr.regs) > 0 {
		t.end(StatusReservationConflict)
		return
	}
	if t.CDB[1]&0x1F != 0 {
		t.fault(inCDB(1, 4))
		return
	}
	if st.u.holder == st.itl {
		st.u.holder = nil
	}
	t.good()
}
