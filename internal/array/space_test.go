package array

import (
	"fmt"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

const grainBytes = windowSectors * block.SectorSize

// spaceRig is a rig with a pool of so many grains, a multiple of 64.
func spaceRig(t *testing.T, grains uint64) (*rig, *Pool) {
	r := newRig(t, Options{}, false)
	return r, r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: grains * grainBytes}}}, 0)
}

// fill writes to new windows of a volume until there is no space, and returns how many it got.
func (r *rig) fill(v *Volume) (n uint64) {
	r.t.Helper()
	for ; ; n++ {
		switch s := r.do(v, write(n*windowSectors, 8)); s {
		case block.OK:
		case block.NoSpace:
			return n
		default:
			r.t.Fatalf("write %d ended %v", n, s)
		}
	}
}

// clone makes a range of dst what src has there.
func (r *rig) clone(src, dst *Volume, g block.Range) block.Status {
	r.t.Helper()
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{g}}
	mustOK(r.t, r.do(src, h))
	defer h.Ref.Release()
	return r.do(dst, &block.Request{Op: block.OpPlace, Range: g, Ref: h.Ref, Origin: block.OriginXCopy})
}

func unmap(flags block.Flags, ranges ...block.Range) *block.Request {
	return &block.Request{Op: block.OpUnmap, Flags: flags, Ranges: ranges}
}

// TestAnchorOfTheLastBlock: an anchor reserves what it covers, wherever it ends.
func TestAnchorOfTheLastBlock(t *testing.T) {
	r := newRig(t, Options{}, true)
	p := r.pool("p", PoolSpec{}, 40<<30)
	v, w := r.volume("v", "p", 16<<30, true), r.volume("w", "p", 16<<30, true)
	last := rng(16<<30/512-1, 1)
	mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: last, Flags: block.Deallocate | block.Anchor}))
	if got := p.Stats().Reserved; got != grainBytes {
		t.Errorf("one anchored block reserves %d bytes", got)
	}
	mustOK(t, r.do(w, write(0, 8)))
	thick := r.volume("thick", "p", 1<<30, false)
	mustOK(t, r.do(thick, unmap(0, rng(0, 1<<30/512))))
	small := r.volume("small", "p", 1<<30, true)
	before := p.Stats().Reserved
	mustOK(t, r.clone(thick, small, rng(0, 1<<30/512)))
	if got := p.Stats().Reserved; got != before {
		t.Errorf("a copy of a thick volume without data to a thin one reserves %d bytes", got-before)
	}
	mustOK(t, r.do(v, unmap(block.Anchor, rng(0, 16<<30/512))))
	if got := p.Stats().Reserved; got != 17<<30 {
		t.Errorf("an anchored volume of 16 GiB and a thick one of 1 reserve %d MiB", got>>20)
	}
	mustOK(t, r.do(v, unmap(0, rng(0, 16<<30/512))))
	if got := p.Stats().Reserved; got != 1<<30 {
		t.Errorf("after it is unmapped, %d MiB are reserved", got>>20)
	}
	r.check()
}

// TestAnchorsAddUp: what one UNMAP anchors is promised as a whole or not at all.
func TestAnchorsAddUp(t *testing.T) {
	r, p := spaceRig(t, 128)
	v, w := r.volume("v", "p", 1<<30, true), r.volume("w", "p", 1<<30, true)
	mustOK(t, r.do(w, write(0, 8)))
	var all []block.Range
	for i := range uint64(128) {
		all = append(all, rng(i*windowSectors, 1))
	}
	if s := r.do(v, unmap(block.Anchor, all...)); s != block.NoSpace {
		t.Errorf("128 grains anchored in a pool that has 127: %v", s)
	}
	if got := p.Stats().Reserved; got != 0 {
		t.Errorf("what was refused reserves %d bytes", got)
	}
	// The same window twice, and in any order, is one grain.
	again := append(append([]block.Range{}, all[64:127]...), all[:127]...)
	mustOK(t, r.do(v, unmap(block.Anchor, again...)))
	if got := p.Stats().Reserved; got != 127*grainBytes {
		t.Errorf("127 anchored windows reserve %d grains", got/grainBytes)
	}
	r.check()
	r.crash()
	r.check()
	if got := r.a.Pool("p").Stats().Reserved; got != 127*grainBytes {
		t.Errorf("after a restart %d grains are reserved", got/grainBytes)
	}
}

