package extent

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/home"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// TestWholeVolumeIsOneSlot: what is of one state costs nothing, however large it is, and what is
// superseded is cut off in one step.
func TestWholeVolumeIsOneSlot(t *testing.T) {
	r := newRigOf(t)
	announced := 0
	r.arena.onGarbage = func() { announced++ }
	m := r.arena.NewMap(Config{Space: r.space, Volume: 9, Sectors: 64 << 40 / 512, Drop: r.drop})
	if m.levels != node.MaxLevels || m.Span() < 64<<40/512 {
		t.Fatalf("a volume of 64 TiB has %d levels", m.levels)
	}
	empty := r.arena.Bytes()
	for w := range uint64(60) {
		g, ok := m.Allocate(w << 20)
		if !ok {
			t.Fatal("no space")
		}
		m.SetData(block.Range{Start: w << 20 << layout.WindowShift, Count: 8}, g<<layout.WindowShift)
	}
	if n := r.arena.Nodes(); n < 60 || r.arena.Bytes() < empty+60*2048 || !m.HasData(1<<20) || m.HasData(1) {
		t.Fatalf("60 windows far from each other have %d nodes, %d bytes", n, r.arena.Bytes())
	}
	m.SetState(0, m.Span(), block.Zero)
	if s, n := m.find(12345); s != window.KindZero || n != m.Span()>>layout.WindowShift-12345 || announced != 1 || r.space.Allocated() != 60 {
		t.Fatalf("the slot is %#x for %d windows; garbage was announced %d times; %d grains are allocated", s, n, announced, r.space.Allocated())
	}
	steps := 1
	for ; r.arena.Collect(GarbageStep); steps++ {
	}
	if r.arena.Nodes() != 0 || r.space.Allocated() != 0 || steps < 4 {
		t.Errorf("after %d steps there are %d nodes and %d grains", steps, r.arena.Nodes(), r.space.Allocated())
	}
}

// TestAnchorCost: a window counts once, and not if it has a grain of its own or an anchor.
func TestAnchorCost(t *testing.T) {
	r := newRigOf(t)
	v := r.add(70000, false)
	const w = layout.WindowSectors
	r.write(v, 5, 0, 8)
	for len(v.sectors) > 0 && v.sectors[5*w].state != block.Data { // the rig gives up a write now and then
		r.write(v, 5, 0, 8)
	}
	r.do(v, 7*w+3, 1, sector{state: block.Anchored})
	ranges := []block.Range{{Start: 9 * w, Count: 1}, {}, {Start: 4 * w, Count: 5 * w}, {Start: 4*w + 5, Count: 10}}
	if n, _ := v.m.AnchorCost(ranges); n != 4 { // 4, 6, 8 and 9
		t.Errorf("%d grains", n)
	}
	large := r.arena.NewMap(Config{Space: r.space, Volume: 9, Sectors: 1 << 32})
	if n, _ := large.AnchorCost([]block.Range{{Start: 8, Count: 1<<32 - 8}}); n != 1<<25 {
		t.Errorf("%d grains of what is one slot", n)
	}
}

// TestAnchorCostOfMuch: what lies below a node and has no data, or is promised, costs one look; and what
// is all data is of one state.
func TestAnchorCostOfMuch(t *testing.T) {
	r := newRigOf(t)
	m := r.arena.NewMap(Config{Space: r.space, Volume: 9, Sectors: 1 << 32})
	const w, per, nodes = layout.WindowSectors, node.Fanout, 64
	for i := range uint64(nodes) {
		at := i * per * w
		m.SetState(at, at+8, block.Zero)
		if i%2 == 0 {
			m.SetState(at+w, at+per*w, block.Anchored)
		}
		if i%4 == 0 {
			m.SetState(at+8, at+9, block.Anchored)
		}
	}
	if n, _ := m.AnchorCost([]block.Range{{Start: w, Count: (nodes*per - 2) * w}}); n != nodes/2*per+nodes/4-1 || r.arena.cost.Slots > nodes+2*per {
		t.Errorf("%d grains, after a look at %d slots", n, r.arena.cost.Slots)
	}
	g, _ := m.Allocate(0)
	for i := range uint64(nodes * per) {
		m.SetData(block.Range{Start: i * w, Count: w}, g<<layout.WindowShift)
	}
	m.SetState(per*w, per*w+1, block.Zero)
	var runs []Run
	m.WalkStates(block.Range{Start: 5, Count: 1 << 30}, 7, func(x Run) bool { runs = append(runs, x); return true })
	last := runs[len(runs)-1]
	if len(runs) != 8 || runs[0].Count != per*w-5 || runs[1].State != block.Zero || runs[2].State != block.Data || last.End() != (per+6)*w {
		t.Errorf("a look at 7 slots finds %v", runs)
	}
	m.SetState(0, m.Span(), block.Unmapped)
}

