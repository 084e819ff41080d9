// A volume: its description, its map, and what of a request depends on them alone.
//
// Invariant: what hosts rely on in a map a start finds again. A request changes the map under a
// record of the log. A cut needs none where the objects say as much, durably and before: a volume
// that has shrunk (ClipTail at a start), or is deleted (Clear). Import has none either: it is for
// stores that nobody opens again.

package pool

import (
	"github.com/arraysim/arraysim/internal/array/changelog"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Volume is a volume: its map, its size, and what the cache has of it. What requests need of it
// beside that they have around it. Requests change its map; provision changes its description,
// limits and flags, and cuts its map; a start fills it. Nobody above the array changes anything.
type Volume struct {
	Set     *Set
	Dev     block.Device // what hosts have of it
	id      uint32
	pool    *Pool
	Spec    directory.VolumeSpec
	Map     *extent.Map
	Deleted bool
	// Replaced: it was deleted, and another volume has its name. Its counters are not told any
	// more.
	Replaced bool
	// forgotten: its deletion is durable. The last dirty page that goes takes the volume with it.
	forgotten bool
	Making    bool // it is not durable yet, and nobody may use it
	Ending    bool // it is being deleted, and that is not durable yet

	// Size is the sectors that hosts hear of, Limit those that commands may touch, Spec.Sectors
	// those that are accounted for: the same, but for a change that is under way.
	Size     uint64
	Limit    uint64
	Resizing bool
	Resizes  []Resize // that wait for the one under way

	Cached  *wcache.Owner  // what of it is in the cache, and what is counted of that
	Changes *changelog.Log // nil until a host asks
	notify  []func(block.Event)
}

// Resize is a change of size that waits for one that is under way.
type Resize struct {
	Sectors uint64
	Done    func(error)
}

// ID returns the volume's number, which is never used again.
func (v *Volume) ID() uint32 { return v.id }

// Name returns the volume's name.
func (v *Volume) Name() string { return v.Spec.Name }

// Pool returns the volume's pool.
func (v *Volume) Pool() *Pool { return v.pool }

// Info describes the volume.
func (v *Volume) Info() block.Info {
	exp := uint8(3)
	if v.Spec.BlockSize == 4096 {
		exp = 0
	}
	return block.Info{
		Name: v.Spec.Name, ID: v.id, Pool: v.pool.name, Sectors: v.Size, BlockSize: v.Spec.BlockSize,
		PhysicalExp: exp, Thin: v.Spec.Thin, NAA: v.Set.naa(v.id), Serial: v.Set.serial(v.id),
		GranuleSectors: layout.PageSectors, AtomicSectors: layout.PieceSectors, CopyDomain: v.pool.name,
	}
}

// There reports whether the volume is one of the array's: it is from when its making is durable
// until its deletion is.
func (v *Volume) There() bool { return !v.Making && !v.Deleted }

// there returns those of a list that are there; nil is none.
func there(list []*Volume) (out []*Volume) {
	for _, v := range list {
		if v != nil && v.There() {
			out = append(out, v)
		}
	}
	return out
}

// Notify registers fn for the volume's events.
func (v *Volume) Notify(fn func(block.Event)) { v.notify = append(v.notify, fn) }

// Tell says an event to those who asked for them.
func (v *Volume) Tell(k block.EventKind) {
	for _, fn := range v.notify {
		fn(block.Event{Kind: k})
	}
}

// ChangesFor returns what other initiator ports have changed; see changelog.Log.For. The first
// question of a port makes the volume remember from now on.
func (v *Volume) ChangesFor(port uint32) (generation, since uint64, list []block.Change) {
	if v.Changes == nil {
		v.Changes = &changelog.Log{}
	}
	return v.Changes.For(port)
}

// CheckRange reports whether a request stays inside the volume.
func (v *Volume) CheckRange(r *block.Request) block.Status {
	n := v.Limit
	switch r.Op {
	case block.OpUnmap, block.OpHold:
		for _, x := range r.Ranges {
			if !x.Within(n) {
				return block.OutOfRange
			}
		}
	case block.OpFlush:
	case block.OpStatus:
		if r.Range.Start >= n {
			return block.OutOfRange
		}
	default:
		if !r.Range.Within(n) {
			return block.OutOfRange
		}
	}
	return block.OK
}

// StatusSlots is how much of a map one GET LBA STATUS looks at; see extent.Map.WalkStates.
const StatusSlots = 4 * extent.GarbageStep

// FillStatus fills what GET LBA STATUS answers: as many extents as fit, or as are found at once. A
// shorter answer is a right one (SBC-4 5.6), behind which the host asks on.
func (v *Volume) FillStatus(r *block.Request) {
	r.Extents = r.Extents[:0]
	end := v.Limit
	if r.Range.Count != 0 && r.Range.Within(end) {
		end = r.Range.End()
	}
	v.Map.WalkStates(block.Range{Start: r.Range.Start, Count: end - r.Range.Start}, StatusSlots, func(x extent.Run) bool {
		if n := len(r.Extents); n > 0 && r.Extents[n-1].State == x.State {
			r.Extents[n-1].Count += x.Count
			return true
		}
		if len(r.Extents) == cap(r.Extents) {
			return false
		}
		r.Extents = append(r.Extents, block.Extent{Range: x.Range, State: x.State})
		return true
	})
}

// Covered is the range that the extents of such a status cover.
func Covered(r *block.Request) block.Range {
	n := uint64(0)
	for _, x := range r.Extents {
		n += x.Count
	}
	return block.Range{Start: r.Range.Start, Count: n}
}

// CountRanges returns the number of ranges that are not empty.
func CountRanges(ranges []block.Range) (n int) {
	for _, x := range ranges {
		if x.Count > 0 {
			n++
		}
	}
	return n
}

// Windows returns the number of windows that the volume spans.
func (v *Volume) Windows() int64 {
	return int64((v.Spec.Sectors + layout.WindowSectors - 1) >> layout.WindowShift)
}

// endOfMap widens a range that reaches the end of the volume to the end of what
// the map's root spans, so that a whole volume is one slot. What a thin volume anchors is
// reserved, so it ends where it ends.
func (v *Volume) endOfMap(end uint64, s block.State) uint64 {
	if end == v.Spec.Sectors && !(v.Spec.Thin && s == block.Anchored) {
		return v.Map.Span()
	}
	return end
}

// DeallocState is the state that a deallocation leaves: a thick volume keeps its
// space, so the most that it can do is to anchor.
func (v *Volume) DeallocState(anchor bool) block.State {
	if anchor || !v.Spec.Thin {
		return block.Anchored
	}
	return block.Unmapped
}

// CopyState is what a copy makes of a state: a thick volume has nothing unmapped, and on a thin one
// only its hosts anchor anything.
func (v *Volume) CopyState(s block.State) block.State {
	switch {
	case s == block.Unmapped && !v.Spec.Thin:
		return block.Anchored
	case s == block.Anchored && v.Spec.Thin:
		return block.Unmapped
	}
	return s
}

// Apply changes the map as an edit says; replay uses it, too.
func (v *Volume) Apply(e *nvlog.Edit) {
	if e.State != block.Data {
		v.Map.SetState(e.Start, v.endOfMap(e.End(), e.State), e.State)
		return
	}
	v.Map.SetData(e.Range, e.Phys)
}

// DirtyHits counts the pages of a range in place of which a write would have new ones, without
// more room. It stops when there cannot be as many as needed any more. A window that has no grain
// to be written in place has none: its old pages stay with whoever shares them.
func (v *Volume) DirtyHits(start, n uint64, needed int) (hits int) {
	end := start + n
	spare := int((end-1)/layout.PageSectors-start/layout.PageSectors) + 1 - needed
	for at := start; at < end; {
		phys, ok := v.Map.WouldStay(at >> layout.WindowShift)
		first, stop := at&(layout.WindowSectors-1), min(end, (at|(layout.WindowSectors-1))+1)
		for s := phys + first; at < stop; {
			if ok && v.Set.Cache.MakesRoom(layout.KeyOf(v.pool.id, s)) {
				hits++
			} else if spare--; spare < 0 {
				return hits
			}
			k := layout.PageSectors - at%layout.PageSectors
			at, s = at+k, s+k
		}
	}
	return hits
}
