package extent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// where returns a range of a volume: a few sectors, whole windows, or very many. Most begin in the
// same few windows.
func (r *rig) where(v *volume) block.Range {
	size := uint64(len(v.sectors))
	hot := []uint64{0, 1, 2, 3, 254, 255, 256, 257, 512, 768}
	at := r.rnd.Uint64N(size)
	if w := hot[r.rnd.IntN(len(hot))] << layout.WindowShift; !(r.spread && r.rnd.IntN(2) == 0) && r.rnd.IntN(8) > 0 && w < size {
		at = w + r.rnd.Uint64N(min(layout.WindowSectors, size-w))
	}
	n := 1 + r.rnd.Uint64N(20)
	switch r.rnd.IntN(10) {
	case 0, 1, 2:
		at &^= layout.WindowSectors - 1
		n = layout.WindowSectors << r.rnd.IntN(3)
	case 3:
		n = 1 + r.rnd.Uint64N(300)
	case 4:
		at &^= layout.WindowSectors - 1
		n = layout.WindowSectors * node.Fanout / 2 << r.rnd.IntN(3)
	case 5:
		if r.rnd.IntN(4) == 0 {
			at, n = 0, size
		}
	}
	return block.Range{Start: at, Count: min(n, size-at)}
}

// change does something at random.
func (r *rig) change() {
	v := r.vols[r.rnd.IntN(len(r.vols))]
	g := r.where(v)
	if r.mapBytes > 0 && r.rnd.IntN(15) == 0 {
		r.cut(v)
		return
	}
	switch r.rnd.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		for range 1 + r.rnd.IntN(3) {
			w, first := g.Start>>layout.WindowShift, g.Start%layout.WindowSectors
			n := min(g.Count, layout.WindowSectors-first)
			if !r.write(v, w, first, n) {
				return
			}
			if g.Start, g.Count = g.Start+n, g.Count-n; g.Count == 0 {
				return
			}
		}
	case 8, 9, 10:
		to := []block.State{block.Unmapped, block.Zero, block.Anchored}[r.rnd.IntN(3)]
		if v.thick && to == block.Unmapped {
			to = block.Anchored
		}
		if !r.need(v, g, SetState) {
			return
		}
		if cost, _ := v.m.AnchorCost([]block.Range{g}); to == block.Anchored && !v.thick && !r.arena.MakeAvailable(r.space, cost) {
			return
		}
		r.do(v, g.Start, g.Count, sector{state: to})
	case 11, 12, 13:
		if len(r.refs) < 3 || r.rnd.IntN(2) == 0 {
			if !r.need(v, g, Look) {
				return
			}
		}
		if len(r.refs) < 3 {
			r.hold(v, g)
		}
		h := r.refs[r.rnd.IntN(len(r.refs))]
		to := r.vols[r.rnd.IntN(len(r.vols))]
		at := r.where(to)
		n := min(at.Count, uint64(len(h.was)))
		if !r.need(to, block.Range{Start: at.Start, Count: n}, SetData) || !slices.Contains(r.refs, h) {
			return
		}
		if !h.ref.Lost() {
			r.place(h, r.rnd.Uint64N(uint64(len(h.was))-n+1), n, to, at.Start)
		}
	case 14:
		if len(r.refs) > 0 {
			r.release(r.refs[r.rnd.IntN(len(r.refs))])
		}
	case 15, 16:
		r.arena.Collect(1 + r.rnd.IntN(600))
		r.retire()
	case 17, 18:
		r.step(1+r.rnd.IntN(20), 1+r.rnd.IntN(6))
	case 19:
		if r.spread && r.rnd.IntN(2) == 0 { // nothing is available then, and only what is promised can be written
			for w := range uint64(len(v.sectors)) >> layout.WindowShift {
				if !r.need(v, block.Range{Start: w << layout.WindowShift, Count: 8}, Look) || !v.m.HasData(w) && !r.write(v, w, 0, 8) {
					return
				}
			}
			return
		}
		switch n := 1 + r.rnd.IntN(70000); {
		case r.rnd.IntN(3) > 0:
			return
		case r.rnd.IntN(3) == 0 && len(r.vols) > 2:
			r.remove(v)
		case len(r.vols) < 4 && r.rnd.IntN(2) == 0:
			r.addFitting(n)
		case v.thick:
			r.resize(v, 1+n/50)
		default:
			r.resize(v, n)
		}
	}
}

// cut makes whole leaves of a volume one state, or all of it, when most leaves are absent.
func (r *rig) cut(v *volume) {
	for n := r.rnd.IntN(3); n > 0; n-- {
		r.step(200, 200)
	}
	for range 2 {
		r.arena.Evict(1 << 20)
	}
	size := uint64(len(v.sectors))
	g := block.Range{Start: r.rnd.Uint64N(size) &^ (node.LeafSectors - 1), Count: node.LeafSectors << r.rnd.IntN(3)}
	g.Count = min(g.Count, size-g.Start)
	if r.need(v, g, SetState) {
		to := block.Zero
		if r.rnd.IntN(2) == 0 && !v.thick {
			to = block.Unmapped
		}
		r.do(v, g.Start, g.Count, sector{state: to})
	}
}

