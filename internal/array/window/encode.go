// How a window that is not of one piece is written into a page of a map, and read again. What is
// read may be anything.

package window

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// A window that is not of one piece, in integers that are little endian:
//
//	layers u8, zero u64 x2, anchored u64 x2, {phys u64, mask u64 x2} x layers
const (
	detailHead  = 1 + 4*8 // number of layers, zero, anchored
	detailLayer = 3 * 8
)

var le = binary.LittleEndian

// Append appends what a slot of KindDetail leads to.
func (ws *Slab) Append(b []byte, s Slot) []byte {
	head := uint32(s.Value())
	at := len(b)
	b = append(b, 0)
	st := ws.statesOf(ws.at(head))
	for _, w := range [...]uint64{st.zero[0], st.zero[1], st.anchored[0], st.anchored[1]} {
		b = le.AppendUint64(b, w)
	}
	for i := head; i != 0; i = ws.at(i).next {
		d := ws.at(i)
		if d.mask.Empty() {
			continue
		}
		b[at]++
		b = le.AppendUint64(b, d.phys)
		b = le.AppendUint64(b, d.mask[0])
		b = le.AppendUint64(b, d.mask[1])
	}
	return b
}

// Decode makes a window of what b begins with, and returns its slot and what is left of b; false if
// b is too short. Nobody hears of its references.
func (ws *Slab) Decode(b []byte) (s Slot, rest []byte, ok bool) {
	if len(b) < detailHead || len(b) < detailHead+detailLayer*int(b[0]) {
		return 0, b, false
	}
	b, rest = b[:detailHead+detailLayer*int(b[0])], b[detailHead+detailLayer*int(b[0]):]
	id, h := ws.alloc()
	ws.setStates(h, states{zero: layout.Mask{le.Uint64(b[1:]), le.Uint64(b[9:])}, anchored: layout.Mask{le.Uint64(b[17:]), le.Uint64(b[25:])}})
	for layers := b[detailHead:]; len(layers) > 0; layers = layers[detailLayer:] {
		ws.addLayer(id, le.Uint64(layers), layout.Mask{le.Uint64(layers[8:]), le.Uint64(layers[16:])}, nobody{})
	}
	return detailOf(id), rest, true
}

// nobody counts no references.
type nobody struct{}

func (nobody) Take(uint64, layout.Mask, layout.Mask) {}
func (nobody) Give(uint64, layout.Mask, layout.Mask) {}
