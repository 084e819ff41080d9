// What a handler works with: what it reads of its task, the parameter data and the sense data that it
// answers, and how it waits. Whatever ends a task goes through End (complete.go).

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Unit returns the logical unit.
func (t *Task) Unit() *Unit { return t.state.u }

// Nexus returns the I_T nexus on which the task came.
func (t *Task) Nexus() *Nexus { return t.state.n }

// ITL returns the I_T_L nexus.
func (t *Task) ITL() *ITL { return t.state.itl }

// Target returns the target.
func (t *Task) Target() *Target { return t.state.n.t }

// Command returns the row of the dispatch table.
func (t *Task) Command() *Command { return t.state.row }

// Request returns the task's own request, which submit hands to the device.
func (t *Task) Request() *block.Request { return &t.state.req }

// Started returns when the task arrived, in the executor's nanoseconds.
func (t *Task) Started() int64 { return t.state.start }

// Arrived returns the task's number among those of the target, in the order of their arrival.
func (t *Task) Arrived() uint64 { return t.state.arrived }

// Aborting reports whether the task was aborted and ends when nobody else has it any more.
func (t *Task) Aborting() bool { return t.state.phase == aborting }

// Reply is Data-In that a handler builds; a command answers at most what its
// allocation length allows.
func (t *Task) Reply(data []byte, allocation int) {
	data = data[:min(len(data), allocation)]
	t.InTotal = len(data)
	if n := min(len(data), max(t.MaxIn, 0)); n > 0 {
		buf := t.Bufs.Get(n)[:n]
		copy(buf, data)
		t.state.in[0] = buf
		t.DataIn = t.state.in[:]
	}
	t.Good()
}

// Pause is the continuation of a command that waits for a callback and holds nothing.
type Pause struct{ _ byte } // not empty: two of them have two addresses

func (*Pause) Release(*Task) {}

// Hold makes c the state of a command of many steps, which is released when the task ends.
func (t *Task) Hold(c Continuation) { t.state.continuation = c }

// Held returns what hold got.
func (t *Task) Held() Continuation { return t.state.continuation }

// DataInFrom makes buf the memory that the request reads into, and its first n bytes Data-In.
func (t *Task) DataInFrom(buf []byte, n int) {
	st := &t.state
	st.vec[0] = buf
	st.req.Data = st.vec[:]
	st.in[0] = buf[:n]
}

// SendDataIn makes what dataInFrom said the task's Data-In.
func (t *Task) SendDataIn() { t.DataIn = t.state.in[:] }

// Pause makes the task wait for a callback.
func (t *Task) Pause() *Pause {
	p := &Pause{}
	t.state.continuation = p
	return p
}

// Over reports whether the task has ended during the pause: it was aborted, so the callback has
// nothing to end, and the task may be another command by now.
func (p *Pause) Over(t *Task) bool { return t.state.continuation != p }

// GoodWhenSaved ends the task well when the unit's state is durable.
func (t *Task) GoodWhenSaved() {
	pause := t.Pause()
	t.state.u.Save(func(err error) {
		switch {
		case pause.Over(t):
		case err != nil:
			t.Check(sense.InternalFailure)
		default:
			t.Good()
		}
	})
}
