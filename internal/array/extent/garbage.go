// Subtrees that edits have cut off. They keep their references until they are collected, a few
// nodes at a time.

package extent

import "github.com/arraysim/arraysim/internal/array/alloc"

// Garbage is what map edits cut off: subtrees whose references are given back a
// few slots at a time, so that one command that supersedes millions of entries
// delays nobody. Space and dirty data under them stay counted until their turn.

// cutOff is a node of the garbage, and how far it has been collected.
type cutOff struct {
	space *alloc.Space
	vol   uint32
	node  uint32
	next  int // slot to look at next
}

// GarbageStep is the number of slots that one step of Collect should look at: some 50 us of work.
const GarbageStep = 1024

// HasGarbage reports whether there is anything to collect.
func (a *Arena) HasGarbage() bool { return len(a.garbage) > 0 }

// cutOff queues a subtree of a map. A node that is queued is no longer reachable: it leaves
// the checkpoint, too.
func (a *Arena) cutOff(m *Map, node uint32) {
	a.garbage = append(a.garbage, cutOff{space: m.space, vol: m.vol, node: node})
	if !a.loading {
		a.onGarbage()
	}
}

// Collect looks at up to n slots of what was cut off and reports whether anything is left. What was
// cut off last goes first, and depth first, so that the list stays as long as a tree is high.
func (a *Arena) Collect(n int) bool {
	for n > 0 && len(a.garbage) > 0 {
		top := len(a.garbage) - 1
		c := &a.garbage[top]
		nd := a.nodes[c.node]
		m := Map{arena: a, space: c.space, vol: c.vol}
		homes := false // most volumes have none, and then nothing is to be looked up for each window
		if owner := a.mapOf(c.vol); owner != nil {
			homes = owner.tenant.Marked > 0
		}
		descended := false
		for c.next < fanout && n > 0 {
			s := nd.slots[c.next]
			c.next++
			n--
			if s.kind() == kindChild {
				a.garbage = append(a.garbage, cutOff{space: c.space, vol: c.vol, node: uint32(s.value())})
				descended = true
				break
			}
			switch {
			case s.uniform():
			case homes:
				m.dropGarbage(s, nd.index<<fanoutBits|uint64(c.next-1))
			default:
				m.dropWindow(s)
			}
		}
		if descended || c.next < fanout {
			continue
		}
		a.freeNode(c.node, nd)
		a.garbage = a.garbage[:top]
	}
	return len(a.garbage) > 0
}

// dropGarbage releases what a window that was cut off refers to. Others may share its home.
func (m *Map) dropGarbage(s slot, w uint64) {
	home := alloc.NoGrain
	if !m.arena.loading {
		home = m.home(s, w)
	}
	m.dropWindow(s)
	if home != alloc.NoGrain && m.space.IsHome(home, m.vol, w) {
		m.space.ClearHome(home)
	}
}
