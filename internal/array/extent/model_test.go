package extent

import (
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// check compares everything with the model.
func (r *rig) check() {
	r.t.Helper()
	r.checkAbsent()
	defer func(n int) { r.arena.away.inCalls = n }(r.arena.ReadInCalls()) // what is compared is read at once
	want, windows := r.space.NewCounts(), 0
	reading := r.reading()
	for _, v := range r.vols {
		windows += v.references(want)
		r.compare(v)
		r.compareHomes(v)
		r.checkForms(v)
	}
	r.leave(reading)
	u := r.audit()
	for u.Step(1 + r.rnd.IntN(10)) {
	}
	r.compareAudit(u)
	if got := u.Windows(); got < windows {
		r.fatalf("%d windows in use, %d have data", windows, got)
	}
	for g := range uint64(r.space.Grains()) {
		if got, want := u.found.Of(g), want.Of(g); got != want {
			r.fatalf("grain %d: the maps have %d references, the model %d", g, got, want)
		}
	}
	r.checkSearch()
	for _, h := range r.refs {
		r.compareRef(h)
	}
	if layers, states := r.arena.nodes.Windows.Live(); states > layers {
		r.fatalf("%d windows have states, of %d", states, layers)
	}
}

// reading returns the leaves of volumes that are on their way into memory.
func (r *rig) reading() (leaves []demand.Key) {
	for _, v := range r.vols {
		for leaf := range node.LeafOf(uint64(len(v.sectors))-1) + 1 {
			k := demand.Key{Volume: v.id, Leaf: leaf}
			if s, _ := v.m.leafSlot(leaf); s.Kind() == window.KindAbsent && r.arena.Demand().Reading(k) != nil {
				leaves = append(leaves, k)
			}
		}
	}
	return leaves
}

// leave has leaves leave again that a comparison has read at once. In an array nothing brings a leaf in that is being read: were
// it changed, stored and dropped before that ends, the answer would be older than what the store has.
func (r *rig) leave(leaves []demand.Key) {
	for _, k := range leaves {
		m := r.arena.maps[k.Volume]
		s, _ := r.arena.nodes.Find(&m.root, m.levels, 0, k.Leaf)
		r.arena.nodes.Drop(s)
		r.arena.away.leaves++
	}
}

// checkSearch looks for a few physical sectors.
func (r *rig) checkSearch() {
	r.t.Helper()
	var phys []uint64
	var want []Place
	for range r.rnd.IntN(4) {
		p := r.rnd.Uint64N(uint64(r.space.Grains())) << layout.WindowShift
		if r.rnd.IntN(2) == 0 {
			p += r.rnd.Uint64N(layout.WindowSectors)
		}
		x := Place{Phys: p}
		for _, v := range r.vols {
			if lba := slices.Index(v.sectors, sector{block.Data, p}); lba >= 0 && !x.Found {
				x = Place{Phys: p, Found: true, Volume: v.id, LBA: uint64(lba)}
			}
		}
		phys, want = append(phys, p), append(want, x)
	}
	s := r.arena.NewSearch(r.space, phys)
	for s.Step(1 + r.rnd.IntN(300)) {
	}
	if !slices.Equal(s.Places(), want) {
		r.fatalf("the sectors %d are found at %+v, not at %+v", phys, s.Places(), want)
	}
}

// compareHomes verifies that the windows of a volume have all of its homes, when there is no garbage that has some.
func (r *rig) compareHomes(v *volume) {
	r.t.Helper()
	marked := v.m.Tenant().Marked
	if marked == 0 || r.arena.HasGarbage() {
		return
	}
	homes := int64(0)
	for w := range uint64(windowsOf(len(v.sectors))) {
		if s, _ := v.m.find(w); v.m.homes.Of(s, w) != alloc.NoGrain {
			homes++
		}
	}
	if homes != marked {
		r.fatalf("volume %d: %d grains are marked as homes, its windows have %d; %d leaves were passed over", v.id, marked, homes, r.arena.PassedOver())
	}
}

// audit begins an audit.
func (r *rig) audit() *Audit {
	r.t.Helper()
	return r.arena.NewAudit(r.space, func(vol uint32, why string) {
		if !r.faults || !strings.Contains(why, "cannot be read") {
			r.fatalf("volume %d: %s", vol, why)
		}
		r.blind++
	})
}

// compareAudit ends an audit that has been everywhere. One that has come by a page that could not be read finds no more than that.
func (r *rig) compareAudit(u *Audit) {
	r.t.Helper()
	for _, why := range u.Compare() {
		r.fatalf("%s", why)
	}
	u.End()
}

// stepAudits goes on with the audits that are under way.
func (r *rig) stepAudits(n int) {
	r.t.Helper()
	r.audits = slices.DeleteFunc(r.audits, func(u *Audit) bool {
		if u.Step(n) {
			u.Await(func() {})
			return false
		}
		r.compareAudit(u)
		r.audited++
		return true
	})
}

// references adds the references that the model has: one for each window and grain of a layer. It
// returns the number of windows with data.
func (v *volume) references(to *alloc.Counts) (windows int) {
	type layer struct{ base, grain uint64 }
	var seen []layer
	for w := 0; w < len(v.sectors); w += layout.WindowSectors {
		seen = seen[:0]
		last := layer{grain: alloc.NoGrain}
		for i, s := range v.sectors[w:min(w+layout.WindowSectors, len(v.sectors))] {
			if s.state != block.Data {
				continue
			}
			l := layer{s.phys - uint64(i), s.phys >> layout.WindowShift}
			if l != last && !slices.Contains(seen, l) {
				seen = append(seen, l)
				to.Add(l.grain)
			}
			last = l
		}
		if len(seen) > 0 {
			windows++
		}
	}
	return windows
}

// compareSums compares what a map says by the sums of its nodes with what its windows say.
func (r *rig) compareSums(v *volume) {
	r.t.Helper()
	at, all := uint64(0), block.Range{Count: uint64(len(v.sectors))}
	v.m.WalkStates(all, 1<<30, func(x Run) bool {
		for ; at < x.End() && x.Start <= at; at++ {
			if v.sectors[at].state != x.State {
				r.fatalf("volume %d, sector %d: %v, not %v", v.id, at, x.State, v.sectors[at].state)
			}
		}
		return at == x.End()
	})
	if at != all.Count {
		r.fatalf("volume %d: states are told up to sector %d", v.id, at)
	}
	want, n := int64(0), uint64(windowsOf(len(v.sectors)))
	for w := range n {
		if s, _ := v.m.find(w); !v.m.homes.Anchored(s) && !v.m.homes.Private(s) {
			want++
		}
	}
	if got, _ := v.m.AnchorCost([]block.Range{all}); got != want {
		r.fatalf("volume %d: to anchor all of it takes %d grains, not %d", v.id, got, want)
	}
}

// comparePart compares a part of a map with the model, while whoever is told of it looks at other parts, which may be packed.
func (r *rig) comparePart(v *volume) {
	r.t.Helper()
	g := r.where(v)
	at := g.Start
	v.m.Walk(g, func(x Run) bool {
		if x.Start != at || x.Count == 0 || x.End() > g.End() {
			r.fatalf("volume %d: a run %v of %v comes behind sector %d", v.id, x.Range, g, at)
		}
		for other := range 3 {
			r.compareWindow(r.vols[(other+int(at))%len(r.vols)])
		}
		for ; at < x.End(); at++ {
			got := sector{state: x.State}
			if x.State == block.Data {
				got.phys = x.Phys + at - x.Start
			}
			if got != v.sectors[at] {
				r.fatalf("volume %d, sector %d of %v: %v, not %v", v.id, at, g, got, v.sectors[at])
			}
		}
		return r.rnd.IntN(50) > 0 || at == g.End()
	})
	slots, at := 1+r.rnd.IntN(50), g.Start
	v.m.WalkStates(g, slots, func(x Run) bool {
		if x.Start != at || x.Count == 0 || x.End() > g.End() {
			r.fatalf("volume %d: a state of %v of %v comes behind sector %d", v.id, x.Range, g, at)
		}
		r.compareWindow(v)
		for ; at < x.End(); at++ {
			if v.sectors[at].state != x.State {
				r.fatalf("volume %d, sector %d: %v, not %v", v.id, at, x.State, v.sectors[at].state)
			}
		}
		return true
	})
	if least := min(g.End(), g.Start&^(layout.WindowSectors-1)+uint64(slots)<<layout.WindowShift); at < least {
		r.fatalf("volume %d: of %v states are told up to sector %d, in %d slots", v.id, g, at, slots)
	}
	r.compareCost(v)
}

// compareWindow compares what a map says of any window.
func (r *rig) compareWindow(v *volume) {
	r.t.Helper()
	w := r.rnd.Uint64N(uint64(windowsOf(len(v.sectors))))
	data := slices.ContainsFunc(v.sectors[w<<layout.WindowShift:min((w+1)<<layout.WindowShift, uint64(len(v.sectors)))], func(s sector) bool { return s.state == block.Data })
	if got := v.m.HasData(w); got != data {
		r.fatalf("volume %d, window %d has data: %v, not %v", v.id, w, got, data)
	}
}

// compareCost compares what it takes to anchor some ranges, which may lie in one another.
func (r *rig) compareCost(v *volume) {
	r.t.Helper()
	var ranges []block.Range
	windows := map[uint64]bool{}
	for range 1 + r.rnd.IntN(3) {
		g := r.where(v)
		if r.rnd.IntN(5) == 0 {
			g.Count = 0
		}
		ranges = append(ranges, g)
		for w := g.Start >> layout.WindowShift; g.Count > 0 && w <= (g.End()-1)>>layout.WindowShift; w++ {
			windows[w] = true
		}
	}
	want := int64(0)
	for w := range windows {
		if s, _ := v.m.find(w); !v.m.homes.Anchored(s) && !v.m.homes.Private(s) {
			want++
		}
	}
	if got, guessed := v.m.AnchorCost(ranges); got != want && !(guessed && got > want) {
		r.fatalf("volume %d: to anchor %v takes %d grains, not %d", v.id, ranges, got, want)
	}
}

// compare compares a map with the model, sector by sector, and what it says of itself.
func (r *rig) compare(v *volume) {
	r.t.Helper()
	for leaf := range node.LeafOf(uint64(len(v.sectors))-1) + 1 { // what is absent ends some walks
		v.m.find(leaf << node.FanoutBits)
	}
	r.comparePart(v)
	r.compareSums(v)
	at, entries := uint64(0), 0
	v.m.Walk(block.Range{Count: uint64(len(v.sectors))}, func(x Run) bool {
		entries++
		if x.Start != at || x.Count == 0 {
			r.fatalf("volume %d: a run %v comes behind sector %d", v.id, x.Range, at)
		}
		for ; at < x.End(); at++ {
			want := v.sectors[at]
			if got := (sector{x.State, 0}); x.State == block.Data {
				got.phys = x.Phys + at - x.Start
				if got != want {
					r.fatalf("volume %d, sector %d: %v, not %v", v.id, at, got, want)
				}
			} else if got != want {
				r.fatalf("volume %d, sector %d: %v, not %v", v.id, at, got, want)
			}
		}
		return true
	})
	if at != uint64(len(v.sectors)) {
		r.fatalf("volume %d: the runs end at sector %d of %d", v.id, at, len(v.sectors))
	}
	var sums Sums
	runs := 0
	for i, s := range v.sectors {
		switch s.state {
		case block.Zero:
			sums.Zero++
		case block.Anchored:
			sums.Anchored++
		case block.Data:
			sums.Data++
		}
		if i == 0 || s.state != v.sectors[i-1].state || s.state == block.Data && s.phys != v.sectors[i-1].phys+1 {
			runs++
		}
	}
	got := v.m.SumsOf(uint64(len(v.sectors)))
	if got.Promised = 0; got != sums {
		r.fatalf("volume %d: %+v, not %+v", v.id, got, sums)
	}
	if n := v.m.Entries(uint64(len(v.sectors))); n != runs || entries != runs {
		r.fatalf("volume %d: %d entries, %d runs, not %d", v.id, n, entries, runs)
	}
}

// checkForms verifies that each window is in the least form.
func (r *rig) checkForms(v *volume) {
	r.t.Helper()
	v.m.arena.nodes.EachWindow(v.m.root, v.m.vol, 0, func(w uint64, s window.Slot) {
		if why := r.arena.nodes.Windows.Check(s); why != "" {
			r.fatalf("volume %d, window %d %s", v.id, w, why)
		}
	})
}

// compareRef compares a part of a reference with what the volume was.
func (r *rig) compareRef(h *held) {
	r.t.Helper()
	if h.ref.Lost() {
		return
	}
	off := r.rnd.Uint64N(uint64(len(h.was)))
	n := 1 + r.rnd.Uint64N(uint64(len(h.was))-off)
	at := uint64(0)
	h.ref.Runs(off, n, func(x Run) bool {
		if x.Start != at {
			r.fatalf("a run %v of a reference comes behind sector %d", x.Range, at)
		}
		for ; at < x.End(); at++ {
			got := sector{state: x.State}
			if x.State == block.Data {
				got.phys = x.Phys + at - x.Start
			}
			if got != h.was[off+at] {
				r.fatalf("sector %d of a reference is %v, not %v", off+at, got, h.was[off+at])
			}
		}
		return true
	})
	if at != n || h.ref.Sectors() != uint64(len(h.was)) {
		r.fatalf("the runs of a reference of %d sectors end at %d of %d", h.ref.Sectors(), at, n)
	}
}
