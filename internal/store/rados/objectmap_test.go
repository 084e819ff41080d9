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
	if _, err := s.Medium("m", 5*extentBytes); err == nil || !strings.Contains(err.Error(), "m0.map is gone") {
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

// TestMapKills: owners die at any moment of writes, discards and changes of the map, operations fail, and what the dead have
// sent goes on arriving. Nothing is ever said to be lost, and what was acknowledged is there.
func TestMapKills(t *testing.T) {
	seed, seeds := testkit.Seed(t), uint64(150)
	if testing.Short() {
		seeds = 40
	}
	const extents = 24
	writes, discards, failures := 0, 0, 0
	for i := range seeds {
		what := fmt.Sprintf("-run %s -seed %d", t.Name(), seed+i)
		rnd := rand.New(rand.NewPCG(seed+i, 31))
		c := simulated.New(simulated.Options{Latency: 1 + rnd.Int64N(2e6), Tail: rnd.IntN(100), OSDs: 1 + rnd.IntN(5)}, rnd)
		var want [extents]byte  // what was acknowledged; 0: zeros
		var maybe [extents]bool // something was under way when the process died
		for range 6 {
			x := &block.Virtual{}
			s := open(t, c, x, rados.Options{})
			m := medium(t, s, extents*extentBytes)
			for e := range uint64(extents) {
				got := make([]byte, 512)
				if err := transfer(t, x, m, false, e*extentBytes, got); err != nil {
					t.Fatalf("%s: extent %d: %v", what, e, err)
				}
				if !maybe[e] && got[0] != want[e] {
					t.Fatalf("%s: extent %d has %d, want %d", what, e, got[0], want[e])
				}
				want[e], maybe[e] = got[0], false
			}
			chance := rnd.IntN(20)
			c.Fail = func(op *rados.Op) error {
				if rnd.IntN(100) < chance && !op.Reads() {
					return errors.New("injected")
				}
				return nil
			}
			for range rnd.IntN(60) {
				e := uint64(rnd.IntN(extents))
				if maybe[e] { // one at a time
					continue
				}
				maybe[e] = true
				value := byte(1 + rnd.IntN(255))
				ended := func(err error) {
					if maybe[e] = err != nil; err == nil {
						want[e] = value
					} else {
						failures++
					}
				}
				if rnd.IntN(3) == 0 {
					value = 0
					discards++
					m.(block.Discarder).Discard(e*extentBytes, extentBytes, ended)
				} else {
					writes++
					m.Submit([]*block.IO{{Write: true, Off: e * extentBytes, N: 512, Vec: [][]byte{filled(512, value)}, Done: func(io *block.IO) { ended(io.Err) }}})
				}
				if rnd.IntN(2) == 0 {
					x.RunUntil(x.Now() + rnd.Int64N(8e6))
				}
			}
			s.client.Kill()
			if c.Fail = nil; rnd.IntN(3) == 0 {
				c.Settle()
			}
		}
	}
	if writes == 0 || discards == 0 || failures == 0 {
		t.Errorf("the test does not get there: %d writes, %d discards, %d failures", writes, discards, failures)
	}
}