// TestAnchorCostIsBounded: where there are more slots to look at than one step may take, the rest counts as if nothing of it was
// promised.
func TestAnchorCostIsBounded(t *testing.T) {
	r := newRigOf(t)
	const w, per, nodes = layout.WindowSectors, node.Fanout, 2 * home.AnchorSlots / node.Fanout
	m := r.arena.NewMap(Config{Space: r.space, Volume: 9, Sectors: nodes * per * w})
	g, _ := m.Allocate(0)
	for i := range uint64(nodes) {
		at := i * per * w
		m.SetData(block.Range{Start: at, Count: w}, g<<layout.WindowShift)
		m.SetState(at+w, at+per*w, block.Anchored)
	}
	half := block.Range{Count: nodes / 2 * per * w}
	if n, _ := m.AnchorCost([]block.Range{half}); n != nodes/2 {
		t.Errorf("%d grains for half of it", n)
	}
	all := block.Range{Count: nodes * per * w}
	if n, _ := m.AnchorCost([]block.Range{all, {Start: 1, Count: w}}); n < nodes/2+nodes/2*per-2*per || n > nodes/2+nodes/2*per+2*per {
		t.Errorf("%d grains for all", n)
	}
	m.SetState(0, m.Span(), block.Unmapped)
}

// TestAbortedCheckpoint: what is collected behind it is written nowhere.
func TestAbortedCheckpoint(t *testing.T) {
	r := newRigOf(t)
	v := r.add(70000, false)
	r.do(v, 0, 1, sector{state: block.Zero})
	r.finish()
	r.do(v, 0, 2, sector{state: block.Zero})
	r.arena.Checkpoint().Begin(func([]byte, []byte) { t.Error("an entry was written") })
	r.arena.Checkpoint().Abort()
	r.do(v, 0, 70000, sector{state: block.Zero})
	for r.arena.Collect(GarbageStep) {
	}
}

// TestOrphans: a node that was written leads to one that is cut off before its turn, and stays cut
// off. It is written all the same.
func TestOrphans(t *testing.T) {
	r := newRigOf(t)
	v := r.add(70000, false)
	r.do(v, 0, 1, sector{state: block.Zero})
	r.finish()
	r.do(v, 1, 1, sector{state: block.Zero})
	var keys []string
	c := r.arena.Checkpoint()
	put := func(key, _ []byte) {
		if key[0] != node.EntryPrefix[0] {
			keys = append(keys, string(key))
		}
	}
	c.Begin(put)
	r.do(v, 0, 70000, sector{state: block.Unmapped})
	for r.arena.Collect(GarbageStep) {
	}
	for c.Next() {
	}
	c.Seal()
	leaf, top, root := string(node.LeafKey(0, 0).Bytes()), string(node.KeyAt(0, 1, 0).Bytes()), string(node.RootKey(0))
	if got := strings.Join(keys, "|"); got != leaf+"|"+top+"|"+root {
		t.Errorf("written: %q", keys)
	}
	if key := c.NextRemoval(); key != nil || c.MoreRemovals() {
		t.Errorf("key %q is removed by the checkpoint that has written it", key)
	}
	keys = nil
	c.Begin(put)
	for c.Next() {
	}
	c.Seal()
	if a, b := c.NextRemoval(), c.NextRemoval(); string(a) != top || string(b) != leaf || c.MoreRemovals() || len(keys) > 0 {
		t.Errorf("the next one writes %q and removes %q and %q", keys, a, b)
	}
}

// TestDeletedVolume: its root leaves the store when its map is cleared, and is not written before
// that.
func TestDeletedVolume(t *testing.T) {
	r := newRigOf(t)
	v := r.add(70000, false)
	r.do(v, 0, 1, sector{state: block.Zero})
	r.finish()
	r.do(v, 70000-1, 1, sector{state: block.Zero})
	before := string(r.ckpt.store[string(node.RootKey(0))])
	v.m.Abandon()
	r.finish()
	if got := string(r.ckpt.store[string(node.RootKey(0))]); got != before {
		t.Errorf("the root was %x and is %x", before, got)
	}
	r.remove(v)
	for r.arena.Collect(GarbageStep) {
	}
	r.finish()
	if n := len(r.ckpt.store); n != 0 || r.arena.mapOf(0) != nil {
		t.Errorf("%d entries are left of the volume", n)
	}
}

