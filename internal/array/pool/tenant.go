// Volumes as tenants of a pool's space: what each is entitled to, and the garbage of maps that
// gives space back a step at a time.

package pool

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// Has reports whether so many grains are available, if need be after collecting garbage.
func (p *Pool) Has(grains int64) bool { return p.Set.Arena.MakeAvailable(p.Alloc, grains) }

// Space returns the pool's account in bytes: what is free, what is allocated, and what is reserved
// for thick volumes and anchored ranges. Together they are its capacity. What background work and
// copies still have to give back can make free negative for a while.
func (p *Pool) Space() (free, allocated, reserved int64) {
	const grain = layout.WindowSectors * block.SectorSize
	return p.Alloc.Available() * grain, p.Alloc.Allocated() * grain, p.Alloc.Reserved() * grain
}

// Entitled returns the windows that the volume is promised space for.
func (v *Volume) Entitled() int64 {
	switch {
	case v.Deleted:
		return 0
	case v.Spec.Thin:
		return v.Map.Sums().Promised
	}
	return v.Windows()
}

// Account renews what the volume is entitled to. Preconditions: none; it is called behind every
// change of the map or of the size.
func (v *Volume) Account() { v.pool.Alloc.Entitle(v.Map.Tenant(), v.Entitled()) }

// ClipTail ends the map of a volume where the volume ends, before anything of it is counted. Behind
// the end it may have what a shrink has cut off, of which no record tells, and what older versions
// anchored on thin volumes. A uniform state that the map was widened by stays.
func (v *Volume) ClipTail() {
	end, span := v.Spec.Sectors, v.Map.Span()
	if end >= span {
		return
	}
	clean := true
	v.Map.Walk(block.Range{Start: end, Count: span - end}, func(x extent.Run) bool {
		clean = x.Count == span-end && x.State != block.Data && !(x.State == block.Anchored && v.Spec.Thin)
		return false
	})
	if !clean {
		v.Map.SetState(end, span, block.Unmapped)
	}
}

// Garbage: see extent.Arena.Collect. It is collected a step at a time, between commands.

func (set *Set) scheduleGarbage() {
	if set.garbageQueued || !set.Arena.HasGarbage() {
		return
	}
	set.garbageQueued = true
	set.Exec.At(set.Exec.Now(), set.garbageFn)
}

func (set *Set) runGarbage() {
	set.garbageQueued = false
	set.Arena.Collect(extent.GarbageStep)
	set.Link.Freed()
	set.scheduleGarbage()
	set.Up.Step()
}
