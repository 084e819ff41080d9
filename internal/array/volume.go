package array

import (
	"github.com/arraysim/arraysim/internal/array/changelog"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// poolVolume is a volume: its map, its size, and what the cache has of it. What requests need of it
// beside that is in Volume.
type poolVolume struct {
	set     *poolSet
	dev     block.Device // what hosts have of it
	id      uint32
	pool    *Pool
	spec    directory.VolumeSpec
	m       *extent.Map
	deleted bool
	// replaced: it was deleted, and another volume has its name. Its counters are not told any more.
	replaced bool
	// forgotten: its deletion is durable. The last dirty page that goes takes the volume with it.
	forgotten bool
	making    bool // it is not durable yet, and nobody may use it
	ending    bool // it is being deleted, and that is not durable yet

	// size is the sectors that hosts hear of, limit those that commands may touch, spec.Sectors those that are
	// accounted for: the same, but for a change that is under way.
	size     uint64
	limit    uint64
	resizing bool
	resizes  []resize // that wait for the one under way

	cached  *wcache.Owner  // what of it is in the cache, and what is counted of that
	changes *changelog.Log // nil until a host asks
	notify  []func(block.Event)
}

// resize is a change of size that waits for one that is under way.
type resize struct {
	sectors uint64
	done    func(error)
}

// ID returns the volume's number, which is never used again.
func (v *poolVolume) ID() uint32 { return v.id }

// Name returns the volume's name.
func (v *poolVolume) Name() string { return v.spec.Name }

// Pool returns the volume's pool.
func (v *poolVolume) Pool() *Pool { return v.pool }

// Info describes the volume.
func (v *poolVolume) Info() block.Info {
	exp := uint8(3)
	if v.spec.BlockSize == 4096 {
		exp = 0
	}
	return block.Info{
		Name: v.spec.Name, ID: v.id, Pool: v.pool.name, Sectors: v.size, BlockSize: v.spec.BlockSize,
		PhysicalExp: exp, Thin: v.spec.Thin, NAA: v.set.naa(v.id), Serial: v.set.serial(v.id),
		GranuleSectors: layout.PageSectors, AtomicSectors: layout.PieceSectors, CopyDomain: v.pool.name,
	}
}

// Notify registers fn for the volume's events.
func (v *poolVolume) Notify(fn func(block.Event)) { v.notify = append(v.notify, fn) }

func (v *poolVolume) tell(k block.EventKind) {
	for _, fn := range v.notify {
		fn(block.Event{Kind: k})
	}
}

// ChangesFor returns what other initiator ports have changed; see changelog.Log.For. The first question of a port makes
// the volume remember from now on.
func (v *poolVolume) ChangesFor(port uint32) (generation, since uint64, list []block.Change) {
	if v.changes == nil {
		v.changes = &changelog.Log{}
	}
	return v.changes.For(port)
}

// checkRange reports whether a request stays inside the volume.
func (v *poolVolume) checkRange(r *block.Request) block.Status {
	n := v.limit
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

// fillStatus fills what GET LBA STATUS answers: as many extents as fit.
func (v *poolVolume) fillStatus(r *block.Request) {
	r.Extents = r.Extents[:0]
	end := v.limit
	if r.Range.Count != 0 && r.Range.Within(end) {
		end = r.Range.End()
	}
	v.m.Walk(block.Range{Start: r.Range.Start, Count: end - r.Range.Start}, func(x extent.Run) bool {
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

// windows returns the number of windows that the volume spans.
func (v *poolVolume) windows() int64 {
	return int64((v.spec.Sectors + layout.WindowSectors - 1) >> layout.WindowShift)
}

// endOfMap widens a range that reaches the end of the volume to the end of what
// the map's root spans, so that a whole volume is one slot. What a thin volume anchors is
// reserved, so it ends where it ends.
func (v *poolVolume) endOfMap(end uint64, s block.State) uint64 {
	if end == v.spec.Sectors && !(v.spec.Thin && s == block.Anchored) {
		return v.m.Span()
	}
	return end
}

// deallocState is the state that a deallocation leaves: a thick volume keeps its
// space, so the most that it can do is to anchor.
func (v *poolVolume) deallocState(anchor bool) block.State {
	if anchor || !v.spec.Thin {
		return block.Anchored
	}
	return block.Unmapped
}

// copyState is what a copy makes of a state: a thick volume has nothing unmapped, and on a thin one only
// its hosts anchor anything.
func (v *poolVolume) copyState(s block.State) block.State {
	switch {
	case s == block.Unmapped && !v.spec.Thin:
		return block.Anchored
	case s == block.Anchored && v.spec.Thin:
		return block.Unmapped
	}
	return s
}

// apply changes the map as an edit says; replay uses it, too.
func (v *poolVolume) apply(e *nvlog.Edit) {
	if e.State != block.Data {
		v.m.SetState(e.Start, v.endOfMap(e.End(), e.State), e.State)
		return
	}
	v.m.SetData(e.Range, e.Phys)
}

// private tells whether a write may replace the grain of a physical sector in place.
func (v *poolVolume) private(phys uint64) bool {
	return v.pool.space.Refs(phys>>layout.WindowShift) == 1
}
