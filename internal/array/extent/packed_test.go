package extent

import (
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// run makes random changes and returns what there is after each, and what the store has in the end.
func (r *rig) run(steps int) (trace []string) {
	r.add(70000, false)
	r.add(300, false)
	r.add(1500, true)
	name := r.name
	for step := range steps {
		r.name = fmt.Sprintf("%s, step %d", name, step)
		r.change()
		if step%20 == 0 {
			r.check()
		}
		trace = append(trace, fmt.Sprintf("step %d: %d nodes, %d edits, %d grains, %d available", step, r.arena.Nodes(), len(r.edits), r.space.Allocated(), r.space.Available()))
	}
	for r.arena.Collect(1000) {
	}
	for range 2 { // the first may be one that has begun before
		r.finish()
	}
	for _, k := range slices.Sorted(maps.Keys(r.ckpt.store)) {
		trace = append(trace, fmt.Sprintf("page %x: %08x", k, crc32.ChecksumIEEE(r.ckpt.store[k])))
	}
	return trace
}

// TestPackingIsNotSeen: all goes the same way, step by step, and ends in the same pages, whether leaves are packed as
// soon as they can be or never; and they are, and not more stay as they are than may. A checkpoint that runs may
// have a page once more if its leaf is not packed.
func TestPackingIsNotSeen(t *testing.T) {
	seed := testkit.Seed(t)
	packs, nodes := 0, 0
	for round := range uint64(12) {
		var first []string
		for _, limit := range []uint64{node.DefaultLeafBytes, 0, 2 * uint64(unsafe.Sizeof(node.Node{}))} {
			r := newTestRig(t, rand.New(rand.NewPCG(seed, round)), fmt.Sprintf("-seed %d, round %d, %d bytes", seed, round, limit), 1, int(round%3))
			r.leafBytes, r.arena.nodes.LeafBytes = limit, limit
			r.spread = round%3 < 2
			trace := r.run(300)
			if first == nil {
				first = trace
			}
			for i := range min(len(trace), len(first)) {
				if trace[i] != first[i] {
					t.Fatalf("%s:\n%s, not\n%s", r.name, trace[i], first[i])
				}
			}
			if len(trace) != len(first) {
				t.Fatalf("%s: %d pages, not %d", r.name, len(trace), len(first))
			}
			for range 100 {
				r.arena.nodes.Trim()
			}
			if limit == node.DefaultLeafBytes {
				if r.arena.nodes.Windows.Packed() > 0 {
					t.Fatalf("%s: %d leaves are packed, of few", r.name, r.arena.nodes.Windows.Packed())
				}
				continue
			}
			if packs += r.arena.nodes.Windows.Packed(); r.arena.nodes.LooseBytes() > limit {
				t.Errorf("%s: %d leaves are not packed, %d are", r.name, r.arena.nodes.Loose(), r.arena.nodes.Windows.Packed())
			}
			nodes += r.arena.Nodes()
			r.check()
		}
	}
	if packs < nodes/4 {
		t.Errorf("of %d pages %d were packed: nothing is shown", nodes, packs)
	}
}

// TestStartPacks: a start packs leaves as they come, before there is what leads to them.
func TestStartPacks(t *testing.T) {
	r := newRigOf(t)
	v := r.add(70000, false)
	v.m.Grow(1 << 30)
	for i := range uint64(60) {
		r.do(v, i*1000, 300, sector{state: block.Zero})
	}
	for leaf := range uint64(50) {
		v.m.SetState(1<<20+leaf<<15, 1<<20+leaf<<15+77, block.Zero)
	}
	r.finish()
	sums, nodes := v.m.Sums(), r.arena.Nodes()
	r.open()
	r.arena.nodes.LeafBytes = 3 * uint64(unsafe.Sizeof(node.Node{}))
	r.arena.StartLoading()
	r.attach(v)
	most := 0
	l := r.arena.NewLoader()
	if err := l.AddRoot(node.RootKey(v.id), r.ckpt.store[string(node.RootKey(v.id))]); err != nil {
		t.Fatal(err)
	}
	if err := v.m.TakeRoot(l); err != nil {
		t.Fatal(err)
	}
	for _, k := range slices.Sorted(maps.Keys(r.ckpt.store)) {
		if k[:1] == KeyNode {
			if err := l.AddNode([]byte(k), r.ckpt.store[k]); err != nil {
				t.Fatal(err)
			}
			most = max(most, r.arena.nodes.Loose())
		}
	}
	l.End()
	if err := r.arena.EndLoading(); err != nil {
		t.Fatal(err)
	}
	if most > 3 || r.arena.nodes.Windows.Packed() < 40 || v.m.Sums() != sums || r.arena.Nodes() != nodes {
		t.Errorf("up to %d leaves were not packed, %d are; %d pages, not %d, with %+v, not %+v", most, r.arena.nodes.Windows.Packed(), r.arena.Nodes(), nodes, v.m.Sums(), sums)
	}
	for _, why := range r.problems() {
		t.Error(why)
	}
}

// TestCheckLooksIntoPackedLeaves: what a leaf says of itself is held against what it has.
func TestCheckLooksIntoPackedLeaves(t *testing.T) {
	r := newRigOf(t)
	r.arena.nodes.LeafBytes = 0
	v := r.add(300, false)
	r.do(v, 3, 5, sector{state: block.Zero})
	r.finish()
	if s := v.m.root; s.Kind() != window.KindPacked || len(r.problems()) > 0 {
		t.Fatalf("the root is %#x, and %v", s, r.problems())
	}
	_, nd := r.arena.nodes.Unpack(&v.m.root, node.LeafKey(v.m.vol, 0))
	nd.Sums.Zero++
	if r.arena.nodes.Pack(&v.m.root); v.m.root.Kind() != window.KindPacked || len(r.problems()) == 0 {
		t.Error("a sum that is wrong is not found")
	}
}

// TestUnpackingAllocatesNothing: leaves come and go in memory that there is.
func TestUnpackingAllocatesNothing(t *testing.T) {
	r := newRigOf(t)
	r.arena.nodes.LeafBytes = 0
	v := r.add(70000, false)
	v.m.Grow(1 << 22)
	for leaf := range uint64(20) {
		v.m.SetState(leaf<<15, leaf<<15+8, block.Zero)
		v.m.SetState(leaf<<15+8, leaf<<15+9, block.Anchored)
	}
	r.finish()
	leaf := uint64(0)
	step := func() {
		leaf = (leaf + 7) % 20
		v.m.Walk(block.Range{Start: leaf << 15, Count: 9}, func(Run) bool { return true })
	}
	for range 100 {
		step()
	}
	if r.arena.nodes.Windows.Packed() < 18 {
		t.Fatalf("%d leaves are packed", r.arena.nodes.Windows.Packed())
	}
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("to look at a leaf that was packed takes %v allocations", n)
	}
}

