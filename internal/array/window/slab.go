// The memory of windows that are not of one piece: details, and the sectors of them that are zero or
// anchored, which few have. Each is found by number, and holds no pointer.

package window

import (
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// detail describes a window that is not of one piece. Each of a chain is a layer of data: the
// sectors in mask lie at physical sector phys + their number in the window. phys may wrap
// below zero when a copy put the tail of a source into the middle of a window. The first of a chain
// leads to what says which sectors are zero or anchored. It has 32 bytes.
type detail struct {
	phys   uint64
	mask   layout.Mask
	next   uint32 // 0 ends the chain
	states uint32 // first of the chain only; 0: no sector is zero or anchored
}

// states are the sectors of a window that are zero, or anchored.
type states struct {
	zero     layout.Mask
	anchored layout.Mask
}

func (s states) empty() bool { return s.zero.Empty() && s.anchored.Empty() }

const detailChunk = 1024

// Slab is the memory of windows that are not of one piece, and of leaves that are packed. Its zero
// value is empty.
//
// It hands out details by index; 0 is none. Chunks hold no pointers.
type Slab struct {
	chunks []*[detailChunk]detail
	free   uint32 // chain through next
	live   int

	stateChunks []*[detailChunk]states
	freeStates  uint32 // chain through the first word of zero
	liveStates  int

	packed places
	buf    []byte // a leaf that is being packed
}

func (ws *Slab) at(i uint32) *detail { return &ws.chunks[i/detailChunk][i%detailChunk] }

func (ws *Slab) alloc() (uint32, *detail) {
	if ws.free == 0 {
		base := uint32(len(ws.chunks) * detailChunk)
		c := new([detailChunk]detail)
		ws.chunks = append(ws.chunks, c)
		for i := detailChunk - 1; i >= 0; i-- {
			if id := base + uint32(i); id != 0 {
				c[i].next = ws.free
				ws.free = id
			}
		}
	}
	id := ws.free
	p := ws.at(id)
	ws.free = p.next
	*p = detail{}
	ws.live++
	return id, p
}

func (ws *Slab) release(i uint32) {
	p := ws.at(i)
	ws.setStates(p, states{})
	*p = detail{next: ws.free}
	ws.free = i
	ws.live--
}

func (ws *Slab) statesAt(i uint32) *states {
	return &ws.stateChunks[i/detailChunk][i%detailChunk]
}

// statesOf returns the sectors that are zero or anchored in the window that the first of a chain is of.
func (ws *Slab) statesOf(h *detail) states {
	if h.states == 0 {
		return states{}
	}
	return *ws.statesAt(h.states)
}

// setStates says which they are.
func (ws *Slab) setStates(h *detail, s states) {
	switch {
	case h.states == 0 && s.empty():
		return
	case h.states == 0:
		h.states = ws.allocStates()
	case s.empty():
		*ws.statesAt(h.states) = states{zero: layout.Mask{uint64(ws.freeStates)}}
		ws.freeStates, h.states = h.states, 0
		ws.liveStates--
		return
	}
	*ws.statesAt(h.states) = s
}

func (ws *Slab) allocStates() uint32 {
	if ws.freeStates == 0 {
		base := uint32(len(ws.stateChunks) * detailChunk)
		c := new([detailChunk]states)
		ws.stateChunks = append(ws.stateChunks, c)
		for i := detailChunk - 1; i >= 0; i-- {
			if id := base + uint32(i); id != 0 {
				c[i].zero[0] = uint64(ws.freeStates)
				ws.freeStates = id
			}
		}
	}
	id := ws.freeStates
	ws.freeStates = uint32(ws.statesAt(id).zero[0])
	ws.liveStates++
	return id
}

// Bytes returns the memory that all of it takes.
func (ws *Slab) Bytes() uint64 {
	return ws.packed.bytes +
		detailChunk*(uint64(len(ws.chunks))*uint64(unsafe.Sizeof(detail{}))+uint64(len(ws.stateChunks))*uint64(unsafe.Sizeof(states{})))
}

// LooseBytes returns the memory of what is in use of it, packed leaves left out.
func (ws *Slab) LooseBytes() uint64 {
	return uint64(ws.live)*uint64(unsafe.Sizeof(detail{})) + uint64(ws.liveStates)*uint64(unsafe.Sizeof(states{}))
}

// Live returns how many layers there are, and how many windows in pieces have sectors that are zero
// or anchored.
func (ws *Slab) Live() (layers, states int) { return ws.live, ws.liveStates }
