// Stage 5 of a command, submit: its request goes to the unit's device, the requests of copies
// too. What one call submits for one device in a row goes to it in one batch, so that what one
// read of a socket brought is one call. This is the way down: below it is block.Device, which the
// array implements.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Submit hands the task's request to the unit's device; then is called when it
// has ended with OK. Any other outcome ends the task.
func (t *Task) Submit(then func(*Task)) {
	st := &t.state
	st.to(atDevice)
	st.then = then
	st.req.Ctx = t
	st.req.Done = requestDone
	st.req.Host, st.req.Port = st.n.host.ID, st.n.portNumber
	st.req.Located = false
	st.n.t.Enqueue(st.u, &st.req)
}

// SyncCache has the device of a unit of the nexus bring to the medium what it has acknowledged, for a
// front end that lets a command end no earlier. It is part of that command and none of its own: no
// state refuses it, no unit attention condition is reported by it, and it cannot be aborted. done is
// called on the executor, never from inside SyncCache, with the status and the sense data that a
// SYNCHRONIZE CACHE would end with.
func (n *Nexus) SyncCache(lun uint64, done func(status byte, senseData []byte)) {
	t := n.t
	x := n.lookup(lun)
	end := func(status byte, s sense.Data) {
		var b []byte
		if status == sam.StatusCheckCondition {
			b = s.Encode(make([]byte, 64), x != nil && x.u.mode.DSense)
		}
		done(status, b)
	}
	if x == nil {
		t.call(func() { end(sam.StatusCheckCondition, sense.Data{Code: sense.LUNNotSupported}) })
		return
	}
	r := &block.Request{Op: block.OpFlush, Host: n.host.ID, Port: n.portNumber}
	r.Done = func(r *block.Request) { end(x.u.Outcome(r)) }
	t.Enqueue(x.u, r)
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
