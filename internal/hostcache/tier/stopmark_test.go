package tier

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestStopWaitsForTheMarkOfTheLastFlash: it takes no writes any more, so it has not got that what is dirty there was destaged. A stop
// that ends before the witness has that it was left out leaves a flash that the next start believes.
func TestStopWaitsForTheMarkOfTheLastFlash(t *testing.T) {
	for _, refused := range []bool{false, true} {
		l := newLab(t, withoutDestager)
		l.crash()
		x := &dumb{}
		if err := l.try(0, func(o *Options) { x.Witness, o.Witness = o.Witness, x }); err != nil {
			t.Fatal(err)
		}
		l.wait(func() bool { return l.d.State().Why == "" })
		l.dirty(0, 8, 1)
		l.cards[0].tired, x.silent = true, true
		l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 8}, Data: [][]byte{pattern(2, 8)}})
		l.wait(func() bool { return l.d.local().state == memberFailing })
		l.stopsBehindTheMark(x, refused)
		l.wantBelow(0, 8, 1)
		l.crash()
		l.cards[0].tired = false
		l.elsewhere(3)
		l.opt.Destager = nil
		err := l.try(0, nil)
		switch {
		case err == nil && !refused:
			l.wait(l.d.clean)
			l.wantBelow(0, 8, 3)
			t.Error("a flash that was left out is believed")
		case err != nil && !strings.Contains(err.Error(), "left out"):
			t.Error(err)
		}
	}
}

// silentlyLeftOut is a lab whose peer was left out just before, with old dirty data, and whose witness does not answer yet.
func silentlyLeftOut(t *testing.T) (*lab, *dumb) {
	t.Helper()
	l, x := newDumbLab(t, func(*world) {})
	l.write(0, 8, 1)
	x.silent = true
	l.d.LosePeer("p1")
	l.wait(func() bool { return len(x.kept) > 0 })
	l.destages()
	return l, x
}

// TestStopWaitsForTheMarkOfAPeer: it was left out just before, and has old dirty data.
func TestStopWaitsForTheMarkOfAPeer(t *testing.T) {
	for _, refused := range []bool{false, true} {
		l, x := silentlyLeftOut(t)
		l.stopsBehindTheMark(x, refused)
		l.wantBelow(0, 8, 1)
		l.crash()
		if l.opt.Destager = nil; !refused && l.try(1, nil) == nil {
			t.Error("a peer that was left out is taken over")
		}
	}
}

// TestCleanIsSaidBehindTheMarks: who hears that nothing is dirty may let another host write, and a peer that was left out has old
// dirty data until its mark is made. Where that is refused, a quiesce gets no token.
func TestCleanIsSaidBehindTheMarks(t *testing.T) {
	for _, quiesce := range []bool{false, true} {
		for _, refused := range []bool{false, true} {
			l, x := silentlyLeftOut(t)
			ended, token := false, uint64(1)
			if quiesce {
				l.d.Quiesce(1e15, func(n uint64) { ended, token = true, n })
			} else {
				l.d.SetPolicy(Policy{Mode: WriteThrough}, func() { ended = true })
			}
			l.wait(l.d.clean)
			l.v.RunUntil(l.v.Now() + 5_000_000_000)
			if ended {
				t.Fatalf("quiesce %v: it ends before the witness has who was left out", quiesce)
			}
			l.path.fenced = refused
			x.speak()
			l.wait(func() bool { return ended })
			if (token == 0) != (quiesce && refused) {
				t.Errorf("quiesce %v, the mark is refused %v: the token is %d", quiesce, refused, token)
			}
		}
	}
}

// stopsBehindTheMark stops the cache, whose witness is silent.
func (l *lab) stopsBehindTheMark(x *dumb, refused bool) {
	l.t.Helper()
	ended, said := false, error(nil)
	l.d.Close(false, func(err error) { ended, said = true, err })
	if !l.d.clean() {
		l.destages()
	}
	l.wait(func() bool { return len(x.kept) > 0 })
	l.v.RunUntil(l.v.Now() + 5_000_000_000)
	if ended {
		l.t.Fatalf("the stop ends (%v) before the witness has who was left out", said)
	}
	l.path.fenced = refused
	x.speak()
	l.wait(func() bool { return ended })
	if refused != (said != nil) || refused && (!strings.Contains(said.Error(), "--format") || strings.Contains(said.Error(), "\n")) {
		l.t.Errorf("the mark was refused: %v; the stop ends with %v", refused, said)
	}
}
