package extent

import (
	"github.com/arraysim/arraysim/internal/array/hold"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// sector is what a sector of a volume is: the whole model of a map is a slice of them.
type sector struct {
	state block.State
	phys  uint64
}

// volume is a map, its model, and what its owner would know of it.
type volume struct {
	m       *Map
	id      uint32
	thick   bool
	sectors []sector
}

// held is a Ref and what it has to refer to, whatever happens to the volume.
type held struct {
	ref *hold.Ref
	was []sector
}

// edit is a change as a log would have it: enough to make it again on any later map.
type edit struct {
	vol uint32
	block.Range
	sector
}

// rig is an arena with maps in one space, a model of all of it, a store and a log.
type rig struct {
	t     *testing.T
	rnd   *rand.Rand
	name  string // of the run, to find it again
	arena *Arena
	space *alloc.Space
	vols  []*volume
	gone  []*volume // deleted, their maps not removed yet
	refs  []*held
	next  uint32 // number of the next volume

	inGrain  []int // sectors of the model, held ones too, by grain
	inSector []int // and by physical sector

	extents []int
	edits   []edit // the log
	ckpt    testCheckpoint

	spread bool // writes go anywhere, and so fill the space

	leafBytes uint64   // of the arenas
	mapBytes  uint64   // of them, 0: no leaf leaves
	pending   []func() // answers of the store
	depth     int      // of changes while others wait
	waited    int

	faults bool     // pages are not always read
	hung   []func() // answers that do not come before heal
	faulty int      // pages that were not read, or late
	failed int      // that hence did not what they wanted

	audits  []*Audit // under way
	blind   int      // pages that could not be read for one
	audited int      // that have ended
	sure    int      // starts by the account in the store
	over    int      // starts by one with references that no page has
}

func newTestRig(t *testing.T, rnd *rand.Rand, name string, extents ...int) *rig {
	r := &rig{t: t, rnd: rnd, name: name, extents: extents, leafBytes: node.DefaultLeafBytes}
	r.ckpt.store = map[string][]byte{}
	r.open()
	return r
}

// open makes arena and space anew, empty.
func (r *rig) open() {
	r.arena, r.audits = NewArena(func() {}), nil
	r.arena.nodes.LeafBytes = r.leafBytes
	r.bound()
	r.space = alloc.New(r.extents, alloc.Events{Freed: r.freed, Vacated: func(uint32) {}})
	grains := int(r.space.Grains())
	r.inGrain, r.inSector = make([]int, grains), make([]int, grains*layout.WindowSectors)
}

func (r *rig) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s: "+format, append([]any{r.name}, args...)...)
}

// freed hears of a grain: nothing of the model may lie in it.
func (r *rig) freed(g uint64) {
	if n := r.inGrain[g]; n != 0 {
		r.fatalf("grain %d was freed, %d sectors lie in it", g, n)
	}
}

// drop hears of sectors that nobody refers to any more.
func (r *rig) drop(base uint64, mask layout.Mask) {
	for i := mask.Next(0); i < layout.WindowSectors; i = mask.Next(i + 1) {
		if n := r.inSector[base+i]; n != 0 {
			r.fatalf("physical sector %d was dropped, it is in use %d times", base+i, n)
		}
	}
}

// count books sectors that the model has, or has no more.
func (r *rig) count(list []sector, n int) {
	for _, s := range list {
		if s.state == block.Data {
			r.inGrain[s.phys>>layout.WindowShift] += n
			r.inSector[s.phys] += n
		}
	}
}

// first writes eight sectors where nothing was written before.
func (r *rig) first(v *volume, at uint64) {
	r.t.Helper()
	g, ok := v.m.Allocate(at >> layout.WindowShift)
	if !ok {
		r.t.Fatal("there is no space")
	}
	r.do(v, at, 8, sector{block.Data, g<<layout.WindowShift + at%layout.WindowSectors})
}

// add makes a volume.
func (r *rig) add(sectors uint64, thick bool) *volume {
	v := &volume{id: r.next, thick: thick, sectors: make([]sector, sectors)}
	r.next += 1 + uint32(r.rnd.IntN(300))
	r.vols = append(r.vols, v)
	r.attach(v)
	r.account(v)
	return v
}

