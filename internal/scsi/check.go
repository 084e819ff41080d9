// Stage 3 of a command, check: what stands between an enabled task and its handler, in the order
// of SAM-5 5.3.3. It has no effect but that a pending unit attention condition is reported, and
// so cleared. What a nexus or a unit refuses by its state is in access.go.

package scsi

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// run checks an enabled task and calls its handler. Each check that returns false has ended it.
func (t *Task) run() {
	st := &t.state
	row := st.n.t.commands.lookup(t.CDB)
	st.row = row
	if row == nil {
		// A pending unit attention condition comes before an invalid field.
		if st.itl.ua != 0 {
			t.check(st.itl.ua.Take())
			return
		}
		t.badOpcode()
		return
	}
	if t.mayAccess(row) && t.wellFormed(row) && t.mediumReady(row) {
		row.run(t)
	}
}

// mayAccess checks what keeps the I_T_L nexus from the unit: reservations of others, a unit
// attention condition that it has to be told first, the state of its port.
func (t *Task) mayAccess(row *command) bool {
	st := &t.state
	if st.u.reserved() && st.u.reservedFor(st.itl, t, row) {
		t.end(sense.StatusReservationConflict)
		return false
	}
	if st.itl.ua != 0 && row.flags&passUA == 0 {
		t.check(st.itl.ua.Take())
		return false
	}
	if c := st.n.inaccessible(row); c != sense.NoSense {
		t.check(c)
		return false
	}
	return true
}

// wellFormed checks what can be said of the CDB by its row alone. A handler may read as many bytes
// as the row has.
func (t *Task) wellFormed(row *command) bool {
	if len(t.CDB) < len(row.usage) {
		t.fault(sense.InCDB(0, 7))
		return false
	}
	if row.op == opVariable && int(t.CDB[7]) != len(row.usage)-8 { // ADDITIONAL CDB LENGTH
		t.fault(sense.InCDB(7, 7))
		return false
	}
	if row.flags&strict != 0 {
		for i, used := range row.usage {
			if extra := t.CDB[i] &^ used; i > 0 && i != row.control() && extra != 0 {
				t.fault(sense.InCDB(i, bits.Len8(extra)-1))
				return false
			}
		}
	}
	if control := t.CDB[row.control()]; control&0x04 != 0 { // NACA: ACA is not supported
		t.fault(sense.InCDB(row.control(), 2))
		return false
	}
	if row.flags&conditional != 0 && !row.offered(t.state.itl) {
		t.badOpcode()
		return false
	}
	return true
}

// mediumReady checks that the medium can be used the way the command does.
func (t *Task) mediumReady(row *command) bool {
	u := t.state.u
	if row.flags&passBusy == 0 && u.erased() && !u.mends(row) {
		t.fault(u.eraseSense())
		return false
	}
	if row.flags&needMedium == 0 {
		return true
	}
	if c := u.medium.notReady(); c != sense.NoSense {
		t.check(c)
		return false
	}
	if row.flags&writes != 0 && u.writeProtected() {
		t.check(sense.WriteProtected)
		return false
	}
	return true
}

// badOpcode ends the task with INVALID COMMAND OPERATION CODE, or with INVALID
// FIELD IN CDB where only the service action is unknown (SPC-5 4.3.3).
func (t *Task) badOpcode() {
	if row := t.state.row; len(t.CDB) > 1 && (row == nil || row.sa != none) && t.state.n.t.commands.byOp[t.CDB[0]].sas != nil {
		if t.CDB[0] == opVariable {
			t.fault(sense.InCDB(8, 7))
			return
		}
		t.fault(sense.InCDB(1, 4))
		return
	}
	t.fault(sense.UnsupportedOpcode())
}
