package array

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/block"
)

// extentMap maps a volume's sectors to unmapped, zero, anchored or data at a
// physical address. It is a radix tree of 256 slots a node: a leaf slot is a
// window, a slot above it is either one state for all that it spans or a child.
// So a range of equal state costs a bounded number of slots whatever its length,
// and a superseded subtree is cut off in one step; its references are released
// later, in bounded steps (see garbage).
//
// A slot is a uint64: the low three bits are its kind.
//
//	kind 0 unmapped | 1 zero | 2 anchored     all that the slot spans
//	kind 3 data       the rest is the physical sector of the window's first sector
//	kind 4 detail     the rest is an index into details (leaf slots only)
//	kind 5 child      the rest is an index into nodes
type slot uint64

const (
	kindUnmapped = slot(block.Unmapped)
	kindZero     = slot(block.Zero)
	kindAnchored = slot(block.Anchored)
	kindData     = slot(block.Data)
	kindDetail   = slot(4)
	kindChild    = slot(5)
	kindMask     = slot(7)
	kindBits     = 3
)

func (s slot) kind() slot      { return s & kindMask }
func (s slot) value() uint64   { return uint64(s >> kindBits) }
func (s slot) uniform() bool   { return s <= kindAnchored }
func dataSlot(p uint64) slot   { return slot(p)<<kindBits | kindData }
func childSlot(i uint32) slot  { return slot(i)<<kindBits | kindChild }
func detailSlot(i uint32) slot { return slot(i)<<kindBits | kindDetail }

const (
	fanoutBits = 8
	fanout     = 1 << fanoutBits
)

// sums counts the sectors below a slot by state; unmapped is the rest.
//
// promised is the number of windows with an anchored sector.
type sums struct{ zero, anchored, data, promised int64 }

func (s *sums) add(o sums) {
	s.zero += o.zero
	s.anchored += o.anchored
	s.data += o.data
	s.promised += o.promised
}

func (s sums) sub(o sums) sums {
	return sums{s.zero - o.zero, s.anchored - o.anchored, s.data - o.data, s.promised - o.promised}
}

func uniformSums(k slot, sectors int64) sums {
	switch k {
	case kindZero:
		return sums{zero: sectors}
	case kindAnchored:
		return sums{anchored: sectors, promised: sectors >> windowShift}
	case kindData:
		return sums{data: sectors}
	}
	return sums{}
}

// node is one page of the map. It holds no pointer, so that the garbage collector
// never looks inside; its key in a checkpoint is (volume, level, index).
type node struct {
	slots     [fanout]slot
	sums      sums
	index     uint64 // first sector / sectors spanned
	vol       uint32
	level     uint8 // 0: slots are windows
	dirty     bool  // differs from the checkpoint
	persisted bool  // the checkpoint has this key
	live      bool
}

// spanShift returns log2 of the sectors that one slot of a node at level spans.
func spanShift(level uint8) uint { return windowShift + fanoutBits*uint(level) }

// mapArena holds the nodes and details of all volumes of an array.
type mapArena struct {
	nodes     []*node
	freeNodes []uint32
	liveNodes int
	details   detailSlab
	dirty     []uint32 // nodes whose dirty flag is set
	// reap receives what a map edit cut off; see garbage.go.
	reap func(vol uint32, pool *Pool, s slot)
	// recovering: references are not counted, they are taken from the finished map.
	recovering bool
}

func (m *mapArena) newNode(vol uint32, level uint8, index uint64, fill slot) (uint32, *node) {
	var id uint32
	if n := len(m.freeNodes); n > 0 {
		id = m.freeNodes[n-1]
		m.freeNodes = m.freeNodes[:n-1]
	} else {
		id = uint32(len(m.nodes))
		m.nodes = append(m.nodes, nil)
	}
	n := &node{vol: vol, level: level, index: index, live: true}
	if fill != 0 {
		for i := range n.slots {
			n.slots[i] = fill
		}
		n.sums = uniformSums(fill.kind(), int64(fanout)<<spanShift(level))
	}
	m.nodes[id] = n
	m.liveNodes++
	m.touch(id, n)
	return id, n
}

func (m *mapArena) touch(id uint32, n *node) {
	if !n.dirty {
		n.dirty = true
		m.dirty = append(m.dirty, id)
	}
}

// extentMap is one volume's map; the tree of height levels spans at least the
// volume.
type extentMap struct {
	arena  *mapArena
	pool   *Pool
	vol    uint32
	root   slot
	levels uint8 // nodes from root to leaf; the root slot spans windowSectors<<(8*levels)
	sum    sums  // of the whole root span
	tenant *alloc.Tenant
	thick  bool
	// rootDirty: root or levels differ from the checkpoint.
	rootDirty bool
}

// maxLevels is the height of the tree of the largest volume, 64 TiB.
const maxLevels = 4

func levelsFor(sectors uint64) uint8 {
	l := uint8(1)
	for uint64(1)<<spanShift(l) < sectors {
		l++
	}
	return l
}

// setState makes [lo, hi) uniformly s, which is not data. A range that reaches
// the end of the volume is widened by the caller to the end of the root's span.
func (m *extentMap) setState(lo, hi uint64, s slot) {
	m.sum.add(m.setSlot(&m.root, m.levels, 0, lo, hi, s))
	m.rootDirty = true
}

