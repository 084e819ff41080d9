package array

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// TestWritesCollectInSteps: who finds a pool full collects no other pool's garbage, and of its own no more at once than
// one step of the background does; it fails only when that is over.
func TestWritesCollectInSteps(t *testing.T) {
	const nodes, slots = 64, 256
	for _, row := range []struct {
		name string
		own  bool
		cmd  func(v *Volume) *block.Request
	}{
		{"a write, and another pool's", false, func(*Volume) *block.Request { return write(0, 8) }},
		{"a write", true, func(*Volume) *block.Request { return write(0, 8) }},
		{"an anchor, and another pool's", false, func(*Volume) *block.Request { return unmap(block.Anchor, rng(0, 8)) }},
		{"an anchor", true, func(*Volume) *block.Request { return unmap(block.Anchor, rng(0, 8)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, Options{}, false)
			r.pool("a", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 20}}}, 0)
			r.pool("b", PoolSpec{}, 64<<20)
			r.volume("thick", "a", 4<<20, false)
			v, litter := r.volume("v", "a", 1<<20, true), r.volume("litter", map[bool]string{true: "a", false: "b"}[row.own], 1<<30, true)
			for at := uint64(0); at < 1<<21; at += 1 << 15 { // each in another node
				mustOK(t, r.do(litter, &block.Request{Op: block.OpWriteSame, Range: rng(at, 8)}))
			}
			before := r.a.arena.Nodes()
			mustOK(t, r.do(litter, unmap(0, rng(0, 1<<21))))
			if n := r.a.arena.Nodes(); n < before || n < nodes {
				t.Fatalf("%d nodes of %d are left at once", n, before)
			}
			last := r.a.arena.Nodes()
			look := func(most int) {
				n := r.a.arena.Nodes()
				if last-n > most {
					t.Errorf("%d nodes are collected in one step", last-n)
				}
				last = n
			}
			q := row.cmd(v)
			ended := false
			q.Done = func(*block.Request) { ended = true }
			v.Submit([]*block.Request{q})
			if row.own {
				look(extent.GarbageStep/slots + 1)
			} else {
				look(0)
			}
			if waits := request.Doing(q) != ""; waits != row.own {
				t.Errorf("the command waits: %v", waits)
			}
			for r.clock.Step() {
				look(extent.GarbageStep/slots + 1)
			}
			if !ended || q.Status != block.NoSpace || r.a.arena.HasGarbage() {
				t.Errorf("the command has ended: %v, %v; garbage is left: %v", ended, q.Status, r.a.arena.HasGarbage())
			}
			r.check()
		})
	}
}

// mostNodes carries out requests of a volume at once, and returns how many nodes the maps have had at most.
func (r *rig) mostNodes(v *Volume, all []*block.Request) (most int) {
	r.t.Helper()
	r.a.afterStep = func() { most = max(most, r.a.arena.Nodes()) }
	left := r.submitAll(v, all...)
	for *left > 0 && r.clock.Step() {
	}
	if *left > 0 {
		r.t.Fatalf("%d commands never ended", *left)
	}
	return most
}

// TestGarbageIsPaidFor: commands that make nodes of maps and cut them off again, as fast as they can, do not grow the
// memory of the maps: they collect what they leave.
func TestGarbageIsPaidFor(t *testing.T) {
	const leaf = 256 * windowSectors // what is below one node
	r := newRig(t, Options{CacheBytes: 64 << 20, LogBytes: 16 << 20}, true)
	r.pool("p", PoolSpec{}, 1<<30)
	v := r.volume("v", "p", 1000*leaf*512, true)
	var all []*block.Request
	for range 16 {
		var every []block.Range
		for i := range uint64(1000) {
			every = append(every, rng(i*leaf, 1))
		}
		all = append(all, &block.Request{Op: block.OpWriteSame, Range: rng(0, 1000*leaf)}, unmap(0, every...))
	}
	if most := r.mostNodes(v, all); most > 6000 {
		t.Errorf("the maps have had %d nodes, of which 1,010 are needed", most)
	}
	r.clock.Run()
	r.check()
}

// TestMovesPayForGarbage: neither do copies that move data, by what of it is none.
func TestMovesPayForGarbage(t *testing.T) {
	const leaf, leaves = 256 * windowSectors, 1000
	r := newRig(t, Options{CacheBytes: 64 << 20, LogBytes: 16 << 20}, true)
	r.pool("p", PoolSpec{CopyData: true}, 1<<30)
	from, v := r.volume("from", "p", 2*leaf*512, true), r.volume("v", "p", leaves*leaf*512, true)
	mustOK(t, r.do(from, &block.Request{Op: block.OpWriteSame, Range: rng(0, leaf)}))
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 2*leaf)}}
	mustOK(t, r.do(from, h))
	var all []*block.Request
	for n := range uint64(16 * leaves) {
		at := n % leaves * leaf
		all = append(all, &block.Request{Op: block.OpPlace, Range: rng(at, 1), Ref: h.Ref, Origin: block.OriginXCopy},
			&block.Request{Op: block.OpPlace, Range: rng(at, leaf), Ref: h.Ref, RefOffset: leaf, Origin: block.OriginXCopy})
	}
	if most := r.mostNodes(v, all); most > 6000 {
		t.Errorf("the maps have had %d nodes", most)
	}
	h.Ref.Release()
	r.clock.Run()
	r.check()
}

