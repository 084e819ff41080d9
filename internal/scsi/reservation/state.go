// Package reservation has the persistent reservations of one logical unit (SPC-5 5.14) as a state
// machine: who is registered, who holds the reservation, whom it excludes, and what of it survives
// the process or a loss of power. It knows no commands and no units: what a change means for others it returns.
//
// The holder of a reservation is one of the registrations, or nobody with the All Registrants
// types. Whoever changes anything does so in one call, which does all of it or nothing.
package reservation

// MaxRegistrations bounds what peers can make a unit keep.
const MaxRegistrations = 1024

// Nexus is an I_T nexus by its names: the initiator port's, and the relative target port
// identifier.
type Nexus struct {
	Port       string // as names.CanonicalPort returns it
	TargetPort uint16
}

// Registration is one I_T nexus that registered a key. It survives the nexus itself: a port that
// logs in again is still registered (SPC-5 5.14.5). Only its State changes it.
type Registration struct {
	Nexus
	Key uint64
}

// Type is a persistent reservation type (SPC-5 table 81).
type Type byte

// Types of reservations.
const (
	WriteExclusive               Type = 1
	ExclusiveAccess              Type = 3
	WriteExclusiveRegistrants    Type = 5
	ExclusiveAccessRegistrants   Type = 6
	WriteExclusiveAllRegistrants Type = 7
	ExclusiveAccessAll           Type = 8

	types = 1<<WriteExclusive | 1<<ExclusiveAccess | 1<<WriteExclusiveRegistrants | 1<<ExclusiveAccessRegistrants |
		1<<WriteExclusiveAllRegistrants | 1<<ExclusiveAccessAll
	writeExclusive = 1<<WriteExclusive | 1<<WriteExclusiveRegistrants | 1<<WriteExclusiveAllRegistrants
)

// Valid reports whether there is such a type.
func (t Type) Valid() bool { return t < 32 && 1<<t&types != 0 }

// all reports whether every registrant holds a reservation of this type.
func (t Type) all() bool { return t >= WriteExclusiveAllRegistrants }

// registrants reports whether a reservation of this type spares all who are registered.
func (t Type) registrants() bool { return t >= WriteExclusiveRegistrants }

// State is a unit's persistent reservation. The zero value is that of a new unit. It outlives the
// target.
type State struct {
	aptpl      bool // APTPL of the last registration
	generation uint32
	regs       []*Registration // in the order of registration
	reserved   bool
	kind       Type          // when reserved
	holder     *Registration // nil with the All Registrants types
}

// Reserved reports whether there is a reservation.
func (s *State) Reserved() bool { return s.reserved }

// Type returns the type of the reservation, 0 without one.
func (s *State) Type() Type {
	if !s.reserved {
		return 0
	}
	return s.kind
}

// AllRegistrants reports whether there is a reservation that every registrant holds.
func (s *State) AllRegistrants() bool { return s.reserved && s.kind.all() }

// Holder returns the one registration that holds the reservation, nil if none or all do.
func (s *State) Holder() *Registration { return s.holder }

// Holds reports whether a registration, which may be nil, holds the reservation.
func (s *State) Holds(r *Registration) bool {
	return s.reserved && r != nil && (s.kind.all() || s.holder == r)
}

// Registrations returns the registrations in their order. The caller must not change them.
func (s *State) Registrations() []*Registration { return s.regs }

// Generation returns PRGENERATION.
func (s *State) Generation() uint32 { return s.generation }

// Persists reports whether APTPL is 1: registrations and reservation survive a loss of power.
func (s *State) Persists() bool { return s.aptpl }

// Of returns the registration of an I_T nexus, or nil.
func (s *State) Of(n Nexus) *Registration {
	for _, r := range s.regs {
		if r.TargetPort == n.TargetPort && r.Port == n.Port {
			return r
		}
	}
	return nil
}

// Excludes reports whether the reservation keeps n from reading or writing.
func (s *State) Excludes(n Nexus, read bool) bool {
	if !s.reserved || read && 1<<s.kind&writeExclusive != 0 {
		return false
	}
	r := s.Of(n)
	return !s.Holds(r) && (r == nil || !s.kind.registrants())
}

// Falls reports whether a PREEMPT of this key takes the reservation over.
func (s *State) Falls(victim uint64) bool {
	switch {
	case !s.reserved:
		return false
	case s.kind.all():
		return victim == 0
	}
	return s.holder.Key == victim
}