// TestAuditBites: damage of the tree and of the account has its line.
func TestAuditBites(t *testing.T) {
	for _, row := range []struct {
		name, want string
		damage     func(m *Map, leaf *node.Node)
	}{
		{"none", "", func(*Map, *node.Node) {}},
		{"sums of a node", "page 0 of level 0 says", func(_ *Map, leaf *node.Node) { leaf.Sums.Zero++ }},
		{"sums of the map", "the root says", func(m *Map, _ *node.Node) { m.sum.Data-- }},
		{"a node of another volume", "leads to a page that is not its", func(_ *Map, leaf *node.Node) { leaf.Vol++ }},
		{"a node of another level", "leads to a page that is not its", func(_ *Map, leaf *node.Node) { leaf.Level++ }},
		{"homes", "volume 0: its account says", func(m *Map, _ *node.Node) { m.tenant.Homes-- }},
		{"a home of another window", "is marked as the home of window 2 of volume 0, which does not have it", func(m *Map, leaf *node.Node) {
			g := alloc.NoGrain
			m.arena.nodes.Windows.Layers(leaf.Slots[1], func(base uint64, _ layout.Mask) bool { g = base >> layout.WindowShift; return false })
			m.space.ClearHome(g)
			m.space.SetHome(g, m.tenant, 2)
		}},
		{"a home without a promise", "window 1 has a home and is not entitled to one", func(m *Map, _ *node.Node) { m.homes.Thick = false }},
		{"a reference too many", "counts 2 references, the maps have 1", func(m *Map, _ *node.Node) { m.space.Retain(0) }},
		{"data behind the end of the space", ", behind the end of the space", func(m *Map, leaf *node.Node) {
			leaf.Slots[5] = window.Data(uint64(m.space.Grains()+1<<30) << layout.WindowShift)
			leaf.Sums.Data += layout.WindowSectors
			m.sum.Data += layout.WindowSectors
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRigOf(t)
			v := r.add(1000, true)
			g, _ := v.m.Allocate(1)
			r.do(v, layout.WindowSectors, 8, sector{block.Data, g << layout.WindowShift})
			r.do(v, 0, 1, sector{state: block.Zero})
			row.damage(v.m, r.arena.nodes.At(uint32(v.m.root.Value())))
			got := r.problems()
			if row.want == "" && len(got) > 0 || row.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, row.want) }) {
				t.Errorf("the audit says %q, not %q", got, row.want)
			}
		})
	}
}

// problems returns what an audit finds.
func (r *rig) problems() (list []string) {
	u := r.arena.NewAudit(r.space, func(_ uint32, why string) { list = append(list, why) })
	for u.Step(1) {
	}
	list = append(list, u.Compare()...)
	u.End()
	return list
}

// TestAuditIsInSteps: a step looks at no more leaves than it was asked for, and at hardly fewer.
func TestAuditIsInSteps(t *testing.T) {
	r := newRigOf(t)
	const leaves, step = 40, 4
	v := r.add(leaves*node.Fanout*layout.WindowSectors, false)
	v.m.Grow(1 << 30)
	for leaf := range uint64(leaves) {
		v.m.SetState(leaf*node.Fanout*layout.WindowSectors, leaf*node.Fanout*layout.WindowSectors+1, block.Zero)
	}
	u := r.audit()
	steps := 1
	for more := true; more; steps++ {
		was := u.leaf
		if more = u.Step(step * node.Fanout); more && was < leaves && u.leaf > was+step {
			t.Fatalf("a step goes from leaf %d to %d", was, u.leaf)
		}
	}
	r.compareAudit(u)
	if most := (leaves+8)/step + 2; steps < leaves/step || steps > most || len(r.arena.audits) > 0 {
		t.Errorf("it takes %d steps, not %d to %d; %d audits are left", steps, leaves/step, most, len(r.arena.audits))
	}
}

// TestSpaceOfTwo: arenas have maps in many spaces, and what is held of one is given up for that one
// only.
func TestSpaceOfTwo(t *testing.T) {
	r := newRigOf(t)
	other := alloc.New([]int{1}, alloc.Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
	v := r.add(1000, false)
	w := r.arena.NewMap(Config{Space: other, Volume: 99, Sectors: 1000})
	g, _ := v.m.Allocate(0)
	v.m.SetData(block.Range{Count: 8}, g<<layout.WindowShift)
	h, _ := w.Allocate(0)
	w.SetData(block.Range{Count: 8}, h<<layout.WindowShift)
	a, b := v.m.Hold([]block.Range{{Count: 4}, {Start: 2, Count: 4}}, 1<<20), w.Hold([]block.Range{{Count: 8}}, 1<<20)
	if !r.arena.Refs.Any() || !r.arena.Refs.GiveUp(other) || a.Lost() || !b.Lost() || r.arena.Refs.GiveUp(other) || other.Refs(h) != 1 || r.space.Refs(g) != 3 {
		t.Errorf("lost: %v, %v; references and holds: %d, %d", a.Lost(), b.Lost(), r.space.Refs(g), other.Refs(h))
	}
	var runs []Run
	a.Runs(3, 3, func(x Run) bool { runs = append(runs, x); return true })
	if len(runs) != 2 || runs[0].Phys != 3 || runs[0].Count != 1 || runs[1].Phys != 2 || runs[1].Start != 1 || runs[1].Count != 2 {
		t.Errorf("sectors 3 to 5 of two ranges are %v", runs)
	}
	a.Release()
	b.Release()
	if r.arena.Refs.Any() || r.space.Refs(g) != 1 {
		t.Error("something is held that was released")
	}
}

// TestSizes: most of the memory of a map are these, and the layers of windows.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(node.Node{}); n > node.Fanout*8+64 {
		t.Errorf("a page of 256 windows takes %d bytes", n)
	}
}
