// Package saved has what a unit keeps through a loss of power, as one piece of JSON. The whole is
// saved each time, so the last one stands.
package saved

import (
	"encoding/json"
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi/erase"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
)

// State is what is kept: persistent reservations, also those that end with the power (APTPL=0), saved
// mode pages, identifying information, and an erasure that is not done, or has failed. It comes from
// Parse, or from a unit that has it saved.
type State struct {
	PR      *reservation.Saved `json:"pr,omitempty"`
	Mode    *mode              `json:"mode,omitempty"`
	Ident   []byte             `json:"ident,omitempty"`
	Info    []byte             `json:"info,omitempty"`
	Erasing *erase.Parameters  `json:"erasing,omitempty"`
	Failed  *erase.Parameters  `json:"failed,omitempty"`
}

type mode struct {
	DSense bool `json:"d_sense,omitempty"`
	SWP    bool `json:"swp,omitempty"`
}

// SetModes says which values of the mode pages were saved. Those of a new unit take no room.
func (s *State) SetModes(m pages.Mode) {
	if m != (pages.Mode{}) {
		s.Mode = &mode{DSense: m.DSense, SWP: m.SWP}
	}
}

// Modes returns the saved values of the mode pages.
func (s *State) Modes() pages.Mode {
	if s.Mode == nil {
		return pages.Mode{}
	}
	return pages.Mode{DSense: s.Mode.DSense, SWP: s.Mode.SWP}
}

// Parse reads what Encode returned. Nil is the state of a new unit.
func Parse(b []byte) (State, error) {
	var s State
	if b == nil {
		return s, nil
	}
	err := json.Unmarshal(b, &s)
	if err == nil && s.PR != nil {
		err = s.PR.Check()
	}
	for _, e := range []*erase.Parameters{s.Erasing, s.Failed} {
		if err == nil && e != nil {
			err = e.Check()
		}
	}
	if err != nil {
		return State{}, fmt.Errorf("saved state of a unit: %w", err)
	}
	return s, nil
}

// Encode returns the state for Parse.
func (s *State) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("scsi: internal error: " + err.Error())
	}
	return b
}
