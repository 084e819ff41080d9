package array

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// Map edits: WRITE SAME of zeros, UNMAP, and copies by reference. The records of one claim
// commit them, so that each is atomic, but for a copy by reference of very many runs: see place.
// Their cost depends on entries and never on bytes.

// deallocState is the state that a deallocation leaves: a thick volume keeps its
// space, so the most that it can do is to anchor.
func (v *Volume) deallocState(anchor bool) block.State {
	if anchor || !v.spec.Thin {
		return block.Anchored
	}
	return block.Unmapped
}

// copyState is what a copy makes of a state: a thick volume has nothing unmapped, and on a thin one only
// its hosts anchor anything.
func (v *Volume) copyState(s block.State) block.State {
	switch {
	case s == block.Unmapped && !v.spec.Thin:
		return block.Anchored
	case s == block.Anchored && v.spec.Thin:
		return block.Unmapped
	}
	return s
}

// edit carries out a WRITE SAME of zeros or an UNMAP, or lets it wait.
func (o *op) edit() {
	a, v, r := o.a, o.v, o.req
	ranges := r.Ranges
	state := block.Zero
	prim := primWriteSame
	if r.Op == block.OpUnmap {
		prim = primUnmap
		state = v.deallocState(r.Flags&block.Anchor != 0)
	} else {
		a.one[0] = r.Range
		ranges = a.one[:]
		if r.Flags&block.Deallocate != 0 {
			state = v.deallocState(r.Flags&block.Anchor != 0)
		}
	}
	if s := v.checkRange(r); s != block.OK { // it waited, and the volume has become smaller
		o.end(s)
		return
	}
	for _, x := range ranges {
		if v.conflict(o, x) {
			o.await(&v.lockWait)
			return
		}
	}
	n := countRanges(ranges)
	if !a.log.EverFits(n) {
		o.end(block.Unsupported)
		return
	}
	if state == block.Anchored && v.spec.Thin && !v.pool.has(v.m.AnchorCost(ranges)) {
		o.end(block.NoSpace)
		return
	}
	room, ok := a.log.Claim(n)
	if !ok {
		o.waitForLog(n)
		return
	}
	a.edits = a.edits[:0]
	bytes := uint64(0)
	for _, x := range ranges {
		if x.Count == 0 {
			continue
		}
		bytes += x.Bytes()
		a.edits = append(a.edits, nvlog.Edit{Volume: v.id, State: state, Range: x})
	}
	if !a.applyEdits(v, &room) {
		o.end(block.Hardware)
		return
	}
	v.countOffload(prim, pathMetadata, v.pool, bytes)
	o.end(block.OK)
}

// countRanges returns the number of ranges that are not empty.
func countRanges(ranges []block.Range) (n int) {
	for _, x := range ranges {
		if x.Count > 0 {
			n++
		}
	}
	return n
}

// applyEdits commits a.edits, all of v, in the records of a claim and carries them out. It returns false,
// having done nothing, when the claim is not theirs.
func (a *Array) applyEdits(v *Volume, room *nvlog.Claim) bool {
	if len(a.edits) == 0 {
		return true
	}
	for rest, ok := a.edits, true; len(rest) > 0; {
		if rest, ok = room.Append(rest, 0); !ok {
			a.breakDown("internal error: a command has lost its room in the log")
			return false
		}
	}
	for i := range a.edits {
		v.apply(&a.edits[i])
	}
	a.edits = a.edits[:0]
	v.account()
	v.gen++
	a.gaveRoom()
	return true
}

// apply changes the map as an edit says; replay uses it, too.
func (v *Volume) apply(e *nvlog.Edit) {
	if e.State != block.Data {
		v.m.SetState(e.Start, v.endOfMap(e.End(), e.State), e.State)
		return
	}
	v.m.SetData(e.Range, e.Phys)
}
