// The roots of maps as keys and values of the meta store, and back.

package node

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/array/window"
)

// How roots stand in the meta store, in the same way as nodes:
//
//	r vol u32                  root slot u64, levels u8

// RootPrefix is that of the keys of roots.
const RootPrefix = "r"

const (
	rootKeyBytes   = 5
	rootValueBytes = 9
)

// RootKey returns the key of the root of a volume's map.
func RootKey(vol uint32) []byte { return binary.BigEndian.AppendUint32([]byte(RootPrefix), vol) }

// EncodeRoot returns a root as it is written, and the height of its tree.
func EncodeRoot(root window.Slot, levels uint8) []byte {
	if root.Leads() {
		root = window.KindChild
	}
	return append(le.AppendUint64(nil, uint64(root)), levels)
}

// RootVolume returns the volume of an entry with RootPrefix, false if it is damaged.
func RootVolume(key, value []byte) (vol uint32, ok bool) {
	if len(key) != rootKeyBytes || len(value) != rootValueBytes {
		return 0, false
	}
	return binary.BigEndian.Uint32(key[1:]), true
}

// DecodeRoot returns the root that a value of such an entry has, false if it means nothing.
func DecodeRoot(value []byte) (root window.Slot, levels uint8, ok bool) {
	root, levels = window.Slot(le.Uint64(value)), value[8]
	return root, levels, (root.Uniform() || root == window.KindChild) && levels >= 1 && levels <= MaxLevels
}