// TestLargeLeafStays: a leaf of windows of very many layers is not packed.
func TestLargeLeafStays(t *testing.T) {
	r := newRigOf(t)
	r.arena.nodes.LeafBytes = 0
	v := r.add(70000, false)
	g, _ := v.m.Allocate(0)
	r.do(v, 0, layout.WindowSectors, sector{block.Data, g << layout.WindowShift})
	for w := uint64(1); w < 100; w++ { // each sector from another place in the grain
		for s := range uint64(100) {
			v.m.SetData(block.Range{Start: w<<layout.WindowShift + s, Count: 1}, g<<layout.WindowShift+s*37%layout.WindowSectors)
		}
	}
	before := v.m.Entries(70000)
	r.arena.Checkpoint().Begin(func(_, _ []byte) {})
	for r.arena.Checkpoint().Next() {
	}
	r.arena.Checkpoint().Seal()
	for range 10 {
		r.arena.nodes.Trim()
	}
	if r.arena.nodes.Windows.Packed() != 0 || r.arena.nodes.Loose() != 1 || v.m.Entries(70000) != before {
		t.Errorf("%d leaves are packed, %d are not; %d entries, %d before", r.arena.nodes.Windows.Packed(), r.arena.nodes.Loose(), v.m.Entries(70000), before)
	}
}

// TestLimitHoldsBehindABurst: where very many leaves have changed at once, few are not packed afterwards, however they are looked at.
func TestLimitHoldsBehindABurst(t *testing.T) {
	const leaves, may = 4000, 40
	r := newRigOf(t)
	r.arena.nodes.LeafBytes = may * uint64(unsafe.Sizeof(node.Node{}))
	v := r.add(70000, false)
	v.m.Grow(leaves << 15)
	for leaf := range uint64(leaves) {
		v.m.SetState(leaf<<15, leaf<<15+128, block.Zero)
	}
	r.finish()
	most := 0
	for range 5 * leaves {
		v.m.HasData(r.rnd.Uint64N(leaves << node.FanoutBits))
		most = max(most, r.arena.nodes.Loose())
	}
	if most > 2*may || r.arena.nodes.Windows.Packed() < leaves-2*may {
		t.Errorf("up to %d leaves are not packed, and %d may", most, may)
	}
}
