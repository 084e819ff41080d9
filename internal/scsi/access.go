// What keeps an I_T_L nexus from a unit: reservations, the state of its target port, and the
// state of the medium. Commands ask on their way to the handler (check.go), copies before each of
// their steps. Nothing here changes anything.

package scsi

import "github.com/arraysim/arraysim/internal/block"

// reserved reports whether there is any reservation of the unit.
func (u *Unit) reserved() bool { return u.spc2Holder != nil || u.pr.reserved }

// reservedFor reports whether a reservation of another I_T nexus keeps the command
// from x (SPC-2 5.5, SPC-5 5.14.1).
func (u *Unit) reservedFor(x *itl, t *Task, row *command) bool {
	if u.spc2Holder != nil && u.spc2Holder != x && row.flags&passLegacy == 0 {
		return !permissive(t)
	}
	if !u.pr.reserved || row.flags&passReserve != 0 {
		return false
	}
	return u.pr.excludes(x.n, row.flags&passRead != 0) && !permissive(t)
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
	return u.spc2Holder != nil && u.spc2Holder != x || u.pr.excludes(x.n, !write)
}

// refuses is what the unit would answer to a READ or WRITE of the range from this
// nexus: GOOD means that it would do it.
func (x *itl) refuses(r block.Range, write bool) (byte, code) {
	u := x.u
	switch {
	case x.excluded(write):
		return StatusReservationConflict, noSense
	case u.notReady() != noSense:
		return StatusCheckCondition, u.notReady()
	case !r.Within(u.blocks << u.shift):
		return StatusCheckCondition, lbaOutOfRange
	case write && u.writeProtected():
		return StatusCheckCondition, writeProtected
	}
	return StatusGood, noSense
}

// inaccessible tells why the nexus's port keeps it from a command; noSense means
// that it does not.
func (n *Nexus) inaccessible(row *command) code {
	switch n.group.state {
	case AccessStandby:
		if row.flags&passStandby == 0 {
			return portStandby
		}
	case AccessUnavailable:
		if row.flags&passUnavailable == 0 {
			return portUnavailable
		}
	}
	return noSense
}

// notReady tells why READ and WRITE are refused, whatever they address.
func (u *Unit) notReady() code {
	if u.erased() {
		return u.eraseSense().code
	}
	return u.medium.notReady()
}

// erased reports whether the medium is being erased, or the last erasure has failed.
func (u *Unit) erased() bool { return u.eraseOperation != nil || u.failedErase != nil }

// eraseSense is what every command but those with passBusy meets then (SBC-4 4.11.3, 4.11.4).
func (u *Unit) eraseSense() sense {
	switch {
	case u.eraseOperation != nil:
		return u.eraseOperation.busy()
	case u.failedErase.Format:
		return sense{code: formatCorrupted}
	default:
		return sense{code: sanitizeFailed}
	}
}

// mends reports whether a command is what ends a failed erasure.
func (u *Unit) mends(row *command) bool {
	const formatUnit, sanitize = 0x04, 0x48
	return u.eraseOperation == nil && (row.op == sanitize || row.op == formatUnit && u.failedErase.Format)
}

// busyCode is why the unit is not ready.
func (b *eraseOperation) busyCode() code {
	if b.what.Format {
		return formatInProgress
	}
	return sanitizeInProgress
}

// busy is the sense data of the operation in progress, with the PROGRESS
// INDICATION in 65536ths (SPC-5 4.4.2.4.4).
func (b *eraseOperation) busy() sense {
	p := b.done * 65535 / max(b.total, 1)
	return sense{code: b.busyCode(), sks: [3]byte{sksv, byte(p >> 8), byte(p)}}
}

// notReady tells why the medium cannot be accessed; noSense means that it can.
func (m *mediumState) notReady() code {
	if m.ejected {
		return mediumNotPresent
	}
	return noSense
}
