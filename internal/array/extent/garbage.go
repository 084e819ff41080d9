// Subtrees that edits have cut off. They keep their references until they are collected, a few
// nodes at a time.

package extent

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/cutoff"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/home"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/window"
)

// garbage is what was cut off of the maps of one space. Space and dirty data below it stay counted until its turn.
// What was cut off last goes first, and depth first, so that the list stays as long as a tree is high.
type garbage struct {
	space *alloc.Space
	list  []cutOff
	index cutoff.Index
}

// cutOff is a node of the garbage, and how far it has been collected.
type cutOff struct {
	vol   uint32
	index uint64
	slot  window.Slot // leads to it
	level uint8       // its own
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

// HasGarbageOf reports whether there is anything to collect of maps of a space. What is left to the next start is not:
// nobody waits for that.
func (a *Arena) HasGarbageOf(space *alloc.Space) bool {
	i := a.garbageOf(space)
	return i >= 0 && (!a.away.rest || !a.waits(&a.garbage[i]) || a.waitsFor(&a.garbage[i]) != nil)
}

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
	level := uint8(0)
	if s.Kind() == window.KindChild {
		level = a.nodes.At(uint32(s.Value())).Level
	}
	g.list = append(g.list, cutOff{vol: m.vol, index: index, slot: s, level: level, audited: a.audited(m, index<<(node.FanoutBits*uint(level)))})
	if !a.loading {
		a.onGarbage()
	}
}