// attach gives a volume a map.
func (r *rig) attach(v *volume) {
	v.m = r.arena.NewMap(Config{Space: r.space, Volume: v.id, Sectors: uint64(len(v.sectors)), Thick: v.thick, Drop: r.drop})
}

func windowsOf(sectors int) int64 {
	return int64(sectors+layout.WindowSectors-1) >> layout.WindowShift
}

func (v *volume) entitled() int64 {
	if v.thick {
		return windowsOf(len(v.sectors))
	}
	return v.m.Sums().Promised
}

func (r *rig) account(v *volume) { r.space.Entitle(v.m.Tenant(), v.entitled()) }

// apply makes an edit in the map, as its owner and the replay of a log do.
func (v *volume) apply(e edit) {
	if span := v.m.Span(); e.Start >= span {
		return
	} else if e.Count = min(e.Count, span-e.Start); e.Count == 0 {
		return
	}
	if e.state == block.Data {
		v.m.SetData(e.Range, e.phys)
		return
	}
	end := e.End()
	if end == uint64(len(v.sectors)) && (v.thick || e.state != block.Anchored) {
		end = v.m.Span()
	}
	v.m.SetState(e.Start, end, e.state)
}

// do changes model, log and map. The model is first: what the map tells meanwhile is of the time
// after.
func (r *rig) do(v *volume, start, n uint64, to sector) {
	r.edits = append(r.edits, edit{vol: v.id, Range: block.Range{Start: start, Count: n}, sector: to})
	list := v.sectors[start:min(start+n, uint64(len(v.sectors)))]
	r.count(list, -1)
	for i := range list {
		list[i] = sector{state: to.state}
		if to.state == block.Data {
			list[i].phys = to.phys + uint64(i)
		}
	}
	r.count(list, 1)
	v.apply(r.edits[len(r.edits)-1])
	r.account(v)
}

// write writes to a part of one window: in place or to a new grain. It returns false when there is
// no space, which is never so for an entitled window.
func (r *rig) write(v *volume, w, first, n uint64) bool {
	at := w<<layout.WindowShift + first
	if !r.need(v, block.Range{Start: at, Count: n}, SetData) {
		return true
	}
	window := v.sectors[w<<layout.WindowShift : min((w+1)<<layout.WindowShift, uint64(len(v.sectors)))]
	if phys, mapped, ok := v.m.InPlace(w, first, n); ok {
		mine, there := 0, true
		for i, s := range window {
			if s.state == block.Data && s.phys>>layout.WindowShift == phys>>layout.WindowShift {
				mine++
			}
			if i := uint64(i); i >= first && i < first+n && s != (sector{block.Data, phys + i}) {
				there = false
			}
		}
		if others := r.inGrain[phys>>layout.WindowShift] - mine; others != 0 {
			r.fatalf("volume %d, window %d is to be written in place; %d sectors of others are there", v.id, w, others)
		}
		if mapped != there {
			r.fatalf("volume %d: sectors %d to %d of window %d are in their place: %v", v.id, first, first+n, w, mapped)
		}
		if !mapped {
			r.do(v, at, n, sector{block.Data, phys + first})
		}
		if s, _ := v.m.find(w); v.m.homes.Entitled(s) && v.m.homes.Of(s, w) == alloc.NoGrain {
			r.fatalf("volume %d, window %d was written in place and has no home", v.id, w)
		}
		return true
	}
	g, ok := v.m.Allocate(w)
	for !ok && r.arena.HasGarbageOf(r.space) {
		r.pump()
		g, ok = v.m.Allocate(w)
	}
	if !ok && v.m.Entitled(w) {
		for _, h := range r.refs {
			if !h.ref.Lost() {
				r.count(h.was, -1)
			}
		}
		if !r.arena.Refs.GiveUp(r.space) {
			if r.arena.PassedOver() > 0 || r.arena.acct.HasTooMuch() { // what should have come back does not
				return false
			}
			r.fatalf("volume %d, window %d is promised its space and has got none", v.id, w)
		}
		// Now it may have one in place.
		return r.write(v, w, first, n)
	}
	if !ok {
		return false
	}
	if r.inGrain[g] != 0 {
		r.fatalf("grain %d was allocated, %d sectors lie in it", g, r.inGrain[g])
	}
	if r.rnd.IntN(10) == 0 { // the write cannot be finished
		r.space.Free(g)
		return true
	}
	r.do(v, at, n, sector{block.Data, g<<layout.WindowShift + first})
	return true
}

