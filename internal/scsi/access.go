// What keeps an I_T_L nexus from a unit: reservations, the state of its target port, and the
// state of the medium. Commands ask on their way to the handler (check.go), copies before each of
// their steps. Nothing here changes anything.

package scsi

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// reserved reports whether there is any reservation of the unit.
func (u *Unit) reserved() bool { return u.spc2Holder != nil || u.pr.Reserved() }

// reservedFor reports whether a reservation of another I_T nexus keeps the command
// from x (SPC-2 5.5, SPC-5 5.14.1).
func (u *Unit) reservedFor(x *itl, t *Task, row *command) bool {
	if u.spc2Holder != nil && u.spc2Holder != x && row.flags&passLegacy == 0 {
		return !permissive(t)
	}
	if !u.pr.Reserved() || row.flags&passReserve != 0 {
		return false
	}
	return u.pr.Excludes(x.n.it(), row.flags&passRead != 0) && !permissive(t)
}

// permissive reports whether the command passes reservations because of what its
// CDB asks for: PREVENT=0, and START=1 without a power condition.
func permissive(t *Task) bool {
	switch t.CDB[0] {
	case 0x1E:
		return t.CDB[4]&3 == 0
	case 0x1B:
		return t.state.u.spc2Holder == nil && t.CDB[4]&(maskCondition|bitStart|bitLOEJ) == bitStart
	}
	return false
}

// excluded reports whether a reservation keeps the I_T_L nexus from writing, or reading.
func (x *itl) excluded(write bool) bool {
	u := x.u
	return u.spc2Holder != nil && u.spc2Holder != x || u.pr.Excludes(x.n.it(), !write)
}

// refuses is what the unit would answer to a READ or WRITE of the range from this
// nexus: GOOD means that it would do it.
func (x *itl) refuses(r block.Range, write bool) (byte, sense.Code) {
	u := x.u
	switch {
	case x.excluded(write):
		return sense.StatusReservationConflict, sense.NoSense
	case u.notReady() != sense.NoSense:
		return sense.StatusCheckCondition, u.notReady()
	case !r.Within(u.blocks << u.shift):
		return sense.StatusCheckCondition, sense.LBAOutOfRange
	case write && u.writeProtected():
		return sense.StatusCheckCondition, sense.WriteProtected
	}
	return sense.StatusGood, sense.NoSense
}

// inaccessible tells why the nexus's port keeps it from a command; noSense means
// that it does not.
func (n *Nexus) inaccessible(row *command) sense.Code {
	switch n.group.State() {
	case AccessStandby:
		if row.flags&passStandby == 0 {
			return sense.PortStandby
		}
	case AccessUnavailable:
		if row.flags&passUnavailable == 0 {
			return sense.PortUnavailable
		}
	}
	return sense.NoSense
}

// notReady tells why READ and WRITE are refused, whatever they address.
func (u *Unit) notReady() sense.Code {
	if u.erased() {
		return u.eraseSense().Code
	}
	return u.medium.notReady()
}

// erased reports whether the medium is being erased, or the last erasure has failed.
func (u *Unit) erased() bool { return u.eraseOperation != nil || u.failedErase != nil }

// eraseSense is what every command but those with passBusy meets then (SBC-4 4.11.3, 4.11.4).
func (u *Unit) eraseSense() sense.Data {
	switch {
	case u.eraseOperation != nil:
		return u.eraseOperation.busy()
	case u.failedErase.Format:
		return sense.Data{Code: sense.FormatCorrupted}
	default:
		return sense.Data{Code: sense.SanitizeFailed}
	}
}

// mends reports whether a command is what ends a failed erasure.
func (u *Unit) mends(row *command) bool {
	const formatUnit, sanitize = 0x04, 0x48
	return u.eraseOperation == nil && (row.op == sanitize || row.op == formatUnit && u.failedErase.Format)
}

// busyCode is why the unit is not ready.
func (b *eraseOperation) busyCode() sense.Code {
	if b.what.Format {
		return sense.FormatInProgress
	}
	return sense.SanitizeInProgress
}

// busy is the sense data of the operation in progress.
func (b *eraseOperation) busy() sense.Data { return b.busyCode().WithProgress(b.done, b.total) }

// notReady tells why the medium cannot be accessed; noSense means that it can.
func (m *mediumState) notReady() sense.Code {
	if m.ejected {
		return sense.MediumNotPresent
	}
	return sense.NoSense
}