// TestAnchorsAreKept: a thin volume that has anchors takes its own for them and nobody's for the rest.
func TestAnchorsAreKept(t *testing.T) {
	r, p := spaceRig(t, 128)
	v, w := r.volume("v", "p", 1<<30, true), r.volume("w", "p", 1<<30, true)
	thick := r.volume("thick", "p", 20*grainBytes, false)
	for i := range uint64(30) {
		mustOK(t, r.do(v, unmap(block.Anchor, rng(i*windowSectors+100, 3))))
	}
	if n := r.fill(w); n != 128-20-30 {
		t.Errorf("another volume got %d grains of 128, 50 of them are reserved", n)
	}
	if s := r.do(v, write(1000*windowSectors, 8)); s != block.NoSpace {
		t.Errorf("a write to what is not anchored ended %v: it took what others have reserved", s)
	}
	for i := range uint64(30) {
		mustOK(t, r.do(v, write(i*windowSectors+100, 1)))
		mustOK(t, r.do(v, write(i*windowSectors+101, 2)))
	}
	for i := range uint64(20) {
		mustOK(t, r.do(thick, write(i*windowSectors, 8)))
	}
	if st := p.Stats(); st.Reserved != 0 || st.Allocated != 128*grainBytes {
		t.Errorf("all is written; %d grains are reserved, %d allocated", st.Reserved/grainBytes, st.Allocated/grainBytes)
	}
	r.check()
	r.crash()
	r.check()
}

// TestThickAfterAClone: a thick volume can be written to whatever its clones keep.
func TestThickAfterAClone(t *testing.T) {
	const n = 40
	all := rng(0, n*windowSectors)
	for _, name := range []string{"clone", "clone and unmap", "clone, crash, and unmap", "clone within", "clone and delete"} {
		t.Run(name, func(t *testing.T) {
			r, p := spaceRig(t, 128)
			v := r.volume("v", "p", n*grainBytes, false)
			mustOK(t, r.do(v, write(0, all.Count)))
			clone, filler := r.volume("clone", "p", 1<<30, true), r.volume("filler", "p", 1<<30, true)
			mustOK(t, r.clone(v, clone, all))
			switch name {
			case "clone and unmap":
				mustOK(t, r.do(v, unmap(0, all)))
			case "clone, crash, and unmap":
				r.crash()
				p = r.a.Pool("p")
				v, filler = r.a.Volume("v"), r.a.Volume("filler")
				mustOK(t, r.do(v, unmap(0, all)))
			case "clone within": // some windows of the volume share one grain
				h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, windowSectors)}}
				mustOK(t, r.do(v, h))
				for i := range uint64(10) {
					mustOK(t, r.do(v, &block.Request{Op: block.OpPlace, Range: rng((i+5)*windowSectors, windowSectors), Ref: h.Ref}))
				}
				h.Ref.Release()
			case "clone and delete":
				r.a.DeleteVolume(clone, func(err error) {
					if err != nil {
						t.Error(err)
					}
				})
				r.clock.Run()
				if st := p.Stats(); st.Reserved != 0 || st.Allocated != n*grainBytes {
					t.Errorf("when the clone is gone %d grains are reserved and %d allocated", st.Reserved/grainBytes, st.Allocated/grainBytes)
				}
			}
			r.clock.Run()
			r.check()
			r.fill(filler)
			for i := range uint64(n) {
				if s := r.do(v, write(i*windowSectors+8, 8)); s != block.OK {
					t.Fatalf("window %d of the thick volume: %v", i, s)
				}
			}
			for i := range uint64(n) {
				mustOK(t, r.do(v, write(i*windowSectors, windowSectors)))
			}
			if st := p.Stats(); st.Reserved != 0 || st.Allocated != 128*grainBytes {
				t.Errorf("all is written; %d grains are reserved, %d allocated", st.Reserved/grainBytes, st.Allocated/grainBytes)
			}
			r.check()
			r.crash()
			r.check()
		})
	}
}

// TestThickClonesOfThick: a full pool has room for a clone between the thick volumes in it, and both can be
// written to afterwards.
func TestThickClonesOfThick(t *testing.T) {
	const n = 64
	r, p := spaceRig(t, 128)
	v, w := r.volume("v", "p", n*grainBytes, false), r.volume("w", "p", n*grainBytes, false)
	mustOK(t, r.do(v, write(0, n*windowSectors)))
	mustOK(t, r.clone(v, w, rng(0, n*windowSectors)))
	r.check()
	for i := range uint64(n) {
		mustOK(t, r.do(w, write(i*windowSectors, 8)))
		mustOK(t, r.do(v, write(i*windowSectors+8, 8)))
	}
	r.clock.Run()
	if st := p.Stats(); st.Reserved+st.Allocated != 128*grainBytes {
		t.Errorf("%d grains are reserved and %d allocated", st.Reserved/grainBytes, st.Allocated/grainBytes)
	}
	r.check()
}

