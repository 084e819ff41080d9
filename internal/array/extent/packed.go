// Packed leaves: which leaves are packed, and when. A leaf that is packed is the same leaf, and who
// looks at it or edits it unpacks it first.
//
// Invariant: a packed leaf is in the store as it is here; the slot that leads to it is of
// window.KindPacked.

package extent

import (
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/window"
)

// DefaultLeafBytes is what leaves may take that are not packed, where nobody says anything else: those
// of some 900 GiB that were written in whole windows, or of 200 GiB in 4 KiB.
const DefaultLeafBytes = 128 << 20

// What one call of trim does: it looks at a few nodes, and packs two at the most, so that who makes
// one pays for little more than that. Where very many leaves were not packed once, as behind a burst of
// writes, most numbers are nobody's: it passes by more of these.
const (
	trimSteps = 512
	trimLooks = 16
	trimPacks = 2
)

// maxSpares is how many nodes that were packed are kept for those that are unpacked next.
const maxSpares = 8

// leafBytes returns what the leaves take that are not packed, with their windows.
func (a *Arena) leafBytes() uint64 {
	return uint64(a.loose)*uint64(unsafe.Sizeof(node{})) + a.windows.LooseBytes()
}

// trim packs leaves while those that are not take more than LeafBytes: some that nobody has looked
// at since it came by last, and that are as the checkpoint has them. Nobody holds a leaf, or what is
// in one, when it is called.
func (a *Arena) trim() {
	a.crowded = a.leafBytes() > a.LeafBytes
	if !a.crowded || a.held > 0 {
		return
	}
	looks, packs := 0, 0
	for steps := min(trimSteps, len(a.nodes)); steps > 0 && looks < trimLooks && packs < trimPacks; steps-- {
		if a.hand++; a.hand >= len(a.nodes) {
			a.hand = 0
		}
		nd := a.nodes[a.hand]
		if nd == nil {
			continue
		}
		looks++
		switch {
		case nd.level > 0 || nd.dirty:
		case nd.used:
			nd.used = false
		default:
			if s := a.slotAt(nd.key()); s != nil && *s == window.Child(uint32(a.hand)) { // else it is garbage
				a.packInto(s, uint32(a.hand), nd)
				packs++
			}
		}
	}
}

// packInto packs a leaf that a slot leads to. One that would be too large stays as it is.
func (a *Arena) packInto(s *window.Slot, id uint32, nd *node) {
	packed, ok := a.windows.Pack(&nd.slots, nd.sums)
	if !ok {
		return
	}
	*s = packed
	a.unplace(id, nd)
}

// unplace takes a leaf from the nodes that nothing leads to any more and whose windows have no memory.
func (a *Arena) unplace(id uint32, nd *node) {
	a.nodes[id] = nil
	a.freeNodes = append(a.freeNodes, id)
	a.loose--
	if len(a.spares) < maxSpares {
		a.spares = append(a.spares, nd)
	}
}

// unpack makes a node of a packed leaf of a volume, which nothing leads to then.
func (a *Arena) unpack(s window.Slot, vol uint32, index uint64) (uint32, *node) {
	a.trim()
	id, nd := a.place(vol, 0, index)
	nd.persisted, nd.used = true, true
	nd.sums = a.windows.Unpack(s, &nd.slots)
	return id, nd
}

// unpackAt unpacks the leaf that a slot leads to.
func (m *Map) unpackAt(s *window.Slot, index uint64) (uint32, *node) {
	id, nd := m.arena.unpack(*s, m.vol, index)
	*s = window.Child(id)
	return id, nd
}

// look calls fn with a packed leaf as a node, which nothing leads to and which is gone behind it.
// fn looks at nothing that is packed.
func (m *Map) look(s window.Slot, index uint64, fn func(nd *node)) {
	a := m.arena
	nd := &a.away.looked
	*nd = node{vol: m.vol, index: index}
	nd.sums = a.windows.Copy(s, &nd.slots)
	fn(nd)
	a.windows.Forget(&nd.slots)
}
