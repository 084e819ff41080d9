// Nodes as keys and values of the meta store, and back. What is read back is checked: it may be
// anything.

package node

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/window"
)

// How nodes stand in the meta store:
//
//	n vol u32 level u8 idx u64 a node: 256 slots u64, then for each detail slot in order
//	                           what window.Slab.Append writes
//
// Integers in keys are big endian, in values little endian. A slot that leads to a child or to
// details is its kind only: the child's key is known, and the details follow.

// Prefix is that of the keys.
const Prefix = "n"

// KeyBytes is the length of a key.
const KeyBytes = 14

var le = binary.LittleEndian

// Key is a node of a volume's map.
type Key struct {
	Vol   uint32
	Level uint8
	Index uint64
}

// KeyAt returns the key of the node of a level.
func KeyAt(vol uint32, level uint8, index uint64) Key { return Key{vol, level, index} }

// LeafKey returns the key of a leaf.
func LeafKey(vol uint32, index uint64) Key { return Key{vol, 0, index} }

// Compare orders keys as the meta store does.
func Compare(x, y Key) int {
	return cmp.Or(cmp.Compare(x.Vol, y.Vol), cmp.Compare(x.Level, y.Level), cmp.Compare(x.Index, y.Index))
}

// Bytes returns the key as the meta store has it.
func (k Key) Bytes() []byte {
	b := binary.BigEndian.AppendUint32([]byte(Prefix), k.Vol)
	b = append(b, k.Level)
	return binary.BigEndian.AppendUint64(b, k.Index)
}

// KeyOf reads a key of KeyBytes.
func KeyOf(b []byte) Key {
	return Key{binary.BigEndian.Uint32(b[1:]), b[5], binary.BigEndian.Uint64(b[6:])}
}

// Encode returns a node as it is written.
func (s *Slab) Encode(nd *Node) []byte {
	b := make([]byte, 0, Fanout*8+64)
	for _, slot := range nd.Slots {
		switch slot.Kind() {
		case window.KindChild, window.KindPacked, window.KindAbsent:
			slot = window.KindChild
		case window.KindDetail:
			slot = window.KindDetail
		}
		b = le.AppendUint64(b, uint64(slot))
	}
	for _, slot := range nd.Slots {
		if slot.Kind() == window.KindDetail {
			b = s.Windows.Append(b, slot)
		}
	}
	return b
}

// Decode fills a new node from a value; children are attached by the caller.
func (s *Slab) Decode(nd *Node, b []byte) error {
	if len(b) < Fanout*8 {
		return fmt.Errorf("a map page of volume %d is %d bytes long, less than %d", nd.Vol, len(b), Fanout*8)
	}
	rest := b[Fanout*8:]
	for i := range nd.Slots {
		slot := window.Slot(le.Uint64(b[i*8:]))
		if !means(slot, nd.Level) {
			return fmt.Errorf("a map page of volume %d has an entry %#x that means nothing", nd.Vol, uint64(slot))
		}
		nd.Slots[i] = slot
		if slot.Kind() != window.KindDetail {
			continue
		}
		ok := false
		if nd.Slots[i], rest, ok = s.Windows.Decode(rest); !ok {
			return fmt.Errorf("a map page of volume %d is cut off", nd.Vol)
		}
	}
	return nil
}

// decodeLeaf fills an empty leaf from its page, which has to have these sums. On an error the leaf is empty.
func (s *Slab) decodeLeaf(nd *Node, page []byte, want window.Sums) error {
	err := s.Decode(nd, page)
	for _, slot := range nd.Slots {
		nd.Sums.Add(s.Windows.Sums(slot))
	}
	if err == nil && nd.Sums != want {
		err = fmt.Errorf("a map page of volume %d has %+v, not %+v", nd.Vol, nd.Sums, want)
	}
	if err != nil {
		s.Windows.Forget(&nd.Slots)
		nd.Slots, nd.Sums = window.Leaf{}, window.Sums{}
	}
	return err
}
