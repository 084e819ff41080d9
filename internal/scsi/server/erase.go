// A unit whose medium is erased (SANITIZE, FORMAT UNIT): an operation that goes on after its command
// and after a loss of power. Meanwhile, and after one has failed, the unit is not ready (access.go).
// Nothing but the removal of the unit ends it. Package erase does the work.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/erase"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// erasure is an operation on a unit, and the command that waits for its end.
type erasure struct {
	*erase.Operation
	task *Task // nil with IMMED=1 or when it was aborted
	over bool  // it is done; that is being saved
}

// Release lets the task go: the operation goes on without it.
func (b *erasure) Release(*Task) { b.task = nil }

// Erase starts an operation. task, which may be nil, ends with it.
func (u *Unit) Erase(what erase.Parameters, task *Task) {
	b := &erasure{task: task}
	b.Operation = erase.New(u.dev, u.t.exec, what, func(ok bool) { u.erased(b, ok) })
	u.erasing, u.failedErase = b, nil
	u.t.copies.Revoke(u) // they hold what is to be erased
	if task != nil {
		task.state.continuation = b
	}
	u.Save(func(error) {}) // who answers early waits for it: see Task.GoodWhenSaved
	// Commands that run already end first: what they write must go too. Copies end now.
	w := NewWaiter(b.Next)
	u.Shut(func(*Nexus) bool { return true })
	u.Quiet(w, task, Rest, revokes(b.busyCode()))
	w.Less(u.t)
}

// erased makes the unit ready again, or leaves it failed, when that is durable: a start that finds
// the operation erases what there is. One whose end cannot be kept has failed.
func (u *Unit) erased(b *erasure, ok bool) {
	if b.over = true; !ok {
		u.failedErase = &b.What
	}
	u.Save(func(err error) {
		if u.erasing = nil; err != nil {
			u.failedErase = &b.What
		}
		switch {
		case b.task == nil:
		case u.failedErase == nil:
			b.task.Good()
		case b.What.Format:
			b.task.Check(sense.FormatFailed)
		default:
			b.task.Check(sense.SanitizeFailed)
		}
	})
}

// busyCode is why the unit is not ready.
func (b *erasure) busyCode() sense.Code {
	if b.What.Format {
		return sense.FormatInProgress
	}
	return sense.SanitizeInProgress
}

// busy is the sense data of the operation in progress.
func (b *erasure) busy() sense.Data { return b.busyCode().WithProgress(b.Progress()) }
