package rados_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

const extentBytes = 4 << 20

// lost reads and returns which sectors are said to be lost.
func lost(t *testing.T, x *block.Virtual, m block.Medium, off uint64, n int) []uint64 {
	t.Helper()
	err := transfer(t, x, m, false, off, make([]byte, n))
	var sum *block.ChecksumError
	if err != nil && !errors.As(err, &sum) {
		t.Fatal(err)
	}
	if err == nil {
		return nil
	}
	return sum.Sectors
}

// discard discards.
func discard(t *testing.T, x *block.Virtual, m block.Medium, off, n uint64) {
	t.Helper()
	failed := errors.New("it never ended")
	m.(block.Discarder).Discard(off, n, func(err error) { failed = err })
	if x.Run(); failed != nil {
		t.Fatal(failed)
	}
}

// TestMissingObject: an object that has to be there and is not is an error, and no zeros, for the process that has written it
// and for the next ones, and also when a part of it is written again. What was never written or was discarded is zeros.
func TestMissingObject(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{})
	m := medium(t, s, 5*extentBytes)
	again := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, c, x, rados.Options{})
		m = medium(t, s, 5*extentBytes)
	}
	for _, extent := range []uint64{0, 1, 3} {
		if err := transfer(t, x, m, true, extent*extentBytes+8192, filled(4096, byte(1+extent))); err != nil {
			t.Fatal(err)
		}
	}
	if !c.Lose("array", "m0.00000001") {
		t.Fatal("the extent is not where it should be")
	}
	for range 2 {
		if list := lost(t, x, m, 0, 5*extentBytes); len(list) != extentBytes/512 || list[0] != extentBytes/512 {
			t.Errorf("%d sectors are lost", len(list))
		}
		if list := lost(t, x, m, extentBytes+4096, 1024); len(list) != 2 || list[0] != (extentBytes+4096)/512 {
			t.Errorf("the sectors %v are lost", list)
		}
		again()
	}
	a, b := filled(4096, 7), filled(4096, 8)
	w1, _ := begin(m, true, extentBytes, a)
	w2, _ := begin(m, true, extentBytes+16384, b)
	if x.Run(); w1.Err != nil || w2.Err != nil {
		t.Fatal(w1.Err, w2.Err)
	}
	for range 2 {
		for off, want := range map[uint64][]byte{0: a, 16384: b} {
			got := make([]byte, 4096)
			if err := transfer(t, x, m, false, extentBytes+off, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("what was written again: %v", err)
			}
		}
		if list := lost(t, x, m, extentBytes, extentBytes); len(list) != (extentBytes-8192)/512 {
			t.Errorf("beside what was written again %d sectors are lost", len(list))
		}
		again()
	}
	discard(t, x, m, extentBytes, extentBytes)
	again()
	if list := lost(t, x, m, 0, 5*extentBytes); list != nil {
		t.Errorf("behind a discard the sectors %v are lost", list)
	}
	// The map itself is not taken for one that has no bits.
	if err := s.Close(); err != nil || !c.Lose("array", "m0.map") {
		t.Fatal("there is no map: ", err)
	}
	s = open(t, c, x, rados.Options{})
	if _, err := s.Medium("m", 5*extentBytes); err == nil || !strings.Contains(err.Error(), "m0.map is missing") {
		t.Errorf("without its map: %v", err)
	}
}

