// Stage 5 of a command, submit: its request goes to the unit's device, the requests of copies
// too. What one call submits for one device in a row goes to it in one batch, so that what one
// read of a socket brought is one call. This is the way down: below it is block.Device, which the
// array implements.

package scsi

import "github.com/arraysim/arraysim/internal/block"

// submit hands the task's request to the unit's device; then is called when it
// has ended with OK. Any other outcome ends the task.
func (t *Task) submit(then func(*Task)) {
	st := &t.state
	st.to(atDevice)
	st.then = then
	st.req.Ctx = t
	st.req.Done = requestDone
	st.req.Host = st.n.host.id
	st.req.Located = false
	st.n.t.enqueue(st.u, &st.req)
}

// enqueue adds a request to the batch for a unit's device.
func (t *Target) enqueue(u *Unit, r *block.Request) {
	if t.depth == 0 {
		t.enter()
		defer t.leave()
	}
	if t.batchUnit != u {
		t.flush()
		t.batchUnit = u
	}
	t.batch = append(t.batch, r)
}

// enter and leave bracket everything that may submit requests: what is submitted
// for one device in a row goes to it in one batch.
func (t *Target) enter() { t.depth++ }

func (t *Target) leave() {
	if t.depth == 1 {
		t.flush()
	}
	t.depth--
}

func (t *Target) flush() {
	if len(t.batch) == 0 {
		return
	}
	b, u := t.batch, t.batchUnit
	t.batch, t.batchUnit = nil, nil
	u.dev.Submit(b)
	clear(b)
	if t.batch == nil {
		t.batch = b[:0]
	}
}
