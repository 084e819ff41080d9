package extent

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// stored returns a checkpoint of volumes with three levels of nodes each.
func stored(t *testing.T, volumes int) *rig {
	r := newTestRig(t, rand.New(rand.NewPCG(3, 4)), t.Name(), 2)
	for range volumes {
		v := r.add(70000, false)
		v.m.Grow(node.Fanout * node.Fanout * layout.WindowSectors * 2)
		for _, w := range []uint64{0, 1, node.Fanout, 2*node.Fanout + 1} {
			if !r.write(v, w, 0, 9) {
				t.Fatal("there is no space")
			}
		}
	}
	r.finish()
	return r
}

// TestPagesThatNothingLeadsTo: a start takes the pages that a root leads to, and the next checkpoint
// removes the others, wherever they stand among them, and what is below them.
func TestPagesThatNothingLeadsTo(t *testing.T) {
	r := stored(t, 4)
	whole := maps.Clone(r.ckpt.store)
	id := r.vols[1].id
	leaf, top := whole[string(node.LeafKey(id, 1).Bytes())], whole[string(node.KeyAt(id, 1, 0).Bytes())]
	add := func(vol uint32, level uint8, index uint64, value []byte) string {
		k := string(node.KeyAt(vol, level, index).Bytes())
		if whole[k] != nil {
			t.Fatalf("the checkpoint has a page %d of level %d", index, level)
		}
		r.ckpt.store[k] = value
		return k
	}
	orphans := []string{
		add(id, 0, 7, leaf),   // between those that its parent has and the next one's
		add(id, 0, 900, leaf), // below no page
		add(id, 1, 5, top),    // with a page of its own below
		add(id, 0, 5<<node.FanoutBits, leaf),
		add(id, 2, 9, top),        // beside the highest
		add(id, 3, 0, top),        // above the root
		add(id, 77, 0, []byte{1}), // of no level that there is
		add(id+1, 0, 0, leaf),     // of volumes that there are not
		add(1<<31, 2, 0, top),
	}
	deleted, rootless := r.vols[2], r.vols[3]
	for k := range whole {
		for _, v := range []*volume{deleted, rootless} {
			if strings.HasPrefix(k, string(node.Key{Vol: v.id}.Bytes()[:5])) {
				orphans = append(orphans, k)
			}
		}
	}
	delete(r.ckpt.store, string(node.RootKey(rootless.id)))
	rootless.sectors = make([]sector, len(rootless.sectors))
	r.vols = []*volume{r.vols[0], r.vols[1], rootless}
	r.crash()
	for _, v := range r.vols {
		r.compare(v)
	}
	r.finish()
	for _, k := range orphans {
		if r.ckpt.store[k] != nil {
			t.Errorf("page %x is in the store still", k)
		}
	}
	for k := range whole {
		own := k[:1] == KeyNode || k == string(node.RootKey(r.vols[0].id)) || k == string(node.RootKey(id))
		if own && !slices.Contains(orphans, k) && r.ckpt.store[k] == nil {
			t.Errorf("page %x is not in the store any more", k)
		}
	}
	if r.ckpt.store[string(node.RootKey(deleted.id))] != nil {
		t.Error("the root of a volume that was deleted is in the store still")
	}
}

// TestLoadKeepsNoPage: beside the maps a start keeps no page.
func TestLoadKeepsNoPage(t *testing.T) {
	r := stored(t, 1)
	r.open()
	r.arena.StartLoading()
	v := r.vols[0]
	r.attach(v)
	value := make([]byte, node.Fanout*8)
	for i := range node.Fanout {
		binary.LittleEndian.PutUint64(value[i*8:], uint64(window.KindZero)) // of one piece: a map would never write it, but may read it
	}
	l := r.arena.NewLoader()
	if err := l.AddRoot(node.RootKey(v.id), append(binary.LittleEndian.AppendUint64(nil, uint64(window.KindChild)), 1)); err != nil {
		t.Fatal(err)
	}
	if err := v.m.TakeRoot(l); err != nil {
		t.Fatal(err)
	}
	if err := l.AddNode(node.LeafKey(v.id, 0).Bytes(), value); err != nil {
		t.Fatal(err)
	}
	for i := range value { // it is the store's again
		value[i] = 0xff
	}
	l.End()
	if s, n := v.m.find(3); s != window.KindZero || n != 1 || r.arena.Nodes() != 1 || l.Nodes() != 1 {
		t.Errorf("window 3 is of kind %d, %d pages are there, %d were read", s, r.arena.Nodes(), l.Nodes())
	}
}

