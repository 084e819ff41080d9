package array

import (
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// leftovers has a start find that so many extents, from a number on, take room on an mdisk, and that nothing else does.
func (s *discardStore) leftovers(of map[string][2]uint64) {
	s.taken = func(name string, off uint64) (start, end uint64) {
		x := of[name]
		if end = (x[0] + x[1]) * layout.ExtentBytes; off >= end {
			return 0, 0
		}
		return max(off, x[0]*layout.ExtentBytes), end
	}
}

// TestDiscardsBesideAnMdiskThatCannot: in a pool of 1 TiB what is free of one mdisk is discarded, wherever it lies, while another
// one has more to discard than it can.
func TestDiscardsBesideAnMdiskThatCannot(t *testing.T) {
	for what, row := range map[string]struct {
		keep bool
		fail error
		many uint64
		wait int64
	}{
		"is silent": {keep: true, many: 40, wait: 120e9},
		"fails":     {fail: errors.New("broken"), many: 40, wait: 10e9},
		"is slow":   {many: 8000, wait: 10e9},
	} {
		t.Run(what, func(t *testing.T) {
			r, s := discardRig(t, Options{})
			r.pool("p", PoolSpec{}, 1<<40)
			s.leftovers(map[string][2]uint64{"p.d0": {3, row.many}, "p.d1": {100_000, 40}})
			s.only, s.keep, s.fail = "p.d0", row.keep, row.fail
			s.crash(r)
			r.clock.RunUntil(r.clock.Now() + row.wait)
			if got := s.media["p.d1"].Discarded(); got != 40*layout.ExtentBytes {
				t.Errorf("%d extents of the other one were discarded, not 40", got/layout.ExtentBytes)
			}
			if got := s.media["p.d0"].Discarded() / layout.ExtentBytes; got == row.many {
				t.Errorf("the mdisk that cannot has discarded %d extents: nothing is shown", got)
			}
			s.keep, s.fail = false, nil
			release(&s.kept)
			r.clock.Run()
			if got := s.media["p.d0"].Discarded() / layout.ExtentBytes; got != row.many {
				t.Errorf("behind that, %d extents of it were discarded, not %d", got, row.many)
			}
			r.check()
		})
	}
}

// TestDiscardsCostWhatThereIs: rounds look at what there is to discard, and not at a pool of 1 TiB.
func TestDiscardsCostWhatThereIs(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{}, 1<<40)
	s.leftovers(map[string][2]uint64{"p.d0": {100_000, 10}, "p.d1": {7, 300}})
	s.only, s.keep = "p.d0", true
	s.crash(r)
	r.clock.RunUntil(r.clock.Now() + 100e9)
	if got := r.a.set.DiscardWork(); got < 310 || got > 320 || s.media["p.d1"].Discarded() != 300*layout.ExtentBytes {
		t.Errorf("for 310 extents of 262,144 rounds have looked at %d; %d bytes were discarded", got, s.media["p.d1"].Discarded())
	}
}

// TestTurnsOfMdisks: where there is more than a round discards, mdisks take turns.
func TestTurnsOfMdisks(t *testing.T) {
	const n = 9
	r, s := discardRig(t, Options{})
	var spec PoolSpec
	of := map[string][2]uint64{}
	for i := range n {
		name := fmt.Sprint("m", i)
		spec.Mdisks = append(spec.Mdisks, MdiskSpec{Name: name, Size: 1 << 30})
		of["p."+name] = [2]uint64{uint64(i), 150}
	}
	r.pool("p", spec, 0)
	s.leftovers(of)
	s.crash(r)
	r.clock.RunUntil(r.clock.Now() + 2e9 + 950e6) // ten rounds
	least, most := ^uint64(0), uint64(0)
	for _, m := range s.media {
		least, most = min(least, m.Discarded()), max(most, m.Discarded())
	}
	if least == 0 || most-least > 16*layout.ExtentBytes {
		t.Errorf("one mdisk has discarded %d MiB, another one %d", least>>20, most>>20)
	}
	r.clock.Run()
	for name, m := range s.media {
		if m.Discarded() != 150*layout.ExtentBytes {
			t.Errorf("%s has discarded %d MiB in the end", name, m.Discarded()>>20)
		}
	}
	r.check()
}

// TestNeverWrittenIsNotDiscarded: space that was allocated and freed, and whose data never got as far as its mdisk, is not discarded;
// what a start finds in the maps may have got there, and is.
func TestNeverWrittenIsNotDiscarded(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r, s := discardRig(t, Options{DestageStart: 60e9})
		r.pool("p", PoolSpec{}, 64<<20)
		v := r.volume("v", "p", 24<<20, true)
		writes, calls := 0, 0
		s.began = func(string, uint64, uint64) { calls++ }
		for _, m := range s.media {
			under := m.Medium
			m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
				writes += len(ios)
				under.Submit(ios)
			}}
		}
		mustOK(t, r.do(v, written(0, 256, 1)))
		if crash {
			s.crash(r)
			v = r.a.Volume("v")
		}
		mustOK(t, r.do(v, unmap(0, rng(0, 256))))
		r.clock.Run()
		if writes != 0 {
			t.Fatalf("%d writes got to mdisks: nothing is shown", writes)
		}
		if crash != (calls > 0) {
			t.Errorf("crash %v: there were %d discards", crash, calls)
		}
		mustOK(t, r.do(v, written(0, 256, 2)))
		r.clock.Run()
		mustOK(t, r.do(v, unmap(0, rng(0, 256))))
		r.clock.Run()
		if s.room() != 0 {
			t.Errorf("crash %v: %d bytes take room", crash, s.room())
		}
		r.check()
	}
}

// BenchmarkDiscardRounds is a second in which an mdisk of a pool of 16 TiB does not answer a discard, and has more to discard.
func BenchmarkDiscardRounds(b *testing.B) {
	r, s := discardRig(b, Options{})
	var spec PoolSpec
	for i := range 4 {
		spec.Mdisks = append(spec.Mdisks, MdiskSpec{Name: fmt.Sprint("m", i), Size: 4<<40 - layout.ExtentBytes})
	}
	r.pool("p", spec, 0)
	s.leftovers(map[string][2]uint64{"p.m1": {1000, 100}})
	s.keep = true
	s.crash(r)
	r.clock.RunUntil(r.clock.Now() + 200e9)
	for b.Loop() {
		r.clock.RunUntil(r.clock.Now() + 1e9)
	}
}
