// Stage 3 of a command, check: what stands between an enabled task and its handler, in the order
// of SAM-5 5.3.3. It has no effect but that a pending unit attention condition is reported, and
// so cleared. What a nexus or a unit refuses by its state is in access.go.

package server

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// run checks an enabled task and calls its handler. Each check that returns false has ended it.
func (t *Task) run() {
	st := &t.state
	row := st.n.t.commands.Lookup(t.CDB)
	st.row = row
	if serving := st.n.t.opt.Serving; serving != nil && !serving() || t.Stale != nil && t.Stale(t) {
		t.End(sam.StatusBusy)
		return
	}
	if st.itl.gone { // while the task was delayed
		t.Check(sense.LUNNotSupported)
		return
	}
	if row == nil {
		if st.itl.ua != 0 { // a pending unit attention condition comes before an invalid field
			t.Check(st.itl.ua.Take())
			return
		}
		t.badOpcode()
		return
	}
	if t.mayAccess(row) && t.wellFormed(row) && t.mediumReady(row) {
		row.Run(t)
	}
}

// mayAccess checks what keeps the I_T_L nexus from the unit: reservations of others, unless a power-on
// or reset is to be told first, unit attention conditions, the state of its port.
func (t *Task) mayAccess(row *Command) bool {
	st := &t.state
	if st.u.reserved() && st.itl.ua&sense.Resets == 0 && st.u.reservedFor(st.itl, t, row) {
		t.End(sam.StatusReservationConflict)
		return false
	}
	if st.itl.ua != 0 && row.Flags&PassUA == 0 {
		t.Check(st.itl.ua.Take())
		return false
	}
	if c := st.n.inaccessible(row); c != sense.NoSense {
		t.Check(c)
		return false
	}
	return true
}

// wellFormed checks what can be said of the CDB by its row alone. A handler may read as many bytes
// as the row has.
func (t *Task) wellFormed(row *Command) bool {
	if len(t.CDB) < len(row.Usage) {
		t.Fault(sense.InCDB(0, 7))
		return false
	}
	if row.Op == cdb.Variable && int(t.CDB[7]) != len(row.Usage)-8 { // ADDITIONAL CDB LENGTH
		t.Fault(sense.InCDB(7, 7))
		return false
	}
	if row.Flags&Strict != 0 {
		for i, used := range row.Usage {
			if extra := t.CDB[i] &^ used; i > 0 && i != row.Control() && extra != 0 {
				t.Fault(sense.InCDB(i, bits.Len8(extra)-1))
				return false
			}
		}
	}
	if control := t.CDB[row.Control()]; control&0x04 != 0 { // NACA: ACA is not supported
		t.Fault(sense.InCDB(row.Control(), 2))
		return false
	}
	if row.Flags&conditional != 0 && !row.Offered(t.state.itl) {
		t.badOpcode()
		return false
	}
	return true
}

// mediumReady checks that the medium can be used the way the command does.
func (t *Task) mediumReady(row *Command) bool {
	u := t.state.u
	if row.Flags&PassBusy == 0 && u.Erased() && !u.mends(row) {
		t.Fault(u.EraseSense())
		return false
	}
	if row.Flags&NeedMedium == 0 {
		return true
	}
	if c := u.medium.NotReady; c != sense.NoSense {
		t.Check(c)
		return false
	}
	if row.Flags&Writes != 0 && u.WriteProtected() {
		t.Check(sense.WriteProtected)
		return false
	}
	return true
}

// badOpcode ends the task with INVALID COMMAND OPERATION CODE, or with INVALID
// FIELD IN CDB where only the service action is unknown (SPC-5 4.3.3).
func (t *Task) badOpcode() {
	if row := t.state.row; len(t.CDB) > 1 && (row == nil || row.ServiceAction != NoAction) && t.state.n.t.commands.byOp[t.CDB[0]].sas != nil {
		if t.CDB[0] == cdb.Variable {
			t.Fault(sense.InCDB(8, 7))
			return
		}
		t.Fault(sense.InCDB(1, 4))
		return
	}
	t.Fault(sense.UnsupportedOpcode())
}
