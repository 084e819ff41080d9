// Nodes and roots as keys and values of the meta store, and back. What is read back is checked: it
// may be anything.

package extent

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// How maps stand in the meta store:
//
//	r vol u32                  root slot u64, levels u8
//	n vol u32 level u8 idx u64 a node: 256 slots u64, then for each detail slot in
//	                           order: layers u8, zero u64 x2, anchored u64 x2, {phys u64, mask u64 x2} x layers
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
	detailHead     = 1 + 4*8 // of a window in details: number of layers, zero, anchored
	detailLayer    = 3 * 8
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
	if root.kind() == kindChild {
		root = kindChild
	}
	return append(le.AppendUint64(nil, uint64(root)), m.levels)
}

func (a *Arena) encodeNode(nd *node) []byte {
	b := make([]byte, 0, fanout*8+64)
	for _, s := range nd.slots {
		switch s.kind() {
		case kindChild, kindDetail:
			s = s.kind()
		}
		b = le.AppendUint64(b, uint64(s))
	}
	ds := &a.details
	for _, s := range nd.slots {
		if s.kind() != kindDetail {
			continue
		}
		head := uint32(s.value())
		at := len(b)
		b = append(b, 0)
		st := ds.statesOf(ds.at(head))
		for _, w := range [...]uint64{st.zero[0], st.zero[1], st.anchored[0], st.anchored[1]} {
			b = le.AppendUint64(b, w)
		}
		for i := head; i != 0; i = ds.at(i).next {
			d := ds.at(i)
			if d.mask.Empty() {
				continue
			}
			b[at]++
			b = le.AppendUint64(b, d.phys)
			b = le.AppendUint64(b, d.mask[0])
			b = le.AppendUint64(b, d.mask[1])
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
		s := slot(le.Uint64(b[i*8:]))
		if !s.means(nd.level) {
			return fmt.Errorf("a map page of volume %d has an entry %#x that means nothing", nd.vol, uint64(s))
		}
		nd.slots[i] = s
		if s.kind() != kindDetail {
			continue
		}
		if len(rest) < detailHead || len(rest) < detailHead+detailLayer*int(rest[0]) {
			return fmt.Errorf("a map page of volume %d is cut off", nd.vol)
		}
		n := detailHead + detailLayer*int(rest[0])
		nd.slots[i] = a.decodeDetail(rest[:n])
		rest = rest[n:]
	}
	return nil
}

// means reports whether a slot as it is written can stand in a node of a level.
func (s slot) means(level uint8) bool {
	switch s.kind() {
	case kindUnmapped, kindZero, kindAnchored:
		return s.uniform()
	case kindData, kindDetail:
		return level == 0
	}
	return s.kind() == kindChild && level > 0
}

// decodeDetail makes the details of one window.
func (a *Arena) decodeDetail(b []byte) slot {
	id, h := a.details.alloc()
	a.details.setStates(h, states{zero: layout.Mask{le.Uint64(b[1:]), le.Uint64(b[9:])}, anchored: layout.Mask{le.Uint64(b[17:]), le.Uint64(b[25:])}})
	m := Map{arena: a}
	for layers := b[detailHead:]; len(layers) > 0; layers = layers[detailLayer:] {
		m.addLayer(id, le.Uint64(layers), layout.Mask{le.Uint64(layers[8:]), le.Uint64(layers[16:])})
	}
	return detailSlot(id)
}
