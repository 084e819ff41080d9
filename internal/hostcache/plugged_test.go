package hostcache

import (
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/lab/plug"
)

// pluggedLRU is lru as somebody else may write it.
type pluggedLRU struct{ order []int } // slots, oldest first

func (p *pluggedLRU) Insert(slot int, _ uint64) { p.order = append(p.order, slot) }
func (p *pluggedLRU) Hit(slot int)              { p.Remove(slot); p.order = append(p.order, slot) }
func (p *pluggedLRU) Remove(slot int) {
	p.order = slices.DeleteFunc(p.order, func(s int) bool { return s == slot })
}
func (p *pluggedLRU) Victim(pinned func(int) bool) int {
	for i, s := range p.order {
		if !pinned(s) {
			p.order = append(append(p.order[i+1:], p.order[:i]...), s) // as the built-in: what was passed is new
			return s
		}
	}
	return -1
}

// TestPluggedIsTheSame: a policy that is plugged in does what the built-in one does, through hits, evictions,
// pins and drops. Resized it goes on, with what fits.
func TestPluggedIsTheSame(t *testing.T) {
	r := random(t)
	for range 20 {
		capacity := int64(4 + r.IntN(60))
		ours := mustNew(Config{Policy: "lru", Capacity: capacity})
		theirs := mustNew(Config{Policy: "mine", Capacity: capacity, Plugged: func(int64) plug.Eviction { return &pluggedLRU{} }})
		if theirs.Policy() != "mine" {
			t.Fatalf("it is called %s", theirs.Policy())
		}
		for i, k := range workload(r, 3000, 100) {
			if a, b := ours.Access(k, 0), theirs.Access(k, 0); a != b {
				t.Fatalf("reference %d, to %d: hit %v, plugged in %v", i, k, a, b)
			}
			switch s, u := ours.Lookup(k), theirs.Lookup(k); {
			case s == None || u == None:
			case r.IntN(20) == 0:
				if a, b := ours.Pin(s), theirs.Pin(u); a != b {
					t.Fatalf("pinned %v, plugged in %v", a, b)
				}
			case r.IntN(5) == 0:
				ours.Unpin(s)
				theirs.Unpin(u)
			case r.IntN(50) == 0:
				ours.Drop(s)
				theirs.Drop(u)
			}
		}
		if a, b := ours.Stats(), theirs.Stats(); a != b || theirs.Err() != nil {
			t.Fatalf("%+v, plugged in %+v, %v", a, b, theirs.Err())
		}
		for _, n := range []int64{capacity * 2, capacity / 2, capacity} {
			if n = max(n, theirs.Pinned()); theirs.Resize(n, func(Slot, Slot) {}) != nil || theirs.Len() > n {
				t.Fatalf("resized to %d it has %d", n, theirs.Len())
			}
			for _, k := range workload(r, 300, 100) {
				theirs.Access(k, 0)
			}
		}
		if theirs.Err() != nil {
			t.Fatal(theirs.Err())
		}
	}
}

// badVictim names one slot, whatever is there.
type badVictim struct {
	pluggedLRU
	slot int
}

func (p *badVictim) Victim(func(int) bool) int { return p.slot }

// TestPluggedWrongVictim: a victim that is not there, or is pinned, is an error and no panic, and the index goes
// on with what it has.
func TestPluggedWrongVictim(t *testing.T) {
	for _, row := range []struct {
		slot int
		says string
	}{{-1, "slot -1, which holds no block"}, {8, "slot 8, which holds no block"}, {1 << 40, "holds no block"}, {3, "slot 3, which is pinned"}} {
		ix := mustNew(Config{Policy: "bad", Capacity: 8, Plugged: func(int64) plug.Eviction { return &badVictim{slot: row.slot} }})
		for k := range Key(8) {
			ix.Access(k, 0)
		}
		ix.Pin(3)
		if err := ix.Err(); err != nil {
			t.Fatalf("before anything was evicted: %v", err)
		}
		for k := range Key(8) {
			if ix.Access(100+k, 0) {
				t.Fatal("a hit of what cannot have been inserted")
			}
		}
		if err := ix.Err(); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("victim %d: %v", row.slot, err)
		}
		if ix.Len() != 8 || ix.Stats().Refused != 8 {
			t.Errorf("%d blocks, %+v", ix.Len(), ix.Stats())
		}
	}
}
