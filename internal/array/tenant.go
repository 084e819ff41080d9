package array

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// has reports whether so many grains are available, if need be after collecting garbage.
func (p *Pool) has(grains int64) bool { return p.set.arena.MakeAvailable(p.space, grains) }

// Space returns the pool's account in bytes: what is free, what is allocated, and what is reserved for
// thick volumes and anchored ranges. Together they are its capacity. What background work and
// copies still have to give back can make free negative for a while.
func (p *Pool) Space() (free, allocated, reserved int64) {
	const grain = layout.WindowSectors * block.SectorSize
	return p.space.Available() * grain, p.space.Allocated() * grain, p.space.Reserved() * grain
}

// entitled returns the windows that the volume is promised space for.
func (v *poolVolume) entitled() int64 {
	switch {
	case v.deleted:
		return 0
	case v.spec.Thin:
		return v.m.Sums().Promised
	}
	return v.windows()
}

// account renews what the volume is entitled to. Preconditions: none; it is called behind every
// change of the map or of the size.
func (v *poolVolume) account() { v.pool.space.Entitle(v.m.Tenant(), v.entitled()) }

// clipTail ends the map of a volume where the volume ends, before anything of it is counted. Behind the end it may have
// what a shrink has cut off, of which no record tells, and what older versions anchored on thin volumes. A uniform
// state that the map was widened by stays.
func (v *poolVolume) clipTail() {
	end, span := v.spec.Sectors, v.m.Span()
	if end >= span {
		return
	}
	clean := true
	v.m.Walk(block.Range{Start: end, Count: span - end}, func(x extent.Run) bool {
		clean = x.Count == span-end && x.State != block.Data && !(x.State == block.Anchored && v.spec.Thin)
		return false
	})
	if !clean {
		v.m.SetState(end, span, block.Unmapped)
	}
}

// Garbage: see extent.Arena.Collect. It is collected a step at a time, between commands.

func (set *poolSet) scheduleGarbage() {
	if set.garbageQueued || !set.arena.HasGarbage() {
		return
	}
	set.garbageQueued = true
	set.exec.At(set.exec.Now(), set.garbageFn)
}

func (set *poolSet) runGarbage() {
	set.garbageQueued = false
	set.arena.Collect(extent.GarbageStep)
	set.gate.Freed()
	set.scheduleGarbage()
	set.up.Step()
}
