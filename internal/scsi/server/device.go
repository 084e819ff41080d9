// Stage 5 of a command, submit: its request goes to the unit's device, the requests of copies
// too. What one call submits for one device in a row goes to it in one batch, so that what one
// read of a socket brought is one call. This is the way down: below it is block.Device, which the
// array implements.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Submit hands the task's request to the unit's device; then is called when it
// has ended with OK. Any other outcome ends the task. A command of many steps ends here when its LUN
// has gone: nothing of it begins any more.
func (t *Task) Submit(then func(*Task)) {
	st := &t.state
	if st.itl.gone {
		t.Check(sense.LUNNotSupported)
		return
	}
	st.to(atDevice)
	st.then = then
	st.req.Ctx = t
	st.req.Done = requestDone
	st.req.Host, st.req.Port = st.n.host.ID, st.n.portNumber
	st.req.Located = false
	st.n.t.Enqueue(st.u, &st.req)
}

// Enqueue adds a request to the batch for a unit's device.
func (t *Target) Enqueue(u *Unit, r *block.Request) {
	if t.depth == 0 {
		t.Enter()
		defer t.Leave()
	}
	if t.batchUnit != u {
		t.Flush()
		t.batchUnit = u
	}
	t.batch = append(t.batch, r)
}

// Enter and Leave bracket all that may submit: what is for one device in a row goes in one batch.
func (t *Target) Enter() { t.depth++ }

// Leave ends what Enter began.
func (t *Target) Leave() {
	if t.depth == 1 {
		t.Flush()
	}
	t.depth--
}

// Flush hands what was collected to its device now.
func (t *Target) Flush() {
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
