// Nodes and roots as keys and values of the meta store, and back. What is read back is checked: it
// may be anything.

package extent

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/window"
)

// How maps stand in the meta store:
//
//	r vol u32                  root slot u64, levels u8
//	n vol u32 level u8 idx u64 a node: 256 slots u64, then for each detail slot in order
//	                           what window.Slab.Append writes
//
// Integers in keys are big endian, in values little endian. A slot that leads to a child or to
// details is its kind only: the child's key is known, and the details follow.

// The prefixes of the keys.
const (
	KeyRoot = "r"
	KeyNode = "n"
)

var le = binary.LittleEndian

const (
	rootKeyBytes   = 5
	rootValueBytes = 9
	nodeKeyBytes   = 14
)

type nodeKey struct {
	vol   uint32
	level uint8
	index uint64
}

func (nd *node) key() nodeKey { return nodeKey{nd.vol, nd.level, nd.index} }

func (k nodeKey) bytes() []byte {
	b := binary.BigEndian.AppendUint32([]byte(KeyNode), k.vol)
	b = append(b, k.level)
	return binary.BigEndian.AppendUint64(b, k.index)
}

// nodeKeyOf reads a key of nodeKeyBytes.
func nodeKeyOf(b []byte) nodeKey {
	return nodeKey{binary.BigEndian.Uint32(b[1:]), b[5], binary.BigEndian.Uint64(b[6:])}
}

func rootKey(vol uint32) []byte { return binary.BigEndian.AppendUint32([]byte(KeyRoot), vol) }

func (m *Map) rootValue() []byte {
	root := m.root
	if root.Leads() {
		root = window.KindChild
	}
	return append(le.AppendUint64(nil, uint64(root)), m.levels)
}

func (a *Arena) encodeNode(nd *node) []byte {
	b := make([]byte, 0, fanout*8+64)
	for _, s := range nd.slots {
		switch s.Kind() {
		case window.KindChild, window.KindPacked, window.KindAbsent:
			s = window.KindChild
		case window.KindDetail:
			s = window.KindDetail
		}
		b = le.AppendUint64(b, uint64(s))
	}
	for _, s := range nd.slots {
		if s.Kind() == window.KindDetail {
			b = a.windows.Append(b, s)
		}
	}
	return b
}

// decodeNode fills a new node from a value; children are attached by the caller.
func (a *Arena) decodeNode(nd *node, b []byte) error {
	if len(b) < fanout*8 {
		return fmt.Errorf("a map page of volume %d is %d bytes long, less than %d", nd.vol, len(b), fanout*8)
	}
	rest := b[fanout*8:]
	for i := range nd.slots {
		s := window.Slot(le.Uint64(b[i*8:]))
		if !means(s, nd.level) {
			return fmt.Errorf("a map page of volume %d has an entry %#x that means nothing", nd.vol, uint64(s))
		}
		nd.slots[i] = s
		if s.Kind() != window.KindDetail {
			continue
		}
		ok := false
		if nd.slots[i], rest, ok = a.windows.Decode(rest); !ok {
			return fmt.Errorf("a map page of volume %d is cut off", nd.vol)
		}
	}
	return nil
}

// means reports whether a slot as it is written can stand in a node of a level.
func means(s window.Slot, level uint8) bool {
	switch s.Kind() {
	case window.KindUnmapped, window.KindZero, window.KindAnchored:
		return s.Uniform()
	case window.KindData, window.KindDetail:
		return level == 0
	}
	return s.Kind() == window.KindChild && level > 0
}

// decodeLeaf fills an empty leaf from its page, which has to have these sums. On an error the leaf is empty.
func (a *Arena) decodeLeaf(nd *node, page []byte, want Sums) error {
	err := a.decodeNode(nd, page)
	for _, s := range nd.slots {
		nd.sums.Add(a.windows.Sums(s))
	}
	if err == nil && nd.sums != want {
		err = fmt.Errorf("a map page of volume %d has %+v, not %+v", nd.vol, nd.sums, want)
	}
	if err != nil {
		a.windows.Forget(&nd.slots)
		nd.slots, nd.sums = window.Leaf{}, Sums{}
	}
	return err
}
