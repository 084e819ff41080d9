// Stage 7 of a command, deliver: the task goes back to the front end. That, and every answer to a
// task management function, is called from the executor, never from inside the call that caused
// it.

package server

// deliver gives a completed task back to the front end: from the executor, when one of our calls
// is still running, else at once. It takes out of the task what belongs to others.
func (t *Task) deliver() {
	st := &t.state
	tg, waiters := st.n.t, st.waiters
	st.waiters = nil
	st.req.Data, st.req.Compare, st.req.Ref, st.vec[0] = nil, nil, nil, nil
	st.itl, st.u, st.then = nil, nil, nil
	if tg.depth > 0 {
		tg.ended = append(tg.ended, t)
		tg.post()
	} else {
		t.done()
	}
	for _, w := range waiters {
		w.Less(tg)
	}
}

// done calls Done. The front end has the task from then on, and may submit it again from there.
func (t *Task) done() {
	t.state.to(idle)
	t.state.n = nil
	t.Done(t)
}

// call queues a completion that must not come from inside the call that caused it.
func (t *Target) call(fn func()) {
	t.calls = append(t.calls, fn)
	t.post()
}

func (t *Target) post() {
	if !t.posted {
		t.posted = true
		t.exec.Post(t.drain)
	}
}

// runEnded delivers the completions that are due, tasks before task management functions.
func (t *Target) runEnded() {
	t.posted = false
	run := t.ended
	t.ended = t.spare[:0]
	for i, task := range run {
		run[i] = nil
		task.done()
	}
	t.spare = run[:0]
	calls := t.calls
	t.calls = nil
	for _, fn := range calls {
		fn()
	}
}

// Waiter counts the tasks that a task management function or a closing nexus
// waits for. Whoever makes one counts too, until all tasks are marked: some end
// while others are yet to be found.
type Waiter struct {
	left int
	done func()
}

// NewWaiter makes a waiter that waits for whoever makes it, who takes that off by Less.
func NewWaiter(done func()) *Waiter { return &Waiter{left: 1, done: done} }

// More adds one to wait for.
func (w *Waiter) More() { w.left++ }

// Await has w, which may be nil, wait for a task that has not ended.
func (w *Waiter) Await(t *Task) {
	if w != nil && t.state.phase != completed {
		w.More()
		t.state.waiters = append(t.state.waiters, w)
	}
}

// Idle reports whether there is nothing to wait for but whoever made the waiter.
func (w *Waiter) Idle() bool { return w.left == 1 }

// Less takes one off and queues done when nothing is left to wait for.
func (w *Waiter) Less(t *Target) {
	if w.left--; w.left == 0 {
		t.call(w.done)
	}
}
