package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// tireAtLabel makes a card take no more writes from a label on, behind so many that it takes.
func (l *lab) tireAtLabel(card, skip int) {
	c := l.cards[card]
	c.heard = func(io *block.IO) {
		if !io.Write || io.Off >= labelBytes {
			return
		}
		if skip--; skip < 0 {
			c.tired = true
		}
	}
}

// lastFlashFails is a cache whose peer is gone, and whose flash fails as it is to have that on its
// label; the write that met both is under way.
func lastFlashFails(t *testing.T) (l *lab, r *block.Request, end func() bool) {
	l = newLab(t, withPeers(1))
	l.dirty(0, 8, 1)
	l.cards[1].broken = true
	l.tireAtLabel(0, 0)
	r = &block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 8}, Data: [][]byte{pattern(2, 8)}}
	end = l.start(r)
	l.wait(func() bool { return l.d.local().state == memberFailing })
	return l, r, end
}

// TestLastFlashThatMissesItsLabelIsStillTheNewest: the peer is gone, and the host's flash fails as
// it is to have that on its label. The witness must not have a generation under which nobody has
// what is dirty.
func TestLastFlashThatMissesItsLabelIsStillTheNewest(t *testing.T) {
	l, r, end := lastFlashFails(t)
	l.v.RunUntil(l.v.Now() + 1_000_000_000)
	if end() && r.Status == block.OK {
		t.Error("a write was acknowledged, and nothing tells who was left out")
	}
	l.crash()
	l.cards[0].heard, l.cards[0].tired, l.cards[1].broken = nil, false, false
	delete(l.a.gate, block.OpWrite)
	l.opt.Destager = nil
	if err := l.try(0, nil); err != nil {
		t.Fatalf("what was acknowledged is given up: %v", err)
	}
	l.want(0, 8, 1)
}

// TestLastFlashThatMissesItsLabelIsLeftOutInTheEnd: what waited goes on when nothing is dirty any
// more.
func TestLastFlashThatMissesItsLabelIsLeftOutInTheEnd(t *testing.T) {
	l, r, end := lastFlashFails(t)
	l.destages()
	l.wait(end)
	if r.Status != block.OK {
		t.Errorf("the write ends %v", r.Status)
	}
	l.wantBelow(0, 8, 1)
	l.wantBelow(100, 8, 2)
	l.crash()
	l.cards[0].heard, l.cards[0].tired, l.cards[1].broken = nil, false, false
	if err := l.try(0, nil); err == nil {
		t.Error("the flash that was left out is believed")
	}
}

// TestStartThatMissesItsLabelIsNotTheLast: the flash fails for a while, as a start brings the
// witness up.
func TestStartThatMissesItsLabelIsNotTheLast(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.dirty(0, 8, 1)
	l.crash()
	l.mark.Generation = 0
	l.tireAtLabel(0, 2) // the opening's own label is there
	if err := l.try(0, nil); err == nil {
		t.Fatal("a start without a label succeeds")
	}
	l.crash()
	l.cards[0].heard, l.cards[0].tired = nil, false
	delete(l.a.gate, block.OpWrite)
	l.opt.Destager = nil
	if err := l.try(0, nil); err != nil {
		t.Fatalf("what was acknowledged is given up: %v", err)
	}
	l.want(0, 8, 1)
}