// TestThickWinsOverAHold: a reference to what a thick volume has may not keep its hosts from writing. Where
// there is no space for both, the reference is given up, and a copy of it says so.
func TestThickWinsOverAHold(t *testing.T) {
	const n = 64
	r, p := spaceRig(t, 128)
	v, w := r.volume("v", "p", n*grainBytes, false), r.volume("w", "p", n*grainBytes, false)
	mustOK(t, r.do(v, write(0, n*windowSectors)))
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, n*windowSectors)}}
	mustOK(t, r.do(v, h))
	for i := range uint64(n) {
		mustOK(t, r.do(w, write(i*windowSectors, 8)))
		mustOK(t, r.do(v, write(i*windowSectors, 8)))
	}
	if s := r.do(w, &block.Request{Op: block.OpPlace, Range: rng(0, n*windowSectors), Ref: h.Ref}); s == block.OK {
		t.Error("a reference to what was overwritten without space for it was copied")
	}
	r.check()
	h.Ref.Release()
	r.clock.Run()
	if st := p.Stats(); st.Reserved != 0 || st.Allocated != 128*grainBytes {
		t.Errorf("%d grains are reserved and %d allocated", st.Reserved/grainBytes, st.Allocated/grainBytes)
	}
	r.check()
}

// TestAnchorsThatAreOverwritten: a window without an anchored sector is entitled to nothing any more.
func TestAnchorsThatAreOverwritten(t *testing.T) {
	r, p := spaceRig(t, 128)
	v := r.volume("v", "p", 1<<30, true)
	mustOK(t, r.do(v, unmap(block.Anchor, rng(10, 20))))
	mustOK(t, r.do(v, write(8, 40)))
	r.check()
	mustOK(t, r.do(v, unmap(0, rng(8, 40))))
	if st := p.Stats(); st.Reserved != 0 || st.Allocated != 0 {
		t.Errorf("all is unmapped; %d grains are reserved, %d allocated", st.Reserved/grainBytes, st.Allocated/grainBytes)
	}
	r.check()
}

// TestAnchorOfWhatIsAnchored: what was promised is still read from, so that less than nothing is free. What is anchored
// already needs nothing.
func TestAnchorOfWhatIsAnchored(t *testing.T) {
	r := newRig(t, Options{}, false)
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 * grainBytes, Bandwidth: 64 << 10}}}, 0)
	v, u := r.volume("v", "p", 63*grainBytes, false), r.volume("u", "p", 1<<30, true)
	mustOK(t, r.do(v, write(0, 63*windowSectors)))
	mustOK(t, r.do(u, unmap(block.Anchor, rng(10, 20))))
	r.clock.Run()
	read := r.start(v, &block.Request{Op: block.OpRead, Range: rng(0, windowSectors), Data: [][]byte{make([]byte, grainBytes)}})
	mustOK(t, r.do(v, unmap(0, rng(0, windowSectors))))
	if free, _, _ := p.Space(); free >= 0 || read() {
		t.Fatalf("%d bytes are free; the read has ended: %v", free, read())
	}
	mustOK(t, r.do(u, unmap(block.Anchor, rng(10, 20))))
	if s := r.do(u, unmap(block.Anchor, rng(5*windowSectors, 8))); s != block.NoSpace {
		t.Errorf("another window is anchored without space: %v", s)
	}
	r.clock.Run()
	r.check()
}

// TestPromisedSpaceThatIsRead: what a promised write needs may still be read from; it waits for that.
func TestPromisedSpaceThatIsRead(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 * grainBytes, Bandwidth: 64 << 10}}}, 0)
	v := r.volume("v", "p", 64*grainBytes, false)
	mustOK(t, r.do(v, write(0, 64*windowSectors)))
	r.clock.Run()
	read := r.start(v, &block.Request{Op: block.OpRead, Range: rng(0, windowSectors), Data: [][]byte{make([]byte, grainBytes)}})
	mustOK(t, r.do(v, unmap(0, rng(0, windowSectors))))
	q := write(0, 8)
	wrote := r.start(v, q)
	r.check()
	r.clock.Run()
	if !read() || !wrote() || q.Status != block.OK {
		t.Errorf("the read has ended: %v, the write: %v, %v", read(), wrote(), q.Status)
	}
	r.check()
}

