// What changes registrations and the reservation, one function for each service action of
// PERSISTENT RESERVE OUT. What one does is decided as a whole before any of it is done, so what is
// refused has changed nothing.

package reservation

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Notice is a unit attention condition that an I_T nexus has to hear.
type Notice struct {
	To Nexus
	UA sense.Attentions
}

// Change is what a change means for others.
type Change struct {
	Notices []Notice
	Lost    []Nexus // whose registrations a PREEMPT removed
}

func (c *Change) notify(r *Registration, ua sense.Attentions) {
	c.Notices = append(c.Notices, Notice{r.Nexus, ua})
}

// notifyOthers notifies all who are registered but one, who may be nil.
func (s *State) notifyOthers(c *Change, except *Registration, ua sense.Attentions) {
	for _, r := range s.regs {
		if r != except {
			c.notify(r, ua)
		}
	}
}

// Registering is what a REGISTER of the I_T nexus By asks for.
type Registering struct {
	By Nexus
	// Ports are the target ports through which it is meant: that of By, or all with ALL_TG_PT=1.
	// It is as if it came through each of them: registrations of the same initiator port that have
	// another key stay as they are, unless the existing key is to be ignored.
	Ports []uint16
	// Others are further initiator ports to register (SPEC_I_PT=1). Those that are registered belong
	// to others and stay as they are.
	Others []string
	Key    uint64 // 0 unregisters
	Ignore bool   // whatever the existing keys are
	APTPL  bool   // from now on
}

// Register serves REGISTER and REGISTER AND IGNORE EXISTING KEY of a nexus whose key is right
// (SPC-5 5.14.7). ok is false when there is no room.
func (s *State) Register(q Registering) (c Change, ok bool) {
	own := s.Of(q.By)
	var changes, adds []*Registration
	for _, id := range q.Ports {
		switch r := s.Of(Nexus{q.By.Port, id}); {
		case r == nil && q.Key != 0:
			adds = append(adds, &Registration{Nexus{q.By.Port, id}, q.Key})
		case r != nil && (q.Ignore || own != nil && r.Key == own.Key):
			changes = append(changes, r)
		}
		for _, port := range q.Others {
			if n := (Nexus{port, id}); port != q.By.Port && s.Of(n) == nil {
				adds = append(adds, &Registration{n, q.Key})
			}
		}
	}
	if len(s.regs)+len(adds) > MaxRegistrations {
		return c, false
	}
	s.generation++
	s.aptpl = q.APTPL
	for _, r := range changes {
		if q.Key == 0 {
			s.unregister(&c, r)
		} else {
			r.Key = q.Key
		}
	}
	s.regs = append(s.regs, adds...)
	return c, true
}

// Move serves REGISTER AND MOVE (SPC-5 5.14.8) of the holder: another nexus becomes registered with
// this key and holds the reservation. ok is false when there is no room.
func (s *State) Move(from *Registration, n Nexus, key uint64, unregister, aptpl bool) (c Change, ok bool) {
	to := s.Of(n)
	if to == nil {
		if len(s.regs) >= MaxRegistrations {
			return c, false
		}
		to = &Registration{Nexus: n}
		s.regs = append(s.regs, to)
	}
	to.Key = key
	s.holder = to
	if unregister {
		s.unregister(&c, from)
	}
	s.aptpl = aptpl
	s.generation++
	return c, true
}

// Reserve serves RESERVE of a registration. ok is false when another reservation is in its way.
func (s *State) Reserve(r *Registration, t Type) (ok bool) {
	if s.reserved && (!s.Holds(r) || s.kind != t) {
		return false
	}
	s.take(r, t)
	return true
}

// take makes the reservation.
func (s *State) take(r *Registration, t Type) {
	s.reserved, s.kind, s.holder = true, t, r
	if t.all() {
		s.holder = nil
	}
}

// Release serves RELEASE of a holder, with the type of the reservation.
func (s *State) Release(r *Registration) (c Change) {
	s.reserved, s.holder = false, nil
	if s.kind.registrants() {
		s.notifyOthers(&c, r, sense.UAReservationsReleased)
	}
	return c
}

// Clear serves CLEAR of a registration: nobody is registered any more.
func (s *State) Clear(r *Registration) (c Change) {
	s.notifyOthers(&c, r, sense.UAReservationsPreempted)
	*s = State{generation: s.generation + 1}
	return c
}

// Preempt serves PREEMPT of a registration (SPC-5 5.14.11.4): the registrations with the victim's
// key go, or, where all registrants hold the reservation and victim is 0, all others. ok is false
// when nobody has that key.
func (s *State) Preempt(r *Registration, victim uint64, t Type) (c Change, ok bool) {
	takes := s.Falls(victim)
	var gone []*Registration
	matched := takes
	for _, q := range s.regs {
		if q.Key == victim || victim == 0 {
			matched = true
			if q != r || !takes && victim != 0 {
				gone = append(gone, q)
			}
		}
	}
	if !matched {
		return c, false
	}
	was := s.kind
	for _, q := range gone {
		if takes {
			s.remove(q)
		} else {
			s.unregister(&c, q)
		}
		if c.Lost = append(c.Lost, q.Nexus); q != r {
			c.notify(q, sense.UARegistrationsPreempted)
		}
	}
	if takes {
		s.take(r, t)
		if was != t {
			s.notifyOthers(&c, r, sense.UAReservationsReleased)
		}
	}
	s.generation++
	return c, true
}

func (s *State) remove(r *Registration) {
	s.regs = slices.DeleteFunc(s.regs, func(q *Registration) bool { return q == r })
}

// unregister removes a registration and the reservation that goes with it (SPC-5 5.14.11.3).
func (s *State) unregister(c *Change, r *Registration) {
	s.remove(r)
	if !s.reserved || s.holder != r && !(s.kind.all() && len(s.regs) == 0) {
		return
	}
	s.reserved, s.holder = false, nil
	if s.kind.registrants() {
		s.notifyOthers(c, nil, sense.UAReservationsReleased)
	}
}
