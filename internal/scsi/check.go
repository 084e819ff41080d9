// Stage 3 of a command, check: what stands between an enabled task and its handler, in the order
// of SAM-5 5.3.3. Nothing before the handler has an effect but the unit attention that is reported.

package scsi

import "math/bits"

// run is the enabled state's beginning: the checks that SAM-5 5.3.3 orders, then
// the command itself.
func (t *Task) run() {
	st := &t.state
	u := st.u
	row := lookup(t.CDB)
	st.row = row
	if row == nil {
		// A pending unit attention condition comes before an invalid field.
		if st.itl.ua != 0 {
			t.check(st.itl.ua.take())
			return
		}
		t.badOpcode()
		return
	}
	if u.reservedFor(st.itl, t, row) {
		t.end(StatusReservationConflict)
		return
	}
	if st.itl.ua != 0 && row.flags&passUA == 0 {
		t.check(st.itl.ua.take())
		return
	}
	if c := st.n.inaccessible(row); c != noSense {
		t.check(c)
		return
	}
	if len(t.CDB) < len(row.usage) {
		t.fault(inCDB(0, 7))
		return
	}
	if row.op == opVariable && int(t.CDB[7]) != len(row.usage)-8 { // ADDITIONAL CDB LENGTH
		t.fault(inCDB(7, 7))
		return
	}
	if row.flags&strict != 0 {
		for i, used := range row.usage {
			if extra := t.CDB[i] &^ used; i > 0 && i != row.control() && extra != 0 {
				t.fault(inCDB(i, bits.Len8(extra)-1))
				return
			}
		}
	}
	if control := t.CDB[row.control()]; control&0x04 != 0 { // NACA: ACA is not supported
		t.fault(inCDB(row.control(), 2))
		return
	}
	if !row.offered(st.itl) {
		t.badOpcode()
		return
	}
	if row.flags&passBusy == 0 {
		if s, busy := u.eraseState(); busy && !u.mends(row) {
			t.fault(s)
			return
		}
	}
	if row.flags&needMedium != 0 {
		if c := u.medium.notReady(); c != noSense {
			t.check(c)
			return
		}
		if row.flags&writes != 0 && u.writeProtected() {
			t.check(writeProtected)
			return
		}
	}
	row.run(t)
}

// badOpcode ends the task with INVALID COMMAND OPERATION CODE, or with INVALID
// FIELD IN CDB where only the service action is unknown (SPC-5 4.3.3).
func (t *Task) badOpcode() {
	if row := t.state.row; len(t.CDB) > 1 && (row == nil || row.sa != none) && servedOps[t.CDB[0]].sas != nil {
		if t.CDB[0] == opVariable {
			t.fault(inCDB(8, 7))
			return
		}
		t.fault(inCDB(1, 4))
		return
	}
	t.fault(sense{code: invalidOpcode, sks: [3]byte{sksv | sksCDB, 0, 0}})
}