// addFitting adds a thin volume, or a thick one that there is space for.
func (r *rig) addFitting(sectors int) {
	thick := r.rnd.IntN(2) == 0
	if thick {
		if sectors = 1 + sectors/50; !r.arena.MakeAvailable(r.space, windowsOf(sectors)) {
			return
		}
	}
	r.add(uint64(sectors), thick)
}

// TestRandom changes maps at random, with references, garbage, and checkpoints and audits that run
// meanwhile; the process dies now and then. All is what a slice of sectors says. In some rounds pages of absent leaves are not read, or
// late: what needs one changes nothing then, and of garbage the references stay taken until the next start.
func TestRandom(t *testing.T) {
	seed := testkit.Seed(t)
	checkpoints, lost, full, audited, waited, failed, passed, sure, blind, over := 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	shows := func() bool {
		return checkpoints >= 50 && lost > 0 && full > 0 && audited >= 500 && waited >= 150 && failed >= 20 && passed > 0 && sure >= 20 && blind > 0
	}
	rounds, most := uint64(40), uint64(120)
	if testing.Short() {
		rounds, most = 15, 15
	}
	// Seldom are 40 rounds too few: then it takes some more.
	for round := uint64(0); round < rounds || round < most && !shows(); round++ {
		extents, thick := []int{1, int(round % 3)}, uint64(1500)
		if round%8 == 4 || round%8 == 7 { // a thick volume has leaves that may be absent, too
			extents, thick = []int{10, 2}, 70000
		}
		r := newTestRig(t, rand.New(rand.NewPCG(seed, round)), fmt.Sprintf("-seed %d, round %d", seed, round), extents...)
		r.spread = round%3 < 2
		r.leafBytes = []uint64{node.DefaultLeafBytes, 0, 5000, 0}[round%4]
		r.arena.nodes.LeafBytes = r.leafBytes
		if round%5 > 1 {
			r.mapBytes = []uint64{1, 20000}[round/5%2]
			if r.faults = round%4 > 1; r.faults {
				r.mapBytes = 1
			}
			r.bound()
		}
		r.add(70000, false)
		r.add(300, false)
		r.add(thick, true)
		for step := range 500 {
			name := r.name
			r.name = fmt.Sprintf("%s, step %d", name, step)
			r.change()
			if r.rnd.IntN(30) == 0 {
				r.heal()
			}
			if r.faults && r.rnd.IntN(20) == 0 {
				r.arena.Demand().Late(0)
			}
			if r.rnd.IntN(100) == 0 {
				passed += r.arena.PassedOver()
				if r.crash(); r.rnd.IntN(2) == 0 {
					r.finish()
				}
				r.check()
			}
			if r.rnd.IntN(4) == 0 && len(r.audits) < 2 {
				r.audits = append(r.audits, r.audit())
				r.audits[len(r.audits)-1].Wait = r.rnd.IntN(2) == 0
			}
			r.deliver(r.rnd.IntN(3))
			if r.rnd.IntN(2) == 0 {
				r.arena.Evict(1 << 20)
			}
			if n := r.arena.ReadInCalls(); n > 0 {
				r.fatalf("%d leaves were read by who did not wait for them", n)
			}
			r.stepAudits(r.rnd.IntN(200))
			if step%10 == 0 {
				r.check()
			}
			for _, h := range r.refs {
				if h.ref.Lost() {
					lost++
				}
			}
			if r.space.Available() <= 0 {
				full++
			}
			r.name = name
		}
		r.collect()
		r.check()
		if passed += r.arena.PassedOver(); r.faults { // a start that reads all pages finds what stayed taken
			r.faults = false
			r.crash()
			r.check()
		}
		checkpoints += r.ckpt.count
		failed += r.failed
		for r.stepAudits(100); len(r.audits) > 0; r.stepAudits(100) {
			r.heal()
			r.deliver(1)
		}
		audited += r.audited
		for len(r.refs) > 0 {
			r.release(r.refs[0])
		}
		for len(r.vols) > 0 {
			r.remove(r.vols[0])
		}
		r.collect()
		r.retire()
		waited += r.waited
		sure += r.sure
		blind += r.blind
		over += r.over
		layers, states := r.arena.nodes.Windows.Live()
		if r.arena.Nodes() != 0 || r.arena.nodes.Loose()+r.arena.nodes.Windows.Packed() != 0 || layers+states != 0 || r.space.Allocated() != 0 || r.space.Reserved() != 0 || len(r.gone) != 0 {
			t.Fatalf("%s: when all volumes are gone there are %d nodes, %d details, %d grains allocated and %d reserved, and %d maps", r.name,
				r.arena.Nodes(), layers, r.space.Allocated(), r.space.Reserved(), len(r.gone))
		}
	}
	if !testing.Short() && !shows() {
		t.Errorf("%d checkpoints, %d lost references, %d steps without space, %d audits, %d waits for leaves, %d of them in vain, %d leaves passed over, %d starts by the account, %d by one with too much, %d pages not read by audits: the test shows too little",
			checkpoints, lost, full, audited, waited, failed, passed, sure, over, blind)
	}
}
