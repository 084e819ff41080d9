// Packed leaves: which leaves are packed, and when. A leaf that is packed is the same leaf, and who
// looks at it or edits it unpacks it first.

package node

import "github.com/arraysim/arraysim/internal/array/window"

// DefaultLeafBytes is what leaves may take that are not packed, where nobody says anything else: those
// of some 900 GiB that were written in whole windows, or of 200 GiB in 4 KiB.
const DefaultLeafBytes = 128 << 20

// What one call of Trim does: it looks at a few nodes, and packs two at the most, so that who makes
// one pays for little more than that. Where very many leaves were not packed once, as behind a burst of
// writes, most numbers are nobody's: it passes by more of these.
const (
	trimSteps = 512
	trimLooks = 16
	trimPacks = 2
)

// Trim packs leaves while those that are not take more than LeafBytes: some that nobody has looked
// at since it came by last, and that are as the checkpoint has them. Nobody holds a leaf, or what is
// in one, when it is called.
func (s *Slab) Trim() {
	s.crowded = s.LooseBytes() > s.LeafBytes
	if !s.crowded || s.held > 0 {
		return
	}
	looks, packs := 0, 0
	for steps := min(trimSteps, len(s.list)); steps > 0 && looks < trimLooks && packs < trimPacks; steps-- {
		if s.hand++; s.hand >= len(s.list) {
			s.hand = 0
		}
		nd := s.list[s.hand]
		if nd == nil {
			continue
		}
		looks++
		switch {
		case nd.Level > 0 || nd.Dirty:
		case nd.Used:
			nd.Used = false
		default:
			if slot := s.SlotOf(nd.Key()); slot != nil && *slot == window.Child(uint32(s.hand)) { // else it is garbage
				s.Pack(slot)
				packs++
			}
		}
	}
}

// Hold has nothing packed until fn has returned, which looks at what is in a leaf.
func (s *Slab) Hold(fn func() bool) bool {
	s.held++
	more := fn()
	s.held--
	return more
}

// Pack packs a leaf with a number that a slot leads to. One that would be too large stays as it is.
func (s *Slab) Pack(slot *window.Slot) {
	id := uint32(slot.Value())
	nd := s.list[id]
	if packed, ok := s.Windows.Pack(&nd.Slots, nd.Sums); ok {
		*slot = packed
		s.Free(id)
	}
}

// Unpack gives the packed leaf that a slot leads to a number.
func (s *Slab) Unpack(slot *window.Slot, k Key) (uint32, *Node) {
	s.Trim()
	id, nd := s.Place(k)
	nd.Persisted, nd.Used = true, true
	nd.Sums = s.Windows.Unpack(*slot, &nd.Slots)
	*slot = window.Child(id)
	return id, nd
}

// Look calls fn with a packed leaf as a node, which nothing leads to and which is gone behind it.
// fn looks at nothing that is packed.
func (s *Slab) Look(slot window.Slot, k Key, fn func(nd *Node)) {
	nd := &s.looked
	*nd = Node{Vol: k.Vol, Index: k.Index}
	nd.Sums = s.Windows.Copy(slot, &nd.Slots)
	fn(nd)
	s.Windows.Forget(&nd.Slots)
}
