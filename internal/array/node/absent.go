// Leaves that are not in memory: how one leaves, and what it is when its page is read.

package node

import "github.com/arraysim/arraysim/internal/array/window"

// MemoryBytes returns what leaves take, packed or not.
func (s *Slab) MemoryBytes() uint64 { return s.LooseBytes() + s.Windows.PackedBytes() }

// Drop makes a leaf absent that a slot leads to and that the store has as it is here.
func (s *Slab) Drop(slot *window.Slot) {
	was := *slot
	if was.Kind() == window.KindPacked {
		*slot = window.Absent(s.Windows.Sums(was))
		s.Windows.Release(was)
		return
	}
	id := uint32(was.Value())
	nd := s.list[id]
	*slot = window.Absent(nd.Sums)
	s.Windows.Forget(&nd.Slots)
	s.Free(id)
}

// Restore gives the absent leaf that a slot stands for a number, as its page says. It changes nothing if the
// page is not that of the leaf.
func (s *Slab) Restore(slot *window.Slot, k Key, page []byte) (uint32, *Node, error) {
	s.Trim()
	id, nd := s.Place(k)
	nd.Persisted, nd.Used = true, true
	if err := s.decodeLeaf(nd, page, s.Windows.Sums(*slot)); err != nil {
		s.Free(id)
		return 0, nil, err
	}
	*slot = window.Child(id)
	return id, nd, nil
}

// LookPage is Look of an absent leaf whose page somebody has read.
func (s *Slab) LookPage(slot window.Slot, k Key, page []byte, fn func(nd *Node)) error {
	nd := &s.looked
	*nd = Node{Vol: k.Vol, Index: k.Index, Persisted: true}
	if err := s.decodeLeaf(nd, page, s.Windows.Sums(slot)); err != nil {
		return err
	}
	fn(nd)
	s.Windows.Forget(&nd.Slots)
	return nil
}
