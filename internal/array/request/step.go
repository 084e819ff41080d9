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
	last    []func() // end a round, behind the engine's own stages
	after   func()   // is called when all is done
}

// EndStep does what the step before it caused. Whatever that completes at once runs in the same
// call. A command has two of these or three, so that the engine's stages are calls and no list.
func (e *Engine) EndStep() {
	s := &e.step
	if s.running {
		return
	}
	s.running = true
	for work := true; ; {
		e.back.Submit()
		e.endSettled()
		// Without work, a round that has woken nobody ends before the stages that end one.
		if woke := e.wake(); !woke && !work && !e.leftWork() {
			break
		}
		e.set.DestageAll()
		for _, stage := range s.last {
			stage()
		}
		if work = e.leftWork(); !work && e.wakes.given == 0 && !e.link.Given() {
			break
		}
	}
	s.running = false
	s.after()
}

// leftWork reports whether somebody has left work for another round.
func (e *Engine) leftWork() bool {
	return e.back.Pending() || len(e.settling.ended) > 0 || e.cache.AnyKicked()
}
