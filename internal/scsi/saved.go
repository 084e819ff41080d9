// What a unit keeps through power loss, and how a command waits until it is durable. The whole
// state is saved each time; saves are carried out in order, so the last one stands. target.go
// restores it.

package scsi

import (
	"encoding/json"
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// UnitState is what a unit keeps through power loss: persistent reservations that
// were made with APTPL=1, saved mode pages, identifying information, and an
// erasure that is not done. It comes from ParseUnitState.
type UnitState struct {
	PR      *reservation.Saved `json:"pr,omitempty"`
	Mode    *savedMode         `json:"mode,omitempty"`
	Ident   []byte             `json:"ident,omitempty"`
	Info    []byte             `json:"info,omitempty"`
	Erasing *eraseParameters   `json:"erasing,omitempty"`
	Failed  *eraseParameters   `json:"failed,omitempty"`
}

type savedMode struct {
	DSense bool `json:"d_sense,omitempty"`
	SWP    bool `json:"swp,omitempty"`
}

// ParseUnitState reads what UnitOptions.Save got. Nil is the state of a new unit.
func ParseUnitState(b []byte) (UnitState, error) {
	var s UnitState
	if b == nil {
		return s, nil
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return UnitState{}, fmt.Errorf("saved state of a unit: %w", err)
	}
	if s.PR != nil {
		if err := s.PR.Check(); err != nil {
			return UnitState{}, fmt.Errorf("saved state of a unit: %w", err)
		}
	}
	for _, e := range []*eraseParameters{s.Erasing, s.Failed} {
		if e != nil && e.Passes > 0 && len(e.Pattern) == 0 {
			return UnitState{}, fmt.Errorf("saved state of a unit: an erasure of %d passes without a pattern", e.Passes)
		}
	}
	return s, nil
}

// state is what Save gets.
func (u *Unit) state() UnitState {
	s := UnitState{PR: u.pr.Save(), Ident: u.label.ident, Info: u.label.text, Failed: u.failedErase}
	if u.savedMode != (pages.Mode{}) {
		s.Mode = &savedMode{DSense: u.savedMode.DSense, SWP: u.savedMode.SWP}
	}
	if u.eraseOperation != nil {
		s.Erasing = &u.eraseOperation.what
	}
	return s
}

// save makes the unit's state durable, if somebody keeps it. done may be nil.
func (u *Unit) save(done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	if u.opt.Save == nil {
		done(nil)
		return
	}
	b, err := json.Marshal(u.state())
	if err != nil {
		panic("scsi: internal error: " + err.Error())
	}
	u.opt.Save(b, done)
}

// goodWhenSaved ends the task well when the unit's state is durable.
func (t *Task) goodWhenSaved() {
	u := t.state.u
	pause := t.pause()
	u.save(func(err error) {
		switch {
		case pause.over(t):
		case err != nil:
			t.check(sense.InternalFailure)
		default:
			t.good()
		}
	})
}