// TestMapOfAnEarlierVersion: an mdisk without a map gets one of what is there.
func TestMapOfAnEarlierVersion(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{})
	m := medium(t, s, 20*extentBytes)
	if err := transfer(t, x, m, true, 17*extentBytes, filled(4096, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	read := &rados.Op{Object: "array", Steps: []rados.Step{{Kind: rados.Read, Buf: make([]byte, 1<<16)}}}
	cl := c.Connect(x, "array")
	carryOutNow(cl, read)
	head := strings.ReplaceAll(string(read.Steps[0].Buf[:read.Steps[0].N]), `,"map":true`, "")
	carryOutNow(cl, &rados.Op{Object: "array", Steps: []rados.Step{{Kind: rados.Replace, Data: [][]byte{[]byte(head)}}}})
	if !c.Lose("array", "m0.map") {
		t.Fatal("there is no map")
	}
	for range 2 {
		s = open(t, c, x, rados.Options{})
		m = medium(t, s, 20*extentBytes)
		if list := lost(t, x, m, 0, 20*extentBytes); list != nil {
			t.Errorf("%d sectors are lost", len(list))
		}
		s.Close()
	}
	c.Lose("array", "m0.00000011")
	s = open(t, c, x, rados.Options{})
	if list := lost(t, x, medium(t, s, 20*extentBytes), 17*extentBytes, 4096); len(list) != 8 {
		t.Errorf("the sectors %v are lost, want 8", list)
	}
}

// TestFailedBits: a bit whose write fails leaves the map right, whether the write had an effect or not, and whether others
// for the same extent wait behind it: what was written is known to be there, and what was discarded not to.
func TestFailedBits(t *testing.T) {
	injected := errors.New("injected")
	for name, row := range map[string]struct {
		written bool // the extent has data before
		write   bool // else discard
		second  bool // another one follows at once
		then    bool // and when all has ended, a discard
		lost    bool // an object that is gone then is missed
	}{
		"two writes":         {write: true, second: true, lost: true},
		"a write, a discard": {write: true, then: true},
		"two discards":       {written: true, second: true},
		"a discard":          {written: true, lost: true},
		"a discard, and one": {written: true, then: true},
	} {
		for _, effect := range []bool{false, true} {
			got := 0
			for offset := int64(0); offset < 3e6; offset += 50e3 {
				c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
				s := open(t, c, x, rados.Options{})
				m := medium(t, s, 2*extentBytes)
				if row.written {
					if err := transfer(t, x, m, true, 0, filled(512, 1)); err != nil {
						t.Fatal(err)
					}
				}
				failures := 1
				fail := func(op *rados.Op) error {
					if failures > 0 && op.Object == "m0.map" && !op.Reads() {
						failures--
						return injected
					}
					return nil
				}
				if effect {
					c.Forget = fail
				} else {
					c.Fail = fail
				}
				errs := []error{nil, nil}
				do := func(i int) {
					if row.write {
						m.Submit([]*block.IO{{Write: true, Off: uint64(i) * 512, N: 512, Vec: [][]byte{filled(512, 2)}, Done: func(io *block.IO) { errs[i] = io.Err }}})
						return
					}
					m.(block.Discarder).Discard(0, extentBytes, func(err error) { errs[i] = err })
				}
				do(0)
				if x.RunUntil(x.Now() + offset); row.second {
					do(1)
				}
				if x.RunUntil(x.Now() + 3e9); errs[0] == nil || errs[1] != nil {
					continue // the other one was first, or both went together
				}
				got++
				if row.then {
					discard(t, x, m, 0, extentBytes)
				}
				s.client.Kill()
				if row.lost && !c.Lose("array", "m0.00000000") {
					t.Fatalf("%s: the object is not there", name)
				}
				s = open(t, c, x, rados.Options{})
				list := lost(t, x, medium(t, s, 2*extentBytes), 0, 512)
				if row.lost != (list != nil) {
					t.Errorf("%s, with an effect: %v, %d us apart: lost is %v, want %v", name, effect, offset/1000, list != nil, row.lost)
					break
				}
			}
			if got == 0 {
				t.Errorf("%s: the test does not get there", name)
			}
		}
	}
}

// TestFailedBitsAreBroughtAtTheEnd: a bit whose write has failed is right behind a stop.
func TestFailedBitsAreBroughtAtTheEnd(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{})
	m := medium(t, s, 2*extentBytes)
	if err := transfer(t, x, m, true, 0, filled(512, 1)); err != nil {
		t.Fatal(err)
	}
	c.Forget = func(op *rados.Op) error {
		if op.Object == "m0.map" {
			return errors.New("injected")
		}
		return nil
	}
	failed := false
	m.(block.Discarder).Discard(0, extentBytes, func(err error) { failed = err != nil })
	x.RunUntil(x.Now() + 10e6)
	if c.Forget = nil; !failed {
		t.Fatal("the discard has not failed")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.Lose("array", "m0.00000000")
	if s = open(t, c, x, rados.Options{}); lost(t, x, medium(t, s, 2*extentBytes), 0, 512) == nil {
		t.Error("what is lost reads as zeros")
	}
}

// mapRun is random writes and discards over owners that die: what each sector may have.
type mapRun struct {
	t       *testing.T
	what    string
	rnd     *rand.Rand
	extents []mapExtent

	writes, discards, failures, beside int
}

const mapSectors = 3 // of each extent, that are written to

// mapExtent is an extent: writes to its sectors may be under way at a time, and discards of all of it, but not both.
type mapExtent struct {
	may      [mapSectors][]byte // the last of them unless something has failed or was under way
	busy     [mapSectors]bool
	discards int
	acked    bool // a write, behind the last discard that has begun
}

// idle reports whether nothing is under way.
func (e *mapExtent) idle() bool { return e.discards == 0 && e.busy == [mapSectors]bool{} }

// step does something to an extent.
func (x *mapRun) step(m block.Medium) {
	i := x.rnd.IntN(len(x.extents))
	e := &x.extents[i]
	off := uint64(i) * extentBytes
	if x.rnd.IntN(3) == 0 {
		if e.discards == 0 && !e.idle() {
			return
		}
		if x.discards++; e.discards > 0 {
			x.beside++
		}
		e.discards++
		e.acked = false
		for k := range e.may {
			e.may[k] = append(e.may[k], 0)
		}
		m.(block.Discarder).Discard(off, extentBytes, func(err error) {
			if e.discards--; err != nil {
				x.failures++
				return
			}
			for k := range e.may {
				e.may[k] = []byte{0}
			}
		})
		return
	}
	k := x.rnd.IntN(mapSectors)
	if e.discards > 0 || e.busy[k] {
		return
	}
	if x.writes++; !e.idle() {
		x.beside++
	}
	value := byte(1 + x.rnd.IntN(255))
	e.busy[k], e.may[k] = true, append(e.may[k], value)
	m.Submit([]*block.IO{{Write: true, Off: off + uint64(k)*512, N: 512, Vec: [][]byte{filled(512, value)}, Done: func(io *block.IO) {
		if e.busy[k] = false; io.Err != nil {
			x.failures++
			return
		}
		e.may[k], e.acked = []byte{value}, true
	}}})
}

// look compares what is there with what may be.
func (x *mapRun) look(v *block.Virtual, m block.Medium) {
	for i := range x.extents {
		e := &x.extents[i]
		for k := range e.may {
			got := make([]byte, 512)
			if err := transfer(x.t, v, m, false, uint64(i)*extentBytes+uint64(k)*512, got); err != nil {
				x.t.Fatalf("%s: extent %d: %v", x.what, i, err)
			}
			if !bytes.Contains(e.may[k], got[:1]) {
				x.t.Fatalf("%s: sector %d of extent %d has %d, want one of %v", x.what, k, i, got[0], e.may[k])
			}
			e.may[k] = []byte{got[0]}
		}
		*e = mapExtent{may: e.may, acked: e.acked}
	}
}

// TestMapKills: owners die at any moment of writes, discards and changes of the map, operations fail, with an effect or
// without, several for one extent are under way at a time, and what the dead have sent goes on arriving. Nothing is ever said
// to be lost, and what was acknowledged is there. What is behind the owners' backs gone is said to be, unless nothing was
// acknowledged there.
func TestMapKills(t *testing.T) {
	seed, seeds := testkit.Seed(t), uint64(150)
	if testing.Short() {
		seeds = 40
	}
	var all mapRun
	for i := range seeds {
		rnd := rand.New(rand.NewPCG(seed+i, 31))
		c := simulated.New(simulated.Options{Latency: 1 + rnd.Int64N(2e6), Tail: rnd.IntN(100), OSDs: 1 + rnd.IntN(5)}, rnd)
		x := &mapRun{t: t, what: fmt.Sprintf("-run %s -seed %d", t.Name(), seed+i), rnd: rnd, extents: make([]mapExtent, 2+rnd.IntN(12))}
		for e := range x.extents {
			for k := range mapSectors {
				x.extents[e].may[k] = []byte{0}
			}
		}
		var s *opened
		v := &block.Virtual{}
		again := func() block.Medium {
			v = &block.Virtual{}
			s = open(t, c, v, rados.Options{})
			return medium(t, s, uint64(len(x.extents))*extentBytes)
		}
		for range 6 {
			m := again()
			x.look(v, m)
			chance := rnd.IntN(20)
			fail := func(op *rados.Op) error {
				if rnd.IntN(200) < chance && !op.Reads() {
					return errors.New("injected")
				}
				return nil
			}
			c.Fail, c.Forget = fail, fail
			for range rnd.IntN(80) {
				if x.step(m); rnd.IntN(2) == 0 {
					v.RunUntil(v.Now() + rnd.Int64N(8e6))
				}
			}
			if c.Fail, c.Forget = nil, nil; rnd.IntN(3) == 0 {
				v.RunUntil(v.Now() + rnd.Int64N(4e9))
			}
			if rnd.IntN(4) == 0 {
				s.Close()
			}
			if s.client.Kill(); rnd.IntN(3) == 0 {
				c.Settle()
			}
		}
		x.look(v, again())
		s.client.Kill()
		for e := range x.extents {
			c.Lose("array", fmt.Sprintf("m0.%08x", e))
		}
		m := again()
		for e := range x.extents {
			if list := lost(t, v, m, uint64(e)*extentBytes, 512); x.extents[e].acked && list == nil {
				t.Fatalf("%s: extent %d, which had data, is gone and reads as zeros", x.what, e)
			}
		}
		all.writes, all.discards, all.failures, all.beside = all.writes+x.writes, all.discards+x.discards, all.failures+x.failures, all.beside+x.beside
	}
	t.Logf("%d writes, %d discards, %d failures, %d beside others", all.writes, all.discards, all.failures, all.beside)
	if all.writes == 0 || all.discards == 0 || all.failures == 0 || all.beside == 0 {
		t.Error("the test does not get there")
	}
}
