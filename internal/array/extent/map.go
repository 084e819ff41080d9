// The tree: setting a state, setting data, looking a window up. Invariant: an edit takes and gives
// back the references of what it changes in the same call, and leaves the sums right.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/home"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// Map says of one volume's sectors whether they are unmapped, zero, anchored or data at a
// physical address. It is a radix tree of 256 slots a node: a leaf slot is a
// window, a slot above it is either one state for all that it spans or a child.
// So a range of equal state costs a bounded number of slots whatever its length,
// and a superseded subtree is cut off in one step; its references are released
// later, in bounded steps (see garbage.go).
type Map struct {
	arena  *Arena
	space  *alloc.Space
	tenant *alloc.Tenant // the volume's account with space; nil only in maps of garbage
	drop   func(base uint64, mask layout.Mask)
	vol    uint32
	pool   uint16
	root   window.Slot
	levels uint8 // nodes from root to leaf; the root slot spans WindowSectors<<(8*levels)
	homes  home.Homes
	// rootDirty: root or levels differ from the checkpoint.
	rootDirty bool
	abandoned bool          // no checkpoint writes the root
	sum       Sums          // of the whole root span
	leaf      uint64        // index of the one whose windows are being edited, for audits
	notes     *account.List // its own, nil: nothing is noted
	end       uint64        // index of the leaf in which the volume ends
}

// Sums counts sectors by state; unmapped is the rest.
type Sums = window.Sums

// Config is what a Map has to do with.
type Config struct {
	Space   *alloc.Space // that its data lies in
	Pool    uint16       // whose space it is, in the account of the store
	Volume  uint32       // whose map it is; it gets an account with the space
	Sectors uint64       // of the volume
	Thick   bool         // all of its windows are promised their space
	// Drop hears of sectors of a layer, which begins at physical sector base for sector 0 of its
	// window, that have lost their last reference while others of their grain have one.
	Drop func(base uint64, mask layout.Mask)
}

// NewMap makes the map of a volume, all of it unmapped. Preconditions: the volume has none.
func (a *Arena) NewMap(c Config) *Map {
	m := &Map{arena: a, space: c.Space, tenant: c.Space.AddTenant(c.Volume), drop: c.Drop, vol: c.Volume, pool: c.Pool,
		levels: node.LevelsFor(c.Sectors)}
	m.homes = home.Homes{Space: m.space, Tenant: m.tenant, Windows: &a.nodes.Windows, Vol: c.Volume, Thick: c.Thick}
	m.SetEnd(c.Sectors)
	a.acct.Open(c.Volume, c.Pool, c.Space)
	for len(a.maps) <= int(c.Volume) {
		a.maps = append(a.maps, nil)
	}
	a.maps[c.Volume] = m
	return m
}

// Abandon says that the volume is being deleted: no checkpoint writes the map's root any more.
// Until Clear, the one that the store has counts.
func (m *Map) Abandon() { m.abandoned = true }

// Clear unmaps everything and has the next checkpoint remove the root. Preconditions: Abandon.
func (m *Map) Clear() {
	m.SetState(0, m.Span(), block.Unmapped)
	m.arena.deadRoots = append(m.arena.deadRoots, m.vol)
}

// Remove forgets the map and closes the volume's account with the space. What Clear has cut off may
// still be garbage. Preconditions: Clear, and no grain is marked as a home of the volume.
func (m *Map) Remove() {
	m.arena.maps[m.vol] = nil
	m.space.RemoveTenant(m.tenant)
}

// Tenant returns the volume's account with its space.
func (m *Map) Tenant() *alloc.Tenant { return m.tenant }

// Sums returns what the map has, what it was widened by behind the volume's end included.
func (m *Map) Sums() Sums { return m.sum }

// Span returns the number of sectors that the tree spans, at least those of the volume.
func (m *Map) Span() uint64 { return uint64(1) << node.SpanShift(m.levels) }

// SetState makes sectors [lo, hi) uniformly one state, which is not data. A range that reaches
// the end of the volume is widened by the caller to Span, so that a whole volume is one slot.
func (m *Map) SetState(lo, hi uint64, state block.State) {
	m.sum.Add(m.setSlot(&m.root, m.levels, 0, lo, hi, window.Slot(state)))
	m.rootDirty = true
}

