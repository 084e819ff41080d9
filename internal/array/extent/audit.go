// The maps of a space held against their sums, and the space against the maps, a few leaves or extents
// at a time while all of it changes.

package extent

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// NewAudit begins an audit of a space. It calls problem with what is wrong with the map of a volume,
// a line each. It is the caller's to End.
func (a *Arena) NewAudit(space *alloc.Space, problem func(vol uint32, why string)) *Audit {
	u := &Audit{tour: tour{arena: a, space: space}, found: space.NewCounts(), problem: problem}
	a.audits = append(a.audits, u)
	space.Watch(u.found)
	return u
}

// End forgets the audit.
func (u *Audit) End() {
	u.space.Unwatch(u.found)
	u.arena.audits = slices.DeleteFunc(u.arena.audits, func(x *Audit) bool { return x == u })
}

// Windows returns the number of windows with data or with several states that it has come by.
func (u *Audit) Windows() int { return u.windows }

// Step looks at n slots or grains, and those of one leaf and the nodes above it more, and reports
// whether there is anything left, be it that it waits; see Await.
func (u *Audit) Step(n int) (more bool) {
	for m := u.next(); m != nil; m = u.next() { // a volume may be new
		if n <= 0 {
			return true
		}
		if n -= u.visit(m); u.waits != nil {
			return true
		}
	}
	for ; int64(u.extent)*layout.ExtentGrains < u.space.Grains(); u.extent++ {
		if n <= 0 {
			return true
		}
		if len(u.wrong) < maxWrong {
			u.wrong = append(u.wrong, u.space.CheckExtents(u.users(), u.extent, 1)...)
		}
		n -= layout.ExtentGrains
	}
	return false
}

// maxWrong is how many lines about a space are enough, or somewhat more.
const maxWrong = 100

// users is what the space is compared with. What leaves that could not be read refer to is like what garbage does: a space that has
// it is not wrong, and to derive it from all pages would not do without them.
func (u *Audit) users() alloc.Users {
	lacks := u.arena.HasGarbage() || u.arena.PassedOver() > 0 || u.unread > 0 || u.arena.acct.HasTooMuch()
	return alloc.Users{Refs: u.found, Holds: u.arena.Refs.Any(), Garbage: lacks}
}

// Compare returns what is wrong with the space, a line each. It changes nothing, and goes once over
// the totals of all extents. Preconditions: Step has returned false, and nothing has changed since.
func (u *Audit) Compare() []string { return append(u.wrong, u.space.CheckTotals(u.users())...) }

// visit looks at the leaf where the audit is, and at the nodes above it that begin there, and goes on
// to the next leaf. It returns the number of slots that it has looked at.
func (u *Audit) visit(m *Map) (slots int) {
	if u.leaf == 0 {
		if got := m.slotSums(m.root, m.levels); got != m.sum {
			u.problem(m.vol, fmt.Sprintf("the root says %+v, its tree has %+v", m.sum, got))
		}
	}
	return u.tour.visit(m, func(nd *node.Node, at node.Key) bool {
		if nd == nil && at.Level == 0 {
			u.unread++
			u.problem(m.vol, fmt.Sprintf("page %d cannot be read", at.Index))
			return false
		}
		if nd == nil || nd.Key() != at {
			u.problem(m.vol, fmt.Sprintf("an entry of height %d leads to a page that is not its", at.Level+1))
			return false
		}
		u.node(m, nd)
		return true
	})
}

// node compares the sums of a node with those of its slots, and counts what its windows have.
func (u *Audit) node(m *Map, nd *node.Node) {
	var got Sums
	for i, s := range &nd.Slots {
		got.Add(m.slotSums(s, nd.Level))
		if nd.Level == 0 && !s.Uniform() {
			u.window(m, nd.Index<<node.FanoutBits|uint64(i), s)
		}
	}
	if got != nd.Sums {
		u.problem(m.vol, fmt.Sprintf("page %d of level %d says %+v, it holds %+v", nd.Index, nd.Level, nd.Sums, got))
	}
}

// window counts the references of a window, and finds its home.
func (u *Audit) window(m *Map, w uint64, s window.Slot) {
	u.windows++
	grains, behind := uint64(u.space.Grains()), false
	m.arena.nodes.Windows.EachGrain(s, func(g uint64) {
		if g >= grains {
			u.problem(m.vol, fmt.Sprintf("window %d lies in grain %d, behind the end of the space", w, g))
			behind = true
			return
		}
		u.found.Add(g)
	})
	if m.tenant.Marked == 0 || behind {
		return
	}
	g := m.homes.Of(s, w)
	if g == alloc.NoGrain {
		return
	}
	if u.found.AddHome(g); !m.homes.Entitled(s) {
		u.problem(m.vol, fmt.Sprintf("window %d has a home and is not entitled to one", w))
	}
}
