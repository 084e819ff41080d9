// A step is what one call into the array, or one event, does. What it causes is done at its end,
// once for all: each stage does its part, in their order, until none has left the others anything
// to do.
//
// Invariant: a stage runs only here, and what completes inside a stage only leaves work for the
// next round. A request that is woken outside of a step (who waited for a lock, or for its turn)
// may end with a step of its own: who wakes others must not look at what they may have changed or
// used again.

package request

// stepper carries out the ends of steps.
type stepper struct {
	running bool
	// first are the stages that begin a round, wake is the one that lets those go on who wait, and
	// last are those that end a round. Without work, a round that has woken nobody ends before
	// them.
	first, last []func()
	wake        func() (woke bool)
	work        func() bool // reports whether somebody has left work for another round
	given       func() bool // reports whether somebody may be woken
	after       func()      // is called when all is done
}

// EndStep does what the step before it caused. Whatever that completes at once runs in the same
// call.
func (e *Engine) EndStep() { e.step.end() }

func (s *stepper) end() {
	if s.running {
		return
	}
	s.running = true
	for work := true; ; {
		for _, stage := range s.first {
			stage()
		}
		if woke := s.wake(); !woke && !work && !s.work() {
			break
		}
		for _, stage := range s.last {
			stage()
		}
		if work = s.work(); !work && !s.given() {
			break
		}
	}
	s.running = false
	s.after()
}
