// Volumes as tenants of a pool's space: what each is entitled to, and the garbage of maps that
// gives space back a step at a time.

package pool

import (
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// HasNow reports whether so many grains are available, if need be after collecting a step of the pool's
// garbage; more says that there are not enough yet, and that a part of the garbage is left: who lets
// others have their turn may ask again.
func (p *Pool) HasNow(grains int64) (ok, more bool) { return p.Set.Arena.TryAvailable(p.Alloc, grains) }

// CanAnchor is HasNow of the grains that anchoring ranges may take; guessed says that they may be fewer, since leaves of the
// map are absent.
func (v *Volume) CanAnchor(ranges []block.Range) (ok, more, guessed bool) {
	most := int64(0)
	for _, x := range ranges {
		most += int64(x.Count>>layout.WindowShift) + 2
	}
	if v.pool.Alloc.Available() >= most { // whatever they are now
		return true, false, false
	}
	// What holds grains that are promised makes less than nothing free: that is enough for nothing.
	cost, guessed := v.Map.AnchorCost(ranges)
	if cost == 0 {
		return true, false, false
	}
	ok, more = v.pool.HasNow(cost)
	return ok, more, guessed
}

// Loan is the space that a copy by reference needs. What shares a home of a thick volume has to leave
// it the space for another one, and what nothing but the copy keeps, which counts as free, takes space
// again.
type Loan struct {
	pool  *Pool
	homes int64
	kept  bool
	last  uint64
}

// NewLoan returns the loan of a copy of nothing.
func (p *Pool) NewLoan() Loan { return Loan{pool: p, last: alloc.NoGrain} }

// Add adds n physical sectors in a row to the copy. Preconditions: they come in the order of its
// addresses.
func (l *Loan) Add(phys, n uint64) {
	space := l.pool.Alloc
	for g := phys >> layout.WindowShift; g <= (phys+n-1)>>layout.WindowShift; g++ {
		if space.SoleHome(g) && g != l.last {
			l.homes++
		}
		l.kept = l.kept || space.MapRefs(g) == 0
		l.last = g
	}
}

// Granted is HasNow of what the copy needs.
func (l *Loan) Granted() (ok, more bool) {
	if l.homes == 0 && !l.kept {
		return true, false
	}
	return l.pool.HasNow(l.homes)
}

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

// BoundMaps has leaves of maps leave memory where they take more than so many bytes. Heard of the hooks is the set's.
// Preconditions: there are no pools.
func (set *Set) BoundMaps(bytes uint64, from demand.Source, hooks demand.Hooks) {
	hooks.Heard = func() {
		set.scheduleGarbage()
		set.Up.Step()
	}
	set.Arena.Bound(bytes, from, hooks)
}

// EvictSoon has leaves leave memory, when others had their turn, if they take too much.
func (set *Set) EvictSoon() {
	if set.Arena.Crowded() && !set.evictQueued {
		set.evictQueued = true
		set.Exec.At(set.Exec.Now(), set.evictFn)
	}
}

func (set *Set) evict() {
	set.evictQueued = false
	was := set.Arena.Absent()
	set.Arena.Evict(extent.EvictStep)
	if set.Arena.Absent() > was { // else the next step may have left something
		set.EvictSoon()
	}
}

// Garbage: see extent.Arena.Collect. It is collected a step at a time, between commands.

func (set *Set) scheduleGarbage() {
	if set.garbageQueued || !set.Arena.Collectable() {
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
