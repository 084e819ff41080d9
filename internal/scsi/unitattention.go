// Unit attention conditions (SAM-5 5.14): a set of bits for each I_T_L nexus, established here
// and reported by check.go, in the order of their bits, one a command.

package scsi

import "math/bits"

// unitAttention is a set of pending unit attention conditions. The lower the bit,
// the earlier it is reported (SAM-5 5.14).
type unitAttention uint32

const (
	uaPowerOn unitAttention = 1 << iota
	uaReset
	uaNexusLoss
	uaMediumChanged
	uaLUNsChanged
	uaCapacity
	uaModeChanged
	uaReservationsPreempted
	uaReservationsReleased
	uaRegistrationsPreempted
	uaCommandsCleared
	uaThreshold
	uaAccess
	uaIdentifier
	uaInquiry
	uaTimestamp
)

var unitAttentionCodes = [...]code{
	0x062900, // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED
	0x062903, // BUS DEVICE RESET FUNCTION OCCURRED
	0x062907, // I_T NEXUS LOSS OCCURRED
	0x062800, // NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED
	0x063F0E, // REPORTED LUNS DATA HAS CHANGED
	0x062A09, // CAPACITY DATA HAS CHANGED
	0x062A01, // MODE PARAMETERS CHANGED
	0x062A03, // RESERVATIONS PREEMPTED
	0x062A04, // RESERVATIONS RELEASED
	0x062A05, // REGISTRATIONS PREEMPTED
	0x062F00, // COMMANDS CLEARED BY ANOTHER INITIATOR
	0x063807, // THIN PROVISIONING SOFT THRESHOLD REACHED
	0x062A06, // ASYMMETRIC ACCESS STATE CHANGED
	0x063F05, // DEVICE IDENTIFIER CHANGED
	0x063F03, // INQUIRY DATA HAS CHANGED
	0x062A10, // TIMESTAMP CHANGED
}

// take removes the condition that is to be reported next.
func (a *unitAttention) take() code {
	i := bits.TrailingZeros32(uint32(*a))
	*a &^= 1 << i
	return unitAttentionCodes[i]
}

// attend raises ua on every I_T nexus of the unit but one (nil spares none).
func (u *Unit) establish(ua unitAttention, except *itl) {
	for _, x := range u.itls {
		if x != except {
			x.ua |= ua
		}
	}
}
