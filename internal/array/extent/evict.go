// Which leaves leave memory, and when: those that nobody has looked at for longer, where all of them take
// more than they may. What a checkpoint has to write, or may not be durable, and what is kept for somebody
// stays (package demand).

package extent

import (
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// DefaultMapBytes is what leaves may take of memory, where nobody says anything else: those of some 8 TiB that
// were written at random in 4 KiB, or of far more that were written in sequence.
const DefaultMapBytes = 1 << 30

// EvictStep is how many slots a step of Evict looks at: some 20 us of work.
const EvictStep = 1024

// Crowded reports whether leaves take more memory than they may, and Evict may find some that can leave.
func (a *Arena) Crowded() bool {
	w := &a.away
	return w.most > 0 && w.vain < 2 && a.over()
}

// over reports whether leaves take more memory than they may.
func (a *Arena) over() bool { return a.nodes.MemoryBytes() > a.away.most }

// Evict looks at up to n slots and has leaves leave that are as the store has them and that nobody has looked
// at since it came by last, as long as all of them take more memory than they may. Nobody holds a leaf, or
// what is in one, or relies on Missing, when it is called: it is an event of its own.
func (a *Arena) Evict(n int) {
	w := &a.away
	for n > 0 && a.Crowded() {
		m := a.evicting()
		if m == nil {
			return
		}
		s := a.nodes.NextLeaf(&m.root, m.levels, &w.leaf, &n)
		if s == nil {
			continue
		}
		w.struck = a.leaves(m, s, w.leaf) || w.struck
		w.leaf++
	}
}

// evicting returns the map in which Evict goes on, nil if there is none.
func (a *Arena) evicting() *Map {
	w := &a.away
	for range len(a.maps) + 1 {
		if int(w.vol) >= len(a.maps) {
			if w.vain++; w.struck {
				w.vain = 0
			}
			w.vol, w.leaf, w.struck = 0, 0, false
			if w.vain >= 2 {
				return nil
			}
		}
		if m := a.maps[w.vol]; m != nil && w.leaf>>(node.FanoutBits*uint(m.levels-1)) == 0 {
			return m
		}
		w.vol, w.leaf = w.vol+1, 0
	}
	return nil
}

// leaves has a leaf leave that a slot leads to, if it may, and reports whether it has, or may the next time.
func (a *Arena) leaves(m *Map, s *window.Slot, leaf uint64) bool {
	if s.Kind() == window.KindAbsent || leaf == m.end {
		return false
	}
	nd := (*node.Node)(nil)
	if s.Kind() == window.KindChild {
		nd = a.nodes.At(uint32(s.Value()))
	}
	switch {
	case nd != nil && nd.Dirty || a.away.Needed(demand.Key{Volume: m.vol, Leaf: leaf}): // what is kept keeps its mark, too
		return false
	case nd != nil && nd.Used:
		nd.Used = false
		return true
	}
	a.nodes.Drop(s)
	a.away.leaves++
	return true
}
