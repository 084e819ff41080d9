// What of a persistent reservation survives a loss of power: all of it while APTPL is 1. The whole
// is saved each time, and restored as a whole.

package reservation

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi/names"
)

// Saved is a reservation with its registrations as it is kept, in JSON.
type Saved struct {
	Generation uint32              `json:"generation"`
	Regs       []savedRegistration `json:"registrations,omitempty"`
	Kind       byte                `json:"type,omitempty"` // 0 without a reservation
	Holder     int                 `json:"holder,omitempty"`
}

type savedRegistration struct {
	Port       string `json:"port"`
	TargetPort uint16 `json:"target_port"`
	Key        uint64 `json:"key,string"`
}

// Check returns an error for what Save cannot have returned.
func (p *Saved) Check() error {
	if t := Type(p.Kind); t != 0 && (!t.Valid() || !t.all() && (p.Holder < 0 || p.Holder >= len(p.Regs))) {
		return fmt.Errorf("a reservation of type %d, held by registration %d of %d", p.Kind, p.Holder, len(p.Regs))
	}
	return nil
}

// Save returns what survives, nil for nothing.
func (s *State) Save() *Saved {
	if !s.aptpl {
		return nil
	}
	saved := &Saved{Generation: s.generation, Kind: byte(s.Type())}
	for i, r := range s.regs {
		saved.Regs = append(saved.Regs, savedRegistration{r.Port, r.TargetPort, r.Key})
		if r == s.holder {
			saved.Holder = i
		}
	}
	return saved
}

// ToSave reports whether a change has to be saved: APTPL is 1, or what was saved last has to go.
// The caller saves it then.
func (s *State) ToSave() bool {
	if !s.aptpl && !s.kept {
		return false
	}
	s.kept = s.aptpl
	return true
}

// NotSaved says that a save has failed: what was saved before it may have reservations yet, so the next change is to be
// saved, too.
func (s *State) NotSaved() { s.kept = true }

// Restore returns the state that Save was called for. Check has found no error in it. After a power-on
// PRGENERATION is 0, whatever APTPL is (SPC-4, READ KEYS); where another process takes over what had its
// power all the time, it goes on.
func Restore(p *Saved, powerOn bool) State {
	s := State{generation: p.Generation, aptpl: true, kept: true}
	if powerOn {
		s.generation = 0
	}
	for _, r := range p.Regs {
		port, _ := names.CanonicalPort(r.Port)
		s.regs = append(s.regs, &Registration{Nexus{port, r.TargetPort}, r.Key})
	}
	if t := Type(p.Kind); t != 0 {
		s.reserved, s.kind = true, t
		if !t.all() {
			s.holder = s.regs[p.Holder]
		}
	}
	return s
}