// setSlot applies setState to one slot at the given height (height 0 is a window)
// that begins at base, and returns how the sums changed.
func (m *extentMap) setSlot(s *slot, height uint8, base, lo, hi uint64, to slot) sums {
	if *s == to {
		return sums{}
	}
	if height == 0 {
		return m.edited(s, base>>windowShift, func(s *slot) sums { return m.setWindow(s, base, lo, hi, to) })
	}
	span := uint64(1) << spanShift(height)
	if lo <= base && hi >= base+span {
		old := m.slotSums(*s, height)
		m.cut(*s)
		*s = to
		return uniformSums(to, int64(span)).sub(old)
	}
	id, n := m.child(s, height-1, base)
	var delta sums
	shift := spanShift(height - 1)
	from, last := (max(lo, base)-base)>>shift, (min(hi, base+span)-1-base)>>shift
	for i := from; i <= last; i++ {
		delta.add(m.setSlot(&n.slots[i], height-1, base+i<<shift, lo, hi, to))
	}
	m.settle(s, id, n, delta)
	return delta
}

// setWindow applies setState to the slot of the window that begins at base.
func (m *extentMap) setWindow(s *slot, base, lo, hi uint64, to slot) sums {
	if lo <= base && hi >= base+windowSectors {
		old := m.slotSums(*s, 0)
		m.dropWindow(*s)
		*s = to
		return uniformSums(to, windowSectors).sub(old)
	}
	first := max(lo, base) - base
	return m.clearWindow(s, first, min(hi, base+windowSectors)-base-first, to)
}

// child returns the node below s, splitting a uniform slot into one.
func (m *extentMap) child(s *slot, level uint8, base uint64) (uint32, *node) {
	if s.kind() == kindChild {
		id := uint32(s.value())
		return id, m.arena.nodes[id]
	}
	id, n := m.arena.newNode(m.vol, level, base>>(spanShift(level)+fanoutBits), *s)
	*s = childSlot(id)
	return id, n
}

// settle books a change below s and folds the node into one slot when it has become uniform.
func (m *extentMap) settle(s *slot, id uint32, n *node, delta sums) {
	n.sums.add(delta)
	m.arena.touch(id, n)
	span := int64(fanout) << spanShift(n.level)
	switch {
	case n.sums == sums{}:
		*s = kindUnmapped
	case n.sums.zero == span:
		*s = kindZero
	case n.sums.anchored == span:
		*s = kindAnchored
	default:
		return
	}
	// All slots are uniform and equal or sums would differ, so nothing is to be released.
	m.arena.reap(m.vol, m.pool, childSlot(id))
}

// cut releases a subtree, by the garbage queue.
func (m *extentMap) cut(s slot) {
	if s.kind() == kindChild {
		m.arena.reap(m.vol, m.pool, s)
	}
}

func (m *extentMap) slotSums(s slot, height uint8) sums {
	switch s.kind() {
	case kindChild:
		return m.arena.nodes[s.value()].sums
	case kindDetail:
		return m.arena.details.sums(uint32(s.value()))
	}
	return uniformSums(s.kind(), int64(1)<<spanShift(height))
}

// window calls edit with the slot of the window at index w, creating the path to
// it, and books the change of sums that edit returns.
func (m *extentMap) window(w uint64, edit func(*slot) sums) {
	m.sum.add(m.windowAt(&m.root, m.levels, 0, w, edit))
}

func (m *extentMap) windowAt(s *slot, height uint8, base, w uint64, edit func(*slot) sums) sums {
	if height == 0 {
		return m.edited(s, w, edit)
	}
	if s.kind() != kindChild {
		m.rootDirty = true
	}
	id, n := m.child(s, height-1, base)
	i := w >> (fanoutBits * uint(height-1)) & (fanout - 1)
	delta := m.windowAt(&n.slots[i], height-1, base+i<<spanShift(height-1), w, edit)
	m.settle(s, id, n, delta)
	return delta
}

// find returns the slot that covers window w and the number of windows from w on
// that the same uniform slot covers (1 for data and detail).
func (m *extentMap) find(w uint64) (slot, uint64) {
	s, height := m.root, m.levels
	for s.kind() == kindChild {
		height--
		s = m.arena.nodes[s.value()].slots[w>>(fanoutBits*uint(height))&(fanout-1)]
	}
	span := uint64(1) << (fanoutBits * uint(height))
	return s, span - w&(span-1)
}

// entries counts the maximal runs of equal state (physically contiguous for
// data) in the first n sectors. It walks the map: O(slots).
func (m *extentMap) entries(n uint64) int {
	count := 0
	m.walk(block.Range{Count: n}, func(r run) bool { count++; return true })
	return count
}

// grow raises the tree until it has so many levels.
func (m *extentMap) grow(levels uint8) {
	for m.levels < levels {
		m.raise(m.levels + 1)
	}
}

// raise puts a root of the given number of levels above the tree; what it spans beyond is unmapped.
func (m *extentMap) raise(levels uint8) {
	m.rootDirty = true
	m.levels = levels
	if m.root == kindUnmapped {
		return
	}
	old := m.root
	id, n := m.arena.newNode(m.vol, levels-1, 0, kindUnmapped)
	n.slots[0] = old
	n.sums = m.sum
	m.root = childSlot(id)
}
