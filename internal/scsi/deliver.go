// Stage 7 of a command, deliver: completions are called from the executor, never from inside the call that
// caused them.

package scsi

import "github.com/arraysim/arraysim/internal/metrics"

// call queues fn for the executor: for completions that must not come from inside
// the call that caused them.
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

// runEnded delivers the completions that are due, tasks before task management
// functions.
func (t *Target) runEnded() {
	t.posted = false
	run := t.ended
	t.ended = t.spare[:0]
	for i, task := range run {
		run[i] = nil
		task.state.phase = idle
		task.state.n = nil
		task.Done(task)
	}
	t.spare = run[:0]
	calls := t.calls
	t.calls = nil
	for _, fn := range calls {
		fn()
	}
}

// waiter counts the tasks that a task management function or a closing nexus
// waits for. Whoever makes one counts too, until all tasks are marked: some end
// while others are yet to be found.
type waiter struct {
	left int
	done func()
}

func newWaiter(done func()) *waiter { return &waiter{left: 1, done: done} }

// less takes one off and queues done when nothing is left to wait for.
func (w *waiter) less(t *Target) {
	if w.left--; w.left == 0 {
		t.call(w.done)
	}
}

var _ metrics.Source = (*Target)(nil)
