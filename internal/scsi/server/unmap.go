// Changes of LUN maps, and what becomes of commands whose LUN has left the map: nothing of them begins
// any more, what a device has is withdrawn if that can be, and the rest runs to its end. Until then
// Target.detached has the I_T_L nexus, for task management functions and the end of its nexus.

package server

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/names"
)

// Map makes u visible as lun to the named initiator; the empty name stands for
// every initiator that has no map of its own. Unmap takes it away. Both raise
// REPORTED LUNS DATA HAS CHANGED on the nexuses concerned.
func (t *Target) Map(initiator string, lun uint16, u *Unit) error {
	if lun > names.MaxLUN {
		return fmt.Errorf("LUN %d is above %d", lun, names.MaxLUN)
	}
	if u.removed {
		return fmt.Errorf("unit %s is removed", u.info.Name)
	}
	if v := t.maps.Set(initiator, lun, u); v != nil {
		return fmt.Errorf("LUN %d is already %s", lun, v.info.Name)
	}
	if !t.remapping {
		t.remap(nil)
	}
	return nil
}

// Unmap takes lun out of the initiator's map. What ran there ends; see Remap, which tells when.
func (t *Target) Unmap(initiator string, lun uint16) {
	if u := t.maps.Clear(initiator, lun); t.remapping && u != nil {
		t.unmapped = append(t.unmapped, u)
	} else if u != nil {
		t.remap(nil)
	}
}

// Remap makes one change of several, which change makes by Map and Unmap: who sees a unit at a LUN
// before and afterwards loses nothing. ended is called, never from inside Remap, when nothing runs any
// more of what came by the LUNs that have gone, or uses their units by them; nor of what has been left
// there of earlier changes, and of nexuses that have ended.
func (t *Target) Remap(change, ended func()) {
	t.remapping = true
	change()
	t.remapping = false
	w := NewWaiter(ended)
	t.remap(w)
	for _, u := range t.unmapped {
		left := func(x *ITL) bool { return !x.Attached() && !slices.Contains(t.maps.Of(x.n.initiator), u) }
		for _, task := range u.tasks() {
			if left(task.state.itl) {
				w.Await(task)
			}
		}
		t.StopCopies(w, left)
		t.copies.UnmapLeft(u, w, left)
	}
	t.unmapped = nil
	w.Less(t)
}

// CountRemaps has count, called on the executor, count from now on every change of the nexus's LUNs, and that other nexuses abort
// what came by one, and return the new number. All of that, of nexuses before it, was now. A front end gives Task.Remaps the
// number of when a command begins to arrive.
func (n *Nexus) CountRemaps(count func() uint64, now uint64) { n.countRemap, n.since = count, now }

// remap has the nexuses see what the maps say. w, which may be nil, waits for what they see no longer.
func (t *Target) remap(w *Waiter) {
	t.Enter()
	defer t.Leave()
	t.Flush()
	var gone []*ITL
	for _, n := range t.nexuses {
		gone = n.remap(gone)
	}
	for _, x := range gone { // no task begins in the place of another before all have been looked at
		x.u.paused++
	}
	for _, x := range gone {
		t.copies.Unmap(x, w)
		for _, task := range x.u.tasks() {
			if task.state.itl == x {
				task.expel(w)
			}
		}
	}
	for _, x := range gone {
		x.u.paused--
		x.u.schedule()
	}
}

// abortLeft aborts those tasks of the nexus that match and came by a LUN that it sees no longer, and
// reports whether there are any. w waits for them.
func (n *Nexus) abortLeft(w *Waiter, match func(*Task) bool) (found bool) {
	for _, x := range n.t.detached {
		if x.n == n && x.tasks > 0 {
			x.u.abortWhere(w, n, func(t *Task) bool {
				hit := t.state.itl == x && match(t)
				found = found || hit
				return hit
			})
		}
	}
	return found
}