// TestLongUnmaps: an UNMAP of many long ranges lets others have their turn, and leaves nothing out. One that anchors is one step.
func TestLongUnmaps(t *testing.T) {
	const leaf, ranges = 256 * windowSectors, 64
	for _, flags := range []block.Flags{0, block.Anchor} {
		r := newRig(t, Options{CacheBytes: 64 << 20, LogBytes: 16 << 20}, true)
		r.pool("p", PoolSpec{}, 4<<30)
		v := r.volume("v", "p", 2*ranges*leaf*512, true)
		if err := v.Import(rng(0, 2*ranges*leaf)); err != nil {
			t.Fatal(err)
		}
		var every []block.Range
		for i := range uint64(ranges) { // no node is cut off
			every = append(every, rng(i*2*leaf+windowSectors, 2*leaf-2*windowSectors))
		}
		last, most := v.Map.Sums().Data, int64(0)
		look := func() {
			now := v.Map.Sums().Data
			most, last = max(most, last-now), now
		}
		left := r.submitAll(v, unmap(flags, every...))
		look()
		for *left > 0 && r.clock.Step() {
			look()
		}
		if want := int64(ranges * 2 * windowSectors); *left > 0 || last != want {
			t.Errorf("%d commands have not ended, and %d sectors are mapped, not %d", *left, last, want)
		}
		if bound := int64(16 * 1024 * windowSectors); flags == 0 && most > bound {
			t.Errorf("%d windows are released in one step", most/windowSectors)
		}
		if got := offloadsOf(v); got != [2]uint64{1, ranges * (2*leaf - 2*windowSectors) * 512} {
			t.Errorf("%v are counted", got)
		}
		r.clock.Run()
		r.check()
	}
}

// TestVolumesCollectInSteps: a thick volume, or a larger one, that needs space which is about to come back waits for it,
// and others have their turn meanwhile.
func TestVolumesCollectInSteps(t *testing.T) {
	for _, resize := range []bool{false, true} {
		t.Run(fmt.Sprintf("resize=%v", resize), func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 64 << 20}, true)
			r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 512 << 20}}}, 0)
			litter := r.volume("litter", "p", 1<<30, true)
			thick := r.volume("thick", "p", 4<<20, false)
			for at := uint64(0); at < 1<<20-1<<14; at += pieceSectors {
				mustOK(t, r.do(litter, write(at, pieceSectors)))
			}
			r.clock.Run()
			nodes := r.a.arena.Nodes()
			all := rng(0, 1<<21)
			left := r.submitAll(litter, unmap(0, all))
			ended := false
			done := func(err error) {
				if ended = true; err != nil {
					t.Error(err)
				}
			}
			if resize {
				r.a.Resize(thick, 500<<11, done)
			} else {
				r.a.CreateVolume(VolumeSpec{Name: "new", Pool: "p", Sectors: 500 << 11}, func(_ *Volume, err error) { done(err) })
			}
			for last := nodes; r.clock.Step(); {
				n := r.a.arena.Nodes()
				if last-n > 2*extent.GarbageStep/256+1 {
					t.Errorf("%d nodes are collected in one step", last-n)
				}
				last = n
			}
			if *left != 0 || !ended {
				t.Errorf("the UNMAP has ended: %v, the change: %v", *left == 0, ended)
			}
			// What will never be there is refused when all is collected.
			refused := error(nil)
			r.a.CreateVolume(VolumeSpec{Name: "more", Pool: "p", Sectors: 100 << 11}, func(_ *Volume, err error) { refused = err })
			r.clock.Run()
			if refused == nil {
				t.Error("more is promised than there is")
			}
			r.check()
		})
	}
}

// TestLongUnmapsAreInterrupted: between two steps of an UNMAP its host may give it up, and its volume become smaller or go.
func TestLongUnmapsAreInterrupted(t *testing.T) {
	const leaf, ranges = 256 * windowSectors, 64
	for name, row := range map[string]struct {
		interrupt func(r *rig, v *Volume, q *block.Request)
		want      block.Status
	}{
		"abort":  {func(_ *rig, v *Volume, q *block.Request) { v.Cancel(q) }, block.Cancelled},
		"shrink": {func(r *rig, v *Volume, _ *block.Request) { r.a.Resize(v, leaf, func(error) {}) }, block.OutOfRange},
		"delete": {func(r *rig, v *Volume, _ *block.Request) { r.a.DeleteVolume(v, func(error) {}) }, block.OK}, // until that is durable
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 64 << 20, LogBytes: 16 << 20}, true)
			r.pool("p", PoolSpec{}, 4<<30)
			v := r.volume("v", "p", 2*ranges*leaf*512, true)
			if err := v.Import(rng(0, 2*ranges*leaf)); err != nil {
				t.Fatal(err)
			}
			q := unmap(0)
			for i := range uint64(ranges) {
				q.Ranges = append(q.Ranges, rng(i*2*leaf+windowSectors, 2*leaf-2*windowSectors))
			}
			ended := 0
			q.Done = func(*block.Request) { ended++ }
			all := v.Map.Sums().Data
			v.Submit([]*block.Request{q})
			if now := v.Map.Sums().Data; now == all || now <= 2*windowSectors*ranges || ended > 0 {
				t.Fatalf("%d of %d sectors are mapped behind a step: nothing is shown", now, all)
			}
			row.interrupt(r, v, q)
			r.clock.Run()
			if ended != 1 || q.Status != row.want {
				t.Errorf("it has ended %d times, with %v", ended, q.Status)
			}
			r.check()
		})
	}
}
