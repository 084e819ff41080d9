// What keeps an I_T_L nexus from a unit: reservations, the state of its target port, and the
// state of the medium. Commands ask on their way to the handler (check.go), copies before each of
// their steps. Nothing here changes anything.

package server

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// reserved reports whether there is any reservation of the unit.
func (u *Unit) reserved() bool { return u.spc2Holder != nil || u.pr.Reserved() }

// reservedFor reports whether a reservation of another I_T nexus keeps the command
// from x (SPC-2 5.5, SPC-5 5.14.1).
func (u *Unit) reservedFor(x *ITL, t *Task, row *Command) bool {
	if u.spc2Holder != nil && u.spc2Holder != x && row.Flags&PassLegacy == 0 {
		return !permissive(t)
	}
	if !u.pr.Reserved() || row.Flags&PassReserve != 0 {
		return false
	}
	return u.pr.Excludes(x.n.Registrant(), row.Flags&PassRead != 0) && !permissive(t)
}

// permissive reports whether the command passes reservations because of what its
// CDB asks for: PREVENT=0, and START=1 without a power condition.
func permissive(t *Task) bool {
	switch t.CDB[0] {
	case 0x1E:
		return t.CDB[4]&3 == 0
	case 0x1B:
		const start, loej, condition = 0x01, 0x02, 0xF0
		return t.state.u.spc2Holder == nil && t.CDB[4]&(condition|start|loej) == start
	}
	return false
}

// Excluded reports whether a reservation keeps the I_T_L nexus from writing, or reading.
func (x *ITL) Excluded(write bool) bool {
	u := x.u
	return u.spc2Holder != nil && u.spc2Holder != x || u.pr.Excludes(x.n.Registrant(), !write)
}

// Refuses is what the unit would answer to a READ or WRITE of the range from this nexus, or GOOD.
func (x *ITL) Refuses(r block.Range, write bool) (byte, sense.Code) {
	u := x.u
	switch {
	case x.Excluded(write):
		return sam.StatusReservationConflict, sense.NoSense
	case u.notReady() != sense.NoSense:
		return sam.StatusCheckCondition, u.notReady()
	case !r.Within(u.blocks << u.shift):
		return sam.StatusCheckCondition, sense.LBAOutOfRange
	case write && u.WriteProtected():
		return sam.StatusCheckCondition, sense.WriteProtected
	}
	return sam.StatusGood, sense.NoSense
}

// inaccessible tells why the nexus's port keeps it from a command; sense.NoSense means
// that it does not.
func (n *Nexus) inaccessible(row *Command) sense.Code {
	switch s := n.group.State(); {
	case s == alua.Standby && row.Flags&PassStandby == 0:
		return sense.PortStandby
	case s == alua.Unavailable && row.Flags&passUnavailable == 0:
		return sense.PortUnavailable
	}
	return sense.NoSense
}

// notReady tells why READ and WRITE are refused, whatever they address.
func (u *Unit) notReady() sense.Code {
	if u.Erased() {
		return u.EraseSense().Code
	}
	return u.medium.NotReady
}

// Erased reports whether the medium is being erased, or the last erasure has failed.
func (u *Unit) Erased() bool { return u.erasing != nil || u.failedErase != nil }

// EraseSense is what every command but those with PassBusy meets then (SBC-4 4.11.3, 4.11.4).
func (u *Unit) EraseSense() sense.Data {
	switch {
	case u.erasing != nil:
		return u.erasing.busy()
	case u.failedErase.Format:
		return sense.Data{Code: sense.FormatCorrupted}
	default:
		return sense.Data{Code: sense.SanitizeFailed}
	}
}

// mends reports whether a command is what ends a failed erasure.
func (u *Unit) mends(row *Command) bool {
	const formatUnit, sanitize = 0x04, 0x48
	return u.erasing == nil && (row.Op == sanitize || row.Op == formatUnit && u.failedErase.Format)
}

// Prevented reports whether any nexus prevents that the medium is moved.
func (u *Unit) Prevented() bool {
	return slices.ContainsFunc(u.itls, func(x *ITL) bool { return x.prevent })
}