// TestWritesThatReturnWhatTheyTook: two writes that wait for space each take what is free, find that it is too little,
// and return it. That is no news for the other: both wait for what the read keeps, and the step ends.
func TestWritesThatReturnWhatTheyTook(t *testing.T) {
	stuck := time.AfterFunc(2*time.Minute, func() { panic("a step does not end") })
	defer stuck.Stop()
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 * grainBytes, Bandwidth: 64 << 10}}}, 0)
	v, u := r.volume("v", "p", 63*grainBytes, true), r.volume("u", "p", 1<<30, true)
	mustOK(t, r.do(v, write(0, 63*windowSectors)))
	r.clock.Run()
	read := r.start(v, &block.Request{Op: block.OpRead, Range: rng(0, windowSectors), Data: [][]byte{make([]byte, grainBytes)}})
	mustOK(t, r.do(v, unmap(0, rng(0, windowSectors))))
	first, second := write(0, 2*windowSectors), write(8*windowSectors, 2*windowSectors)
	wrote, other := r.start(u, first), r.start(u, second)
	if waitsFor(first) != ticket.Space || waitsFor(second) != ticket.Space || read() {
		t.Fatalf("the writes are %v and %v; the read has ended: %v", request.Doing(first), request.Doing(second), read())
	}
	r.clock.Run()
	if !wrote() || !other() || first.Status != block.OK || second.Status != block.NoSpace {
		t.Errorf("with room for one of two: %v, %v; %v, %v", wrote(), first.Status, other(), second.Status)
	}
	r.check()
}

// TestLessReservedWakesWhoWaits: a write waits for space that a read keeps. Where other space is promised to nobody any
// more it goes on at once: when a thick volume is deleted, and when anchors go.
func TestLessReservedWakesWhoWaits(t *testing.T) {
	for _, anchors := range []bool{false, true} {
		t.Run(fmt.Sprintf("anchors=%v", anchors), func(t *testing.T) {
			r := newRig(t, Options{}, false)
			r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 * grainBytes, Bandwidth: 64 << 10}}}, 0)
			v, u := r.volume("v", "p", 32*grainBytes, true), r.volume("u", "p", 1<<30, true)
			promised := r.volume("promised", "p", 32*grainBytes, anchors)
			if anchors {
				mustOK(t, r.do(promised, unmap(block.Anchor, rng(0, 32*windowSectors))))
			}
			mustOK(t, r.do(v, write(0, 32*windowSectors)))
			r.clock.Run()
			read := r.start(v, &block.Request{Op: block.OpRead, Range: rng(0, windowSectors), Data: [][]byte{make([]byte, grainBytes)}})
			mustOK(t, r.do(v, unmap(0, rng(0, windowSectors))))
			q := write(0, 8)
			wrote := r.start(u, q)
			if waitsFor(q) != ticket.Space {
				t.Fatalf("the write is %v: %v", request.Doing(q), q.Status)
			}
			if anchors {
				mustOK(t, r.do(promised, unmap(0, rng(0, 32*windowSectors))))
			} else {
				r.a.DeleteVolume(promised, func(err error) { mustDo(t, err) })
				r.clock.RunUntil(r.clock.Now() + 1e7)
			}
			if !wrote() || q.Status != block.OK || read() {
				t.Errorf("the write has ended: %v, %v; the read: %v", wrote(), q.Status, read())
			}
			r.clock.Run()
			r.check()
		})
	}
}

// A grain is counted to the volume that has it as a home, also when another one has allocated it.
func TestExclusiveMovesWithHome(t *testing.T) {
	r, _ := spaceRig(t, 128)
	s := r.volume("s", "p", 16*grainBytes, true)
	d := r.volume("d", "p", 16*grainBytes, false)
	mustOK(t, r.do(s, write(0, 8)))
	g := rng(0, windowSectors)
	mustOK(t, r.clone(s, d, g))
	mustOK(t, r.do(s, unmap(0, g)))
	mustOK(t, r.do(d, write(0, 8)))
	if s.Map.Tenant().Allocated() != 0 || d.Map.Tenant().Allocated() != 1 {
		t.Errorf("with the copy: s owns %d grains, d owns %d", s.Map.Tenant().Allocated(), d.Map.Tenant().Allocated())
	}
	mustOK(t, r.do(d, unmap(0, g)))
	if s.Map.Tenant().Allocated() != 0 || d.Map.Tenant().Allocated() != 0 {
		t.Errorf("without it: s owns %d grains, d owns %d", s.Map.Tenant().Allocated(), d.Map.Tenant().Allocated())
	}
}