// TestPagesOutOfOrder: a store that gives pages in another order would have maps lose pages that are
// there.
func TestPagesOutOfOrder(t *testing.T) {
	at := node.KeyAt
	for _, keys := range [][2]node.Key{
		{at(0, 0, 1), at(0, 0, 0)}, {at(0, 1, 0), at(0, 0, 0)}, {at(1, 0, 0), at(0, 0, 0)}, {at(0, 0, 1), at(0, 0, 1)},
	} {
		a := NewArena(func() {})
		a.StartLoading()
		space := alloc.New([]int{1}, alloc.Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
		l := a.NewLoader()
		for vol := range uint32(2) {
			m := a.NewMap(Config{Space: space, Volume: vol, Sectors: 1 << 30})
			if err := l.AddRoot(node.RootKey(vol), append(binary.LittleEndian.AppendUint64(nil, uint64(window.KindChild)), 3)); err != nil {
				t.Fatal(err)
			}
			if err := m.TakeRoot(l); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.AddNode(keys[0].Bytes(), make([]byte, node.Fanout*8)); err != nil {
			t.Fatal(err)
		}
		if err := l.AddNode(keys[1].Bytes(), make([]byte, node.Fanout*8)); err == nil || !strings.Contains(err.Error(), "out of their order") {
			t.Errorf("%v behind %v: %v", keys[1], keys[0], err)
		}
	}
}

// TestUpgrade: a store without account and without entries of pages has both behind the first checkpoint, wherever that is
// interrupted, and what there is too much of them is gone.
func TestUpgrade(t *testing.T) {
	seed := testkit.Seed(t)
	for round := range uint64(30) {
		r := newTestRig(t, rand.New(rand.NewPCG(seed, round)), fmt.Sprintf("-seed %d, round %d", seed, round), 1, 1)
		r.mapBytes = 20000
		r.bound()
		for range 3 {
			r.add(70000, false)
		}
		for range 100 {
			r.change()
			r.deliver(3)
		}
		r.collect()
		r.finish()
		for range 30 {
			r.change()
			r.deliver(3)
		}
		for k := range r.ckpt.store {
			if k[:1] == node.EntryPrefix || k[:1] == account.Prefix {
				delete(r.ckpt.store, k)
			}
		}
		leaf := string(node.EntryKey(node.LeafKey(7777, 3).Bytes()))
		r.ckpt.store[leaf] = []byte("what an interrupted upgrade has left")
		r.ckpt.lacks, r.ckpt.sure = true, false
		for r.ckpt.lacks {
			r.crash()
			for range 1 + r.rnd.IntN(40) {
				r.step(1+r.rnd.IntN(3), 1+r.rnd.IntN(3))
			}
			r.check()
		}
		if r.ckpt.store[leaf] != nil {
			t.Errorf("%s: an entry without a page is there still", r.name)
		}
		n := r.sure
		for r.sure == n {
			r.finish()
			r.crash()
		}
		r.check()
		r.collect()
		r.finish()
		r.check()
	}
}

// TestNobodyPaysForAStart: who edits behind a start that has left garbage does not collect it first, however many nodes the start
// has made.
func TestNobodyPaysForAStart(t *testing.T) {
	const pages = maxDebt + 10 // above the leaves, of one leaf each
	r := rig{t: t, rnd: rand.New(rand.NewPCG(1, 1)), extents: []int{pages/layout.ExtentGrains + 2}, mapBytes: 1}
	r.ckpt.store = map[string][]byte{}
	add := func(vol uint32) *Map {
		return r.arena.NewMap(Config{Space: r.space, Volume: vol, Sectors: pages * node.Fanout * node.LeafSectors, Drop: r.drop})
	}
	r.open()
	gone, m := add(0), add(1)
	fill := func(m *Map, page uint64) {
		g, _ := r.space.Take(m.tenant)
		m.SetData(block.Range{Start: page * node.Fanout * node.LeafSectors, Count: 8}, g<<layout.WindowShift)
	}
	fill(gone, 0)
	for i := range uint64(pages) {
		fill(m, i)
	}
	r.finish()
	r.open()
	r.vols = []*volume{{m: add(1), id: 1}}
	r.arena.StartLoading()
	if err := r.loadSure(); err != nil {
		t.Fatal(err)
	}
	if err := r.arena.EndLoading(); err != nil || !r.arena.HasGarbage() {
		t.Fatalf("there is garbage: %v, %v", r.arena.HasGarbage(), err)
	}
	if r.arena.Announce(); r.arena.Pay() {
		t.Errorf("who edits owes %d nodes", r.arena.debt)
	}
}
