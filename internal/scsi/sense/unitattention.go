// Unit attention conditions (SAM-5 5.14): a set of bits. A unit keeps one for each I_T_L nexus, and
// reports its conditions in the order of the bits, one a command.

package sense

import "math/bits"

// Attentions is a set of pending unit attention conditions. The lower the bit,
// the earlier it is reported (SAM-5 5.14).
type Attentions uint32

// Unit attention conditions, in the order in which they are reported.
const (
	UAPowerOn Attentions = 1 << iota
	UAInternalReset
	UAReset
	UANexusLoss
	UAMediumChanged
	UALUNsChanged
	UACapacity
	UAModeChanged
	UAReservationsPreempted
	UAReservationsReleased
	UARegistrationsPreempted
	UAThreshold
	UAAccess
	UAIdentifier
	UAInquiry
	UATimestamp
)

// Missable is what a host has to be told that may have changed while nobody could tell it: its LUNs, the units' capacity and
// mode parameters, reservations, the states of target port groups.
const Missable = UALUNsChanged | UACapacity | UAModeChanged | UAReservationsPreempted | UAAccess

// Resets are the conditions that come before a RESERVATION CONFLICT (SAM-5 5.3.3): power on, resets, the
// loss of the I_T nexus. Take returns them before all others.
const Resets = UAPowerOn | UAInternalReset | UAReset | UANexusLoss

var attentionCodes = [...]Code{
	0x062900, // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED
	0x062904, // DEVICE INTERNAL RESET
	0x062903, // BUS DEVICE RESET FUNCTION OCCURRED
	0x062907, // I_T NEXUS LOSS OCCURRED
	0x062800, // NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED
	0x063F0E, // REPORTED LUNS DATA HAS CHANGED
	0x062A09, // CAPACITY DATA HAS CHANGED
	0x062A01, // MODE PARAMETERS CHANGED
	0x062A03, // RESERVATIONS PREEMPTED
	0x062A04, // RESERVATIONS RELEASED
	0x062A05, // REGISTRATIONS PREEMPTED
	0x063807, // THIN PROVISIONING SOFT THRESHOLD REACHED
	0x062A06, // ASYMMETRIC ACCESS STATE CHANGED
	0x063F05, // DEVICE IDENTIFIER CHANGED
	0x063F03, // INQUIRY DATA HAS CHANGED
	0x062A10, // TIMESTAMP CHANGED
}

// AtLogin is the condition that a port finds at a unit when it logs in: a power-on of which it has
// not heard comes before the loss of its own nexus. left: it was here before; survived: nothing was
// lost when the target was started.
func AtLogin(missed, left, survived bool) Attentions {
	switch {
	case missed:
		return UAPowerOn
	case left:
		return UANexusLoss
	case survived:
		return UAInternalReset
	}
	return UAPowerOn
}

// Take removes the condition that is to be reported next.
func (a *Attentions) Take() Code {
	i := bits.TrailingZeros32(uint32(*a))
	*a &^= 1 << i
	return attentionCodes[i]
}

// Clear removes conditions that are not to be reported any more.
func (a *Attentions) Clear(which Attentions) { *a &^= which }
