// What an audit has found up to now, kept right while maps are edited and garbage is collected.

package extent

import (
	"fmt"
	"math"

	"github.com/arraysim/arraysim/internal/array/alloc"
)

// Audit goes through the maps of a space, volume by volume and leaf by leaf, and counts what they
// refer to; then it compares the space with that, extent by extent. It changes nothing. Maps may be
// edited between two of its steps.
//
// Invariant: found has the references of all leaves that lie before where the audit is, as they are
// now, and of all that were there when they were cut off and are not collected yet. So an edit of
// such a leaf changes found as it changes the space. Whatever of the garbage was cut off before the
// audit has come there, found lacks; and so it does of leaves that could not be read.
//
// Homes need no such care: a grain that became one since the audit began is taken for one (see
// alloc.Space.Watch), and who is none any more nobody asks for.
type Audit struct {
	tour
	found   *alloc.Counts
	below   uint64 // leaves before this one of what is being collected are in found
	windows int
	unread  int // leaves that could not be read: found lacks what they refer to
	problem func(vol uint32, why string)
	extent  int      // that is compared next
	wrong   []string // with the space
}

// audited is what an audit has found of a subtree that was cut off: leaves before one.
type audited struct {
	by    *Audit
	below uint64
}

// has reports whether found has the references of the leaf of a map that is being edited, or of the
// leaf that is being collected.
func (u *Audit) has(m *Map) bool {
	if m.tenant == nil {
		return m.leaf < u.below
	}
	return m.space == u.space && m.leaf < u.before(m.vol)
}

// before returns the leaf of a volume before which the audit has been everywhere.
func (u *Audit) before(vol uint32) uint64 {
	switch {
	case vol < u.vol:
		return math.MaxUint64
	case vol == u.vol:
		return u.leaf
	}
	return 0
}

// retained hears of a reference that a leaf takes.
func (u *Audit) retained(m *Map, g uint64) {
	if u.has(m) {
		u.found.Add(g)
	}
}

// released hears of a reference that a leaf gives back.
func (u *Audit) released(m *Map, g uint64) {
	if u.has(m) && !u.found.Sub(g) && u.unread == 0 {
		u.problem(m.vol, fmt.Sprintf("a reference on grain %d was given back that the map did not have", g))
	}
}

// audited returns what audits have found of a subtree of a map, from a leaf on: nothing, if there is no audit.
func (a *Arena) audited(m *Map, leaf uint64) (list []audited) {
	for _, u := range a.audits {
		if below := u.before(m.vol); m.space == u.space && below > leaf {
			list = append(list, audited{u, below})
		}
	}
	return list
}

// collecting tells audits what is being collected.
func (a *Arena) collecting(list []audited) {
	for _, u := range a.audits {
		u.below = 0
	}
	for _, x := range list {
		x.by.below = x.below
	}
}
