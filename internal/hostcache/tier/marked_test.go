package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// Nothing is acknowledged that a peer has not got, before it is marked that this one is left out:
// else it could be taken over, and be believed.

// TestOffloadWaitsForTheMarkOfWhoMissedItsRecord: the peer does not get the record that what was
// dirty is void, and would destage it over what has taken its place.
func TestOffloadWaitsForTheMarkOfWhoMissedItsRecord(t *testing.T) {
	for _, refused := range []bool{false, true} {
		l, x := newDumbLab(t, func(*world) {})
		l.write(0, 8, 1)
		l.a.gate[block.OpWriteSame] = true
		r := &block.Request{Op: block.OpWriteSame, Range: block.Range{Count: 8}, Data: [][]byte{pattern(9, 1)}}
		end := l.start(r)
		l.wait(func() bool { return len(l.path.kept) == 1 })
		l.cards[1].broken, x.silent = true, true
		l.path.open(block.OpWriteSame)
		l.wait(func() bool { return len(x.kept) > 0 })
		l.v.RunUntil(l.v.Now() + 1_000_000_000)
		if end() {
			t.Fatalf("it ends %v before it is marked that the peer is left out", r.Status)
		}
		l.path.fenced = refused // it has been taken over
		x.speak()
		l.wait(end)
		if refused != (r.Status != block.OK) {
			t.Errorf("the mark was refused: %v; it ends %v", refused, r.Status)
		}
	}
}

// TestFlushWaitsForTheMarkOfWhoMissedIt: the peer does not get its sync, or a journal record before
// that, and would not have what was flushed after a loss of power.
func TestFlushWaitsForTheMarkOfWhoMissedIt(t *testing.T) {
	for name, fails := range map[string]fault{
		"its sync":            {what: faultSync, times: 1000},
		"a record before it":  {what: faultWrite, hi: 1 << 20, times: 1000},
		"what was lost while": {},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				l, x := newDumbLab(t, func(w *world) { w.cards[0].volatile, w.cards[1].volatile = true, true })
				l.write(0, 8, 1)
				l.cards[1].faults, x.silent = []fault{fails}, true
				if fails.what == faultWrite {
					l.d.j.ranged(recIntent, block.Range{Start: 900, Count: 1})
				}
				if fails.times == 0 {
					l.d.LosePeer("p1")
				}
				r := &block.Request{Op: block.OpFlush}
				end := l.start(r)
				l.wait(func() bool { return len(x.kept) > 0 })
				l.v.RunUntil(l.v.Now() + 1_000_000_000)
				if end() {
					t.Fatalf("it ends %v before it is marked that the peer is left out", r.Status)
				}
				l.path.fenced = refused
				x.speak()
				l.wait(end)
				if refused != (r.Status != block.OK) {
					t.Errorf("the mark was refused: %v; it ends %v", refused, r.Status)
				}
			})
		}
	}
}
