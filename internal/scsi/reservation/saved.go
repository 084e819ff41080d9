// What of a persistent reservation survives the process: all of it, and a loss of power, too, while
// APTPL is 1. The whole is saved with each change, and restored as a whole.

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
	Volatile   bool                `json:"volatile,omitempty"` // APTPL is 0: it ends with a loss of power
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

// Save returns what survives, nil for the state of a new unit.
func (s *State) Save() *Saved {
	if !s.aptpl && s.generation == 0 && len(s.regs) == 0 {
		return nil
	}
	saved := &Saved{Generation: s.generation, Kind: byte(s.Type()), Volatile: !s.aptpl}
	for i, r := range s.regs {
		saved.Regs = append(saved.Regs, savedRegistration{r.Port, r.TargetPort, r.Key})
		if r == s.holder {
			saved.Holder = i
		}
	}
	return saved
}

// Restore returns the state that Save was called for. Check has found no error in it. After a power-on
// PRGENERATION is 0 (SPC-4, READ KEYS), and with APTPL=0 all else is as on a new unit; where another
// process takes over what had its power all the time, all of it goes on. The caller saves what a
// power-on has changed: a later process that takes over would find it otherwise.
func Restore(p *Saved, powerOn bool) State {
	if powerOn && p.Volatile {
		return State{}
	}
	s := State{generation: p.Generation, aptpl: !p.Volatile}
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
