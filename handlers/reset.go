// A LUN RESET by the kernel. It gives up the commands in progress of the initiator that asked for the
// reset, waits until the handler has completed them, and sends no status for them. An iSCSI initiator
// has given them up, too: they are withdrawn. tcm_loop, and the same is so of vhost, reports each to
// its initiator as GOOD when the kernel lets go of it (Linux 5.13 and later, tcm_loop_release_cmd):
// a read that was withdrawn brought nothing there, and a write is lost. So what such a fabric can have
// sent runs to its end, as it does with the kernel's own backstores, and the unit is reset behind it.
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
const fabricsWait = time.Second

// reset resets the unit, now or behind the commands that the kernel may report as GOOD. Serve's
// goroutine calls it.
func (u *unit) reset() {
	withdraw := u.onlyISCSI()
	enter(u.exec, func() {
		if withdraw || u.running == 0 {
			u.resetNow()
			return
		}
		u.generation++
		u.before, u.deferred = u.running, true
	})
}

// resetNow resets the unit. The executor is held.
func (u *unit) resetNow() {
	u.domain.nexus.Manage(scsi.LogicalUnitReset, u.lun, 0, func(scsi.TMFResponse) {})
	scsi.ClearAttentions(u.domain.nexus, u.lun, scsi.AttentionReset) // the kernel tells its initiators
}

// onlyISCSI tells whether the device is known to be a LUN of the kernel's iSCSI target, and of nothing else.
func (u *unit) onlyISCSI() bool {
	known := make(chan bool, 1)
	go func() {
		fabrics, err := u.dev.Fabrics()
		known <- err == nil && slices.Equal(fabrics, []string{"iscsi"})
	}()
	select {
	case only := <-known:
		return only
	case <-time.After(fabricsWait):
		return false
	}
}

// arrive counts a command that the array has again, for its flush. The executor is held.
func (u *unit) arrive(x *command) {
	u.running++
	if x.came < u.generation {
		u.before++
	}
}

// depart counts a command that has ended, and tells whether a deferred reset comes now. The executor is
// held.
func (u *unit) depart(x *command) (due bool) {
	u.running--
	if x.came == u.generation {
		return false
	}
	u.before--
	due = u.deferred && u.before == 0
	u.deferred = u.deferred && !due
	return due
}