// hold makes a reference to a range.
func (r *rig) hold(v *volume, g block.Range) *held {
	h := &held{ref: v.m.Hold([]block.Range{g}, 1<<20), was: slices.Clone(v.sectors[g.Start:g.End()])}
	r.count(h.was, 1)
	r.refs = append(r.refs, h)
	return h
}

func (r *rig) release(h *held) {
	if !h.ref.Lost() {
		r.count(h.was, -1)
	}
	h.ref.Release()
	r.refs = slices.DeleteFunc(r.refs, func(o *held) bool { return o == h })
}

// place makes a range of a volume what a reference has, if there is space for it.
func (r *rig) place(h *held, off, n uint64, v *volume, at uint64) {
	var edits []edit
	shared, kept, last := int64(0), false, alloc.NoGrain
	h.ref.Runs(off, n, func(x Run) bool {
		e := edit{Range: block.Range{Start: at + x.Start, Count: x.Count}, sector: sector{x.State, x.Phys}}
		switch {
		case x.State == block.Data:
			for g := x.Phys >> layout.WindowShift; g <= (x.Phys+x.Count-1)>>layout.WindowShift; g++ {
				if g != last && r.space.SoleHome(g) {
					shared++
				}
				kept, last = kept || r.space.MapRefs(g) == 0, g
			}
		case x.State == block.Unmapped && v.thick:
			e.state = block.Anchored
		case x.State == block.Anchored && !v.thick:
			e.state = block.Unmapped
		}
		edits = append(edits, e)
		return true
	})
	if (shared > 0 || kept) && !r.arena.MakeAvailable(r.space, shared) {
		return
	}
	for _, e := range edits {
		r.do(v, e.Start, e.Count, e.sector)
	}
}

// resize changes a volume's size.
func (r *rig) resize(v *volume, sectors int) {
	if n := len(v.sectors) - sectors; n > 0 && !r.need(v, block.Range{Start: uint64(sectors), Count: uint64(n)}, SetState) {
		return
	}
	if v.thick && !r.arena.MakeAvailable(r.space, windowsOf(sectors)-windowsOf(len(v.sectors))) {
		return
	}
	lo := uint64(min(sectors, len(v.sectors)))
	r.edits = append(r.edits, edit{vol: v.id, Range: block.Range{Start: lo, Count: v.m.Span() - lo}})
	r.count(v.sectors[lo:], -1)
	v.sectors = append(v.sectors[:lo:lo], make([]sector, uint64(sectors)-lo)...)
	v.m.SetState(lo, v.m.Span(), block.Unmapped)
	v.m.Grow(uint64(sectors))
	v.m.SetEnd(uint64(sectors))
	r.account(v)
}

// remove deletes a volume; its map goes when its last home has gone.
func (r *rig) remove(v *volume) {
	r.vols = slices.DeleteFunc(r.vols, func(o *volume) bool { return o == v })
	v.m.Abandon()
	r.count(v.sectors, -1)
	v.m.Clear()
	r.space.Entitle(v.m.Tenant(), 0)
	r.gone = append(r.gone, v)
	r.retire()
}

func (r *rig) retire() {
	r.gone = slices.DeleteFunc(r.gone, func(v *volume) bool {
		if v.m.Tenant().Marked > 0 {
			return false
		}
		v.m.Remove()
		return true
	})
}

// MakeAvailable reports whether so many grains of a space are available when all of its garbage that is needed for that is
// collected.
func (a *Arena) MakeAvailable(space *alloc.Space, grains int64) bool {
	ok, more := a.TryAvailable(space, grains)
	for more {
		if a.GarbageReads(space) != nil {
			a.away.From.(*rig).pump()
		}
		ok, more = a.TryAvailable(space, grains)
	}
	return ok
}

// Entries counts the maximal runs of equal state (physically contiguous for data) in the first n sectors.
func (m *Map) Entries(n uint64) int {
	count := 0
	m.Walk(block.Range{Count: n}, func(Run) bool { count++; return true })
	return count
}
