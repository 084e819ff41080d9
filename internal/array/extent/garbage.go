// Subtrees that edits have cut off. They keep their references until they are collected, a few
// nodes at a time.

package extent

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Garbage is what map edits cut off: subtrees whose references are given back a
// few slots at a time, so that one command that supersedes millions of entries
// delays nobody. Space and dirty data under them stay counted until their turn.

// garbage is what was cut off of the maps of one space. What was cut off last goes first, and depth
// first, so that the list stays as long as a tree is high.
type garbage struct {
	space *alloc.Space
	list  []cutOff
}

// cutOff is a node of the garbage, and how far it has been collected.
type cutOff struct {
	vol   uint32
	index uint64
	slot  window.Slot // leads to it
	next  int         // slot to look at next

	audited []audited // what audits have found of it
}

// GarbageStep is the number of slots that one step of Collect should look at: some 50 us of work.
const GarbageStep = 1024

// maxDebt is how many nodes may be made while there is garbage: 2 MiB, and details.
const maxDebt = 1024

// HasGarbage reports whether there is anything to collect.
func (a *Arena) HasGarbage() bool { return len(a.garbage) > 0 }

// Pay collects a step of garbage where edits make nodes faster than that is done, and reports whether
// they do. Who is about to edit asks first, and lets others have their turn: else memory has no bound.
func (a *Arena) Pay() bool {
	owes := len(a.garbage) > 0 && a.debt > maxDebt
	if owes {
		a.Collect(GarbageStep)
	}
	return owes
}

// HasGarbageOf reports whether there is anything to collect of maps of a space.
func (a *Arena) HasGarbageOf(space *alloc.Space) bool { return a.garbageOf(space) >= 0 }

// garbageOf returns the place of a space's garbage in the list, -1 if there is none.
func (a *Arena) garbageOf(space *alloc.Space) int {
	return slices.IndexFunc(a.garbage, func(g garbage) bool { return g.space == space })
}

// cutOff queues a subtree of a map, from the node of an index on that a slot leads to. A node that is
// queued is no longer reachable: it leaves the checkpoint, too.
func (a *Arena) cutOff(m *Map, s window.Slot, index uint64) {
	i := a.garbageOf(m.space)
	if len(a.garbage) == 0 {
		a.debt = 0
	}
	if i < 0 {
		if i = len(a.garbage); i < cap(a.garbage) { // with a list that was used before
			a.garbage = a.garbage[:i+1]
		} else {
			a.garbage = append(a.garbage, garbage{})
		}
		a.garbage[i].space = m.space
	}
	g := &a.garbage[i]
	g.list = append(g.list, cutOff{vol: m.vol, index: index, slot: s, audited: a.audited(m, s, index)})
	if !a.loading {
		a.onGarbage()
	}
}

// Collect looks at up to n slots of what was cut off and reports whether anything is left. The
// spaces take turns.
func (a *Arena) Collect(n int) bool {
	for n > 0 && len(a.garbage) > 0 {
		a.turn = (a.turn + 1) % len(a.garbage)
		n = a.collect(a.turn, n)
	}
	return len(a.garbage) > 0
}

// CollectOf is Collect of the garbage of one space alone.
func (a *Arena) CollectOf(space *alloc.Space, n int) bool {
	if i := a.garbageOf(space); i >= 0 {
		a.collect(i, n)
	}
	return a.HasGarbageOf(space)
}

// collect looks at up to n slots of the i-th space's garbage, and returns how many of them are left.
func (a *Arena) collect(i, n int) int {
	g := &a.garbage[i]
	for n > 0 && len(g.list) > 0 {
		top := len(g.list) - 1
		c := &g.list[top]
		if c.slot.Kind() == window.KindPacked {
			id, _ := a.unpack(c.slot, c.vol, c.index)
			c.slot = window.Child(id)
		}
		id := uint32(c.slot.Value())
		nd := a.nodes[id]
		m := &a.collected
		*m = Map{arena: a, space: g.space, vol: c.vol, leaf: c.index}
		a.collecting(c.audited)
		homes := false // most volumes have none, and then nothing is to be looked up for each window
		if owner := a.mapOf(c.vol); owner != nil {
			homes = owner.tenant.Marked > 0
		}
		descended := false
		for c.next < fanout && n > 0 {
			s := nd.slots[c.next]
			c.next++
			n--
			if s.Leads() {
				g.list = append(g.list, cutOff{vol: c.vol, index: c.index<<fanoutBits | uint64(c.next-1), slot: s, audited: c.audited})
				descended = true
				break
			}
			switch {
			case s.Uniform():
			case homes:
				m.dropGarbage(s, nd.index<<fanoutBits|uint64(c.next-1))
			default:
				m.dropWindow(s)
			}
		}
		if descended || c.next < fanout {
			continue
		}
		a.freeNode(id, nd)
		g.list[top].audited = nil // the list is used again, and what an audit has found is large
		g.list = g.list[:top]
	}
	if len(g.list) == 0 { // the list stays behind the end, to be used again
		last := len(a.garbage) - 1
		a.garbage[i], a.garbage[last] = a.garbage[last], garbage{list: g.list}
		a.garbage = a.garbage[:last]
	}
	return n
}

// dropGarbage releases what a window that was cut off refers to. Others may share its home.
func (m *Map) dropGarbage(s window.Slot, w uint64) {
	home := alloc.NoGrain
	if !m.arena.loading {
		home = m.home(s, w)
	}
	m.dropWindow(s)
	if home != alloc.NoGrain && m.space.IsHome(home, m.vol, w) {
		m.space.ClearHome(home)
	}
}
