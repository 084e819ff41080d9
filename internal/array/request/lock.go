// Range locks. A compare-and-write holds one on its range; who would change something there waits.

package request

import "github.com/arraysim/arraysim/internal/block"

// conflict reports whether somebody else has locked a part of a range.
func (v *Volume) conflict(o *op, r block.Range) bool {
	for _, l := range v.locks {
		if l != o && l.req.Range.Overlaps(r) {
			return true
		}
	}
	return false
}

// unlock gives the lock of an op back, if it has one, and lets those go on that wait for a lock:
// what is in their way, if anything, they find out themselves.
func (v *Volume) unlock(o *op) {
	for i, l := range v.locks {
		if l == o {
			v.locks = append(v.locks[:i], v.locks[i+1:]...)
			v.lockWait.WakeAll()
			return
		}
	}
}