// Collect looks at up to n slots of what was cut off and reports whether anything is left. The
// spaces take turns. It ends early where all that is left waits for leaves that are being read.
func (a *Arena) Collect(n int) bool {
	for waiting := 0; n > 0 && waiting < len(a.garbage); {
		a.turn = (a.turn + 1) % len(a.garbage)
		if waiting++; !a.waits(&a.garbage[a.turn]) {
			n, waiting = a.collect(a.turn, n), 0
		}
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

// collect looks at up to n slots of the i-th space's garbage, and returns how many of them are left. It ends
// early before a leaf that has to be read.
func (a *Arena) collect(i, n int) int {
	g := &a.garbage[i]
	for n > 0 && len(g.list) > 0 {
		top := len(g.list) - 1
		c := &g.list[top]
		switch c.slot.Kind() {
		case window.KindPacked:
			a.nodes.Unpack(&c.slot, node.LeafKey(c.vol, c.index))
		case window.KindAbsent:
			if !a.passOver(g) {
				return n
			}
			continue
		}
		id := uint32(c.slot.Value())
		nd := a.nodes.At(id)
		m := &a.collected
		*m = Map{arena: a, space: g.space, vol: c.vol, leaf: c.index, homes: home.Homes{Space: g.space, Windows: &a.nodes.Windows, Vol: c.vol}}
		m.noting(nd)
		a.collecting(c.audited)
		homes := false // most volumes have none, and then nothing is to be looked up for each window
		if owner := a.mapOf(c.vol); owner != nil {
			homes = owner.tenant.Marked > 0
		}
		descended := false
		for c.next < node.Fanout && n > 0 {
			s := nd.Slots[c.next]
			c.next++
			n--
			if s.Leads() {
				g.list = append(g.list, cutOff{vol: c.vol, index: c.index<<node.FanoutBits | uint64(c.next-1), slot: s, level: c.level - 1, audited: c.audited})
				descended = true
				break
			}
			if s.Uniform() {
				continue
			}
			if nd.Slots[c.next-1] = window.KindUnmapped; homes {
				m.dropGarbage(s, nd.Index<<node.FanoutBits|uint64(c.next-1))
			} else {
				m.dropWindow(s)
			}
		}
		if descended || c.next < node.Fanout {
			continue
		}
		a.freeNode(id, nd)
		g.pop()
	}
	if len(g.list) == 0 { // the list stays behind the end, to be used again
		last := len(a.garbage) - 1
		a.garbage[i], a.garbage[last] = a.garbage[last], garbage{list: g.list}
		a.garbage = a.garbage[:last]
	}
	return n
}

// CollectNow collects some garbage of a space, and waits for a leaf that it needs: at a start. It reports whether
// there is more.
func (a *Arena) CollectNow(space *alloc.Space) bool {
	i := a.garbageOf(space)
	if i < 0 {
		return false
	}
	list, rest := a.garbage[i].list, a.away.rest
	if c := &list[len(list)-1]; c.slot.Kind() == window.KindAbsent {
		k := node.LeafKey(c.vol, c.index)
		page, err := a.away.ReadNow(demandOf(k))
		if err == nil {
			_, _, err = a.bringIn(&c.slot, k, page)
		}
		if err != nil {
			a.away.lost[k] = struct{}{}
		}
	}
	a.away.rest = true // no other one is asked for
	a.collect(i, GarbageStep)
	a.away.rest = rest
	return a.garbageOf(space) >= 0
}

// pop takes the last node from the list, which is used again: what an audit has found is large.
func (g *garbage) pop() {
	top := len(g.list) - 1
	g.index.Pop(len(g.list), g.key(top))
	g.list[top].audited = nil
	g.list = g.list[:top]
}

// key returns that of a node of the list.
func (g *garbage) key(at int) node.Key {
	c := &g.list[at]
	return node.Key{Vol: c.vol, Level: c.level, Index: c.index}
}

// readAhead is how many leaves of a node that is being collected are read at a time.
const readAhead = 16

// passOver goes past the absent leaf that garbage ends with, where there is nothing to be collected of it:
// it cannot be read, so that what it refers to stays taken until the next start, and is nobody's home: where a
// window is promised its space, another grain is reserved for it. Else it has that read, with
// others that come next, and returns false. One that is being read again stays until the answer has come: a leaf
// that is made later under its key would get that answer.
func (a *Arena) passOver(g *garbage) bool {
	top := len(g.list) - 1
	k := node.LeafKey(g.list[top].vol, g.list[top].index)
	if _, lost := a.away.lost[k]; !lost || a.away.Reading(demandOf(k)) != nil {
		if !a.away.rest && !a.loading {
			a.away.Read(demandOf(k))
			a.readNext(g, top)
		}
		return false
	}
	delete(a.away.lost, k)
	a.away.passed++
	a.away.leaves--
	a.liveNodes--
	a.acct.Unread(k)
	if m := a.mapOf(k.Vol); m != nil { // the map has nothing there, see the invariants of absent leaves
		g.space.ClearHomesOf(k.Vol, k.Index<<node.FanoutBits, node.Fanout)
	}
	a.debt = max(0, a.debt-1)
	g.pop()
	return true
}

// readNext has leaves read that come behind the one at a place of the list.
func (a *Arena) readNext(g *garbage, at int) {
	if at == 0 || g.list[at-1].slot.Kind() != window.KindChild {
		return
	}
	c := &g.list[at-1]
	nd := a.nodes.At(uint32(c.slot.Value()))
	if nd.Level != 1 {
		return
	}
	for i, n := c.next, 1; i < node.Fanout && n < readAhead; i++ {
		k := node.LeafKey(c.vol, c.index<<node.FanoutBits|uint64(i))
		if _, lost := a.away.lost[k]; nd.Slots[i].Kind() == window.KindAbsent && !lost {
			a.away.Read(demandOf(k))
			n++
		}
	}
}

// waits reports whether garbage has to wait for a leaf.
func (a *Arena) waits(g *garbage) bool {
	return a.waitsFor(g) != nil || (a.away.rest || a.loading) && g.list[len(g.list)-1].slot.Kind() == window.KindAbsent
}

// waitsFor returns the queue of the leaf that garbage waits for, nil if it waits for none.
func (a *Arena) waitsFor(g *garbage) *ticket.Queue {
	if a.away.leaves == 0 {
		return nil
	}
	c := &g.list[len(g.list)-1]
	if c.slot.Kind() != window.KindAbsent {
		return nil
	}
	return a.away.Reading(demand.Key{Volume: c.vol, Leaf: c.index})
}

// GarbageReads returns the queue of the leaf that the garbage of a space waits for, nil if it can be
// collected, or there is none.
func (a *Arena) GarbageReads(space *alloc.Space) *ticket.Queue {
	if i := a.garbageOf(space); i >= 0 {
		return a.waitsFor(&a.garbage[i])
	}
	return nil
}

// Collectable reports whether there is garbage that waits for nothing.
func (a *Arena) Collectable() bool {
	return slices.ContainsFunc(a.garbage, func(g garbage) bool { return !a.waits(&g) })
}

// GarbageRead returns the queue of a leaf that all garbage waits for, nil if some of it can be collected, or
// there is none.
func (a *Arena) GarbageRead() *ticket.Queue {
	if len(a.garbage) == 0 || a.Collectable() {
		return nil
	}
	return a.waitsFor(&a.garbage[0])
}

// garbageLacks reports whether a leaf with a key is among the garbage and absent.
func (a *Arena) garbageLacks(k node.Key) bool {
	return a.away.leaves > 0 && k.Level == 0 && a.garbageSlot(k) != nil
}

// garbageSlot returns the slot of the absent leaf with a key that is among the garbage, nil if there is none.
func (a *Arena) garbageSlot(k node.Key) (slot *window.Slot) {
	a.eachBelow(k, func(s *window.Slot) {
		if s.Kind() == window.KindAbsent {
			slot = s
		}
	})
	return slot
}

// eachBelow calls fn for the slots that lead to the leaf with a key and that are below a node of the garbage, or lead to it,
// and were not looked at.
func (a *Arena) eachBelow(k node.Key, fn func(s *window.Slot)) {
	for i := range a.garbage {
		g := &a.garbage[i]
		g.index.Find(len(g.list), g.key, k, func(at int) {
			c := &g.list[at]
			if s := a.nodes.LeafBelow(&c.slot, c.index, c.next, k.Index); s != nil {
				fn(s)
			}
		})
	}
}

// dropGarbage releases what a window that was cut off refers to. Others may share its home.
func (m *Map) dropGarbage(s window.Slot, w uint64) {
	home := alloc.NoGrain
	if !m.arena.loading {
		home = m.homes.Of(s, w)
	}
	m.dropWindow(s)
	if home != alloc.NoGrain && m.space.IsHome(home, m.vol, w) {
		m.space.ClearHome(home)
	}
}
