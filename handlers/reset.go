// A LUN RESET by the kernel. It gives up the commands in progress of the initiator that asked for the
// reset, waits until the handler has completed them, and sends no status for them. An iSCSI initiator
// has given them up, too: they are withdrawn. tcm_loop, and the same is so of vhost, reports each to
// its initiator as GOOD when the kernel lets go of it (Linux 5.13 and later, tcm_loop_release_cmd):
// a read that was withdrawn brought nothing there, and a write is lost. So what such a fabric can have
// sent runs to its end, as it does with the kernel's own backstores, and the unit is reset behind it.
// A status but GOOD that it ends with is lost all the same; nothing here can help that.
//
// ABORT TASK needs no such care: tcm_loop sends it for a command alone that has timed out, and its
// initiator sends that one again. Nor does PREEMPT AND ABORT: the kernel answers TASK ABORTED.

package handlers

import (
	"slices"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// fabricsWait is how long a reset waits to hear which fabrics have the device. The kernel lets nobody
// read the folder of a LUN that it removes, and the LUN's commands may be the ones that wait here.
var fabricsWait = time.Second // tests have longer ones

// reset resets the unit, now or behind the commands that the kernel may report as GOOD. Serve's
// goroutine calls it. Those commands are counted first: what ends while configfs is read has ended.
func (u *unit) reset() {
	waits := false
	enter(u.exec, func() {
		switch last := len(u.running) - 1; {
		case u.running[last] > 0:
			u.running = append(u.running, 0)
			u.generation++
		case last == 0:
			u.resetNow(scsi.LogicalUnitReset)
		default: // an earlier reset has given up all that runs
			u.resetBehind()
		}
		waits = len(u.running) > 1
	})
	if !waits {
		return
	}
	u.dev.Flush() // the kernel may need what has been completed to let go of a folder
	withdraw := u.onlyISCSI()
	u.dev.Hold()
	if withdraw {
		enter(u.exec, u.resetAtOnce)
	}
}

// resetAtOnce is the reset of which it turns out that it need not wait. The executor is held.
func (u *unit) resetAtOnce() {
	if len(u.running) == 1 {
		return // it has come, or comes before the next answer
	}
	all := 0
	for _, n := range u.running {
		all += n
	}
	u.running, u.oldest = append(u.running[:0], all), u.generation
	u.resetNow(scsi.LogicalUnitReset)
}

// resetBehind is the reset that was deferred. It leaves the commands that have come since alone: the kernel may have given up some
// of them in a reset that is on its way. The executor is held.
func (u *unit) resetBehind() { u.resetNow(scsi.ResetBehind) }

// resetNow resets the unit. The executor is held.
func (u *unit) resetNow(how scsi.TMF) {
	u.domain.nexus.Manage(how, u.lun, 0, func(scsi.TMFResponse) {})
	scsi.ClearAttentions(u.domain.nexus, u.lun, scsi.AttentionReset) // the kernel tells its initiators
}

// onlyISCSI tells whether it is known that no fabric but the kernel's iSCSI target has the device. Who has it the kernel has just
// shown, by the reset. Serve's goroutine calls it.
func (u *unit) onlyISCSI() bool {
	if u.asked != nil {
		select {
		case <-u.asked: // for an earlier reset: another fabric may have got the device since
		default: // one question is enough to wait for a folder that nobody may read
			return false
		}
	}
	answer := make(chan bool, 1)
	u.asked = answer
	go func() {
		others, err := u.dev.OtherFabrics("iscsi")
		answer <- err == nil && len(others) == 0
	}()
	timer := time.NewTimer(fabricsWait)
	defer timer.Stop()
	select {
	case only := <-answer:
		u.asked = nil
		return only
	case <-timer.C:
		return false
	}
}

// arrive counts a command that the array has again, for its flush. The executor is held.
func (u *unit) arrive(x *command) { u.running[u.place(x)]++ }

// depart counts a command that has ended, and tells whether a deferred reset comes now: behind the last command of its generation,
// though commands before these may still run, for the kernel waits for those of each reset alone. The executor is held.
func (u *unit) depart(x *command) (due bool) {
	p := u.place(x)
	u.running[p]--
	due = p < len(u.running)-1 && u.running[p] == 0
	for len(u.running) > 1 && u.running[0] == 0 {
		u.running = slices.Delete(u.running, 0, 1)
		u.oldest++
	}
	return due
}

// place is where a command counts: behind the reset that came before it, if there is one yet to come.
func (u *unit) place(x *command) int { return int(max(x.came, u.oldest) - u.oldest) }