// SetData makes a range data at physical sectors from phys on.
func (m *Map) SetData(r block.Range, phys uint64) {
	const leaf = node.Fanout * layout.WindowSectors // what is below one node of the lowest level
	for at, end := r.Start, r.End(); at < end; {
		n := min(leaf-at%leaf, end-at)
		m.sum.Add(m.setDataAt(&m.root, m.levels, 0, at, n, phys))
		at += n
		phys += n
	}
}

// setSlot applies SetState to one slot at the given height (height 0 is a window)
// that begins at base, and returns how the sums changed.
func (m *Map) setSlot(s *window.Slot, height uint8, base, lo, hi uint64, to window.Slot) Sums {
	if *s == to {
		return Sums{}
	}
	if height == 0 {
		w := base >> layout.WindowShift
		m.leaf = w >> node.FanoutBits
		was := m.homeBefore(*s, w)
		delta := m.setWindow(s, base, lo, hi, to)
		m.updateHome(*s, w, was)
		return delta
	}
	span := uint64(1) << node.SpanShift(height)
	if lo <= base && hi >= base+span {
		old := m.slotSums(*s, height)
		m.cut(*s, base>>(node.SpanShift(height-1)+node.FanoutBits))
		*s = to
		return window.Uniform(to, int64(span)).Sub(old)
	}
	id, n := m.child(s, height-1, base)
	var delta Sums
	shift := node.SpanShift(height - 1)
	from, last := (max(lo, base)-base)>>shift, (min(hi, base+span)-1-base)>>shift
	if height == 1 {
		m.noting(n)
		delta = m.setSlots(n, base, lo, hi, from, last, to)
	} else {
		for i := from; i <= last; i++ {
			delta.Add(m.setSlot(&n.Slots[i], height-1, base+i<<shift, lo, hi, to))
		}
	}
	m.collapse(s, id, n, delta)
	return delta
}

// setSlots is setSlot of the windows from to last of the node that begins at base. Most of them
// have no data, and then no home, either.
func (m *Map) setSlots(n *node.Node, base, lo, hi, from, last uint64, to window.Slot) (delta Sums) {
	var was [window.KindAnchored + 1]int64 // windows by the state that they were of
	for i := from; i <= last; i++ {
		s, at := &n.Slots[i], base+i<<layout.WindowShift
		if s.Uniform() && lo <= at && hi >= at+layout.WindowSectors {
			was[*s]++
			*s = to
			continue
		}
		delta.Add(m.setSlot(s, 0, at, lo, hi, to))
	}
	for kind, k := range was {
		delta.Add(window.Uniform(to, k*layout.WindowSectors).Sub(window.Uniform(window.Slot(kind), k*layout.WindowSectors)))
	}
	return delta
}

// setWindow applies SetState to the slot of the window that begins at base.
func (m *Map) setWindow(s *window.Slot, base, lo, hi uint64, to window.Slot) Sums {
	if lo <= base && hi >= base+layout.WindowSectors {
		old := m.slotSums(*s, 0)
		m.dropWindow(*s)
		*s = to
		return window.Uniform(to, layout.WindowSectors).Sub(old)
	}
	first := max(lo, base) - base
	return m.arena.nodes.Windows.SetState(s, first, min(hi, base+layout.WindowSectors)-base-first, to, (*references)(m))
}

// child returns the node below s, splitting a uniform slot into one.
func (m *Map) child(s *window.Slot, level uint8, base uint64) (uint32, *node.Node) {
	index := base >> (node.SpanShift(level) + node.FanoutBits)
	switch s.Kind() {
	case window.KindChild:
		id := uint32(s.Value())
		return id, m.arena.nodes.At(id)
	case window.KindPacked:
		return m.arena.nodes.Unpack(s, node.LeafKey(m.vol, index))
	case window.KindAbsent:
		return m.readAt(s, index)
	}
	if level == 0 {
		m.arena.nodes.Trim()
		m.readDoomed(node.LeafKey(m.vol, index))
	}
	id, n := m.arena.newNode(node.Key{Vol: m.vol, Level: level, Index: index}, *s)
	*s = window.Child(id)
	return id, n
}

// collapse counts a change below s and folds the node into one slot when it has become uniform.
func (m *Map) collapse(s *window.Slot, id uint32, n *node.Node, delta Sums) {
	n.Sums.Add(delta)
	m.arena.noteDirty(id, n)
	if state, yes := n.Uniform(); yes {
		// All slots are uniform and equal or sums would differ, so nothing is to be released.
		*s = state
		m.arena.cutOff(m, window.Child(id), n.Index)
	}
}

