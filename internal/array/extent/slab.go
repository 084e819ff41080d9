// The memory of windows that are not of one piece: details, and the sectors of them that are zero or
// anchored, which few have. Each is found by number, and holds no pointer.

package extent

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

// detailSlab hands out details by index; 0 is none. Chunks hold no pointers.
type detailSlab struct {
	chunks []*[detailChunk]detail
	free   uint32 // chain through next
	live   int

	stateChunks []*[detailChunk]states
	freeStates  uint32 // chain through the first word of zero
	liveStates  int
}

func (d *detailSlab) at(i uint32) *detail { return &d.chunks[i/detailChunk][i%detailChunk] }

func (d *detailSlab) alloc() (uint32, *detail) {
	if d.free == 0 {
		base := uint32(len(d.chunks) * detailChunk)
		c := new([detailChunk]detail)
		d.chunks = append(d.chunks, c)
		for i := detailChunk - 1; i >= 0; i-- {
			if id := base + uint32(i); id != 0 {
				c[i].next = d.free
				d.free = id
			}
		}
	}
	id := d.free
	p := d.at(id)
	d.free = p.next
	*p = detail{}
	d.live++
	return id, p
}

func (d *detailSlab) release(i uint32) {
	p := d.at(i)
	d.setStates(p, states{})
	*p = detail{next: d.free}
	d.free = i
	d.live--
}

func (d *detailSlab) statesAt(i uint32) *states {
	return &d.stateChunks[i/detailChunk][i%detailChunk]
}

// statesOf returns the sectors that are zero or anchored in the window that the first of a chain is of.
func (d *detailSlab) statesOf(h *detail) states {
	if h.states == 0 {
		return states{}
	}
	return *d.statesAt(h.states)
}

// setStates says which they are.
func (d *detailSlab) setStates(h *detail, s states) {
	switch {
	case h.states == 0 && s.empty():
		return
	case h.states == 0:
		h.states = d.allocStates()
	case s.empty():
		*d.statesAt(h.states) = states{zero: layout.Mask{uint64(d.freeStates)}}
		d.freeStates, h.states = h.states, 0
		d.liveStates--
		return
	}
	*d.statesAt(h.states) = s
}

func (d *detailSlab) allocStates() uint32 {
	if d.freeStates == 0 {
		base := uint32(len(d.stateChunks) * detailChunk)
		c := new([detailChunk]states)
		d.stateChunks = append(d.stateChunks, c)
		for i := detailChunk - 1; i >= 0; i-- {
			if id := base + uint32(i); id != 0 {
				c[i].zero[0] = uint64(d.freeStates)
				d.freeStates = id
			}
		}
	}
	id := d.freeStates
	d.freeStates = uint32(d.statesAt(id).zero[0])
	d.liveStates++
	return id
}

// bytes returns the memory that all of it takes.
func (d *detailSlab) bytes() uint64 {
	return detailChunk * (uint64(len(d.chunks))*uint64(unsafe.Sizeof(detail{})) + uint64(len(d.stateChunks))*uint64(unsafe.Sizeof(states{})))
}

func (d *detailSlab) sums(i uint32) Sums {
	var s Sums
	if h := d.at(i); h.states != 0 {
		st := d.statesAt(h.states)
		if s.Zero, s.Anchored = st.zero.Count(), st.anchored.Count(); s.Anchored > 0 {
			s.Promised = 1
		}
	}
	for ; i != 0; i = d.at(i).next {
		s.Data += d.at(i).mask.Count()
	}
	return s
}