// cut releases a subtree, from the node of an index on, by the garbage queue.
func (m *Map) cut(s window.Slot, index uint64) {
	if s.Leads() {
		m.arena.cutOff(m, s, index)
	}
}

func (m *Map) slotSums(s window.Slot, height uint8) Sums { return m.arena.nodes.Sums(s, height) }

// setDataAt applies SetData to n sectors from at on, which lie below one node of the lowest level,
// below a slot at the given height that begins at base, and returns how the sums changed. It
// creates the path to the windows. At height 0 they lie in one window.
func (m *Map) setDataAt(s *window.Slot, height uint8, base, at, n, phys uint64) (delta Sums) {
	w := at >> layout.WindowShift
	if height == 0 {
		m.leaf = w >> node.FanoutBits
		was := m.homeBefore(*s, w)
		delta = m.arena.nodes.Windows.SetData(s, at&(layout.WindowSectors-1), n, phys, (*references)(m))
		m.updateHome(*s, w, was)
		return delta
	}
	if !s.Leads() {
		m.rootDirty = true
	}
	id, nd := m.child(s, height-1, base)
	if height > 1 {
		i := w >> (node.FanoutBits * uint(height-1)) & (node.Fanout - 1)
		delta = m.setDataAt(&nd.Slots[i], height-1, base+i<<node.SpanShift(height-1), at, n, phys)
	} else {
		m.noting(nd)
		for end := at + n; at < end; {
			k := min(layout.WindowSectors-at&(layout.WindowSectors-1), end-at)
			i := at >> layout.WindowShift & (node.Fanout - 1)
			delta.Add(m.setDataAt(&nd.Slots[i], 0, base+i<<node.SpanShift(0), at, k, phys))
			at, phys = at+k, phys+k
		}
	}
	m.collapse(s, id, nd, delta)
	return delta
}

// find returns the slot that covers window w and the number of windows from w on
// that the same uniform slot covers (1 for data and detail).
func (m *Map) find(w uint64) (window.Slot, uint64) {
	s, height := m.root, m.levels
	var nd *node.Node
	for s.Kind() == window.KindChild {
		height--
		nd = m.arena.nodes.At(uint32(s.Value()))
		s = nd.Slots[w>>(node.FanoutBits*uint(height))&(node.Fanout-1)]
	}
	if s.Kind() == window.KindPacked || s.Kind() == window.KindAbsent {
		leaf := (w >> node.FanoutBits) & (uint64(1)<<(node.FanoutBits*uint(m.levels-1)) - 1)
		at := m.arena.slotAt(node.LeafKey(m.vol, leaf))
		if s.Kind() == window.KindPacked {
			_, nd = m.arena.nodes.Unpack(at, node.LeafKey(m.vol, leaf))
		} else {
			_, nd = m.readAt(at, leaf)
		}
		return nd.Slots[w&(node.Fanout-1)], 1
	}
	if height == 0 && (m.arena.nodes.Crowded() || m.arena.away.leaves > 0) {
		nd.Used = true
	}
	span := uint64(1) << (node.FanoutBits * uint(height))
	return s, span - w&(span-1)
}

// HasData reports whether a window has data, perhaps among other states.
func (m *Map) HasData(w uint64) bool {
	s, _ := m.find(w)
	return s.Kind() == window.KindData || s.Kind() == window.KindDetail && m.arena.nodes.Windows.Sums(s).Data > 0
}

// SetEnd says how many sectors the volume has. The leaf in which it ends is always present, so that
// SumsOf reads none. Preconditions: it is present.
func (m *Map) SetEnd(sectors uint64) { m.end = node.LeafOf(max(1, sectors) - 1) }

// Grow raises the tree until it spans so many sectors.
func (m *Map) Grow(sectors uint64) {
	for levels := node.LevelsFor(sectors); m.levels < levels; {
		m.raise(m.levels + 1)
	}
}

// raise puts a root of the given number of levels above the tree; what it spans beyond is unmapped.
func (m *Map) raise(levels uint8) {
	m.rootDirty = true
	m.levels = levels
	if m.root == window.KindUnmapped {
		return
	}
	old := m.root
	id, n := m.arena.newNode(node.Key{Vol: m.vol, Level: levels - 1}, window.KindUnmapped)
	n.Slots[0] = old
	n.Sums = m.sum
	m.root = window.Child(id)
}
