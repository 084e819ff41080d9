package tier

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// What a witness knows, and what a host that was fenced does meanwhile.

// fence keeps the present host from writing below and at the peers, and has it try to write until it has left all of them out.
func (l *lab) fence() {
	l.t.Helper()
	l.path.fenced = true
	for _, s := range l.slots[1:] {
		s.fenced = true
	}
	for range 5 {
		if l.tryWrite(0, 8, 66) {
			l.t.Fatal("a host that was fenced acknowledged a write")
		}
	}
}

// TestFlashOfAFencedHostIsRefused: the fenced host has left its peer out, and said so on its own flash. Its flash must not count
// as the newest later, when it can write again.
func TestFlashOfAFencedHostIsRefused(t *testing.T) {
	for _, lag := range []uint64{0, 1, 254, 255, 256} { // how far the generations are already
		l := newLab(t, withPeers(1))
		l.d.SetPolicy(Policy{Mode: WriteBack}, nil) // the peer stays a member, and is not asked for
		l.d.marks.generation += lag
		l.d.marks.due = true
		l.d.mark()
		l.wait(func() bool { return !l.d.marks.busy })
		l.write(0, 8, 1)
		l.fence()
		l.crash()
		l.opt.Destager = nil
		l.boot(1)
		l.wait(l.d.clean)
		l.write(0, 8, 2)
		l.wantBelow(0, 8, 2)
		l.crash()
		err := l.try(0, func(o *Options) { o.Peers, o.Policy = nil, Policy{Mode: WriteBack} })
		if err == nil {
			l.wait(l.d.clean)
			l.want(0, 8, 2)
			t.Fatal("the flash of a host that was fenced is believed")
		}
		if !strings.Contains(err.Error(), "left out") {
			t.Error(err)
		}
	}
}

// TestFencedHostRaisesItsGenerationOnce: a mark that the witness refuses is tried again as it is, or the fenced host would come to
// the generation of its taker.
func TestFencedHostRaisesItsGenerationOnce(t *testing.T) {
	l := newLab(t, withPeers(2))
	was := l.d.marks.generation
	l.fence()
	for range 300 {
		l.tryWrite(0, 8, 66)
	}
	if n := l.d.marks.generation - was; n == 0 || n > 3 {
		t.Errorf("it went %d generations further", n)
	}
}

// TestSinglePeerThatWasLeftOutIsNotTakenOver: nobody but the witness knows. Nobody is fenced then: the host that is taken
// for lost, or its flash, has what was acknowledged.
func TestSinglePeerThatWasLeftOutIsNotTakenOver(t *testing.T) {
	for _, cache := range []bool{true, false} { // does the witness keep the cache's number
		l := newLab(t, withPeers(1))
		l.write(0, 8, 1)
		l.cards[1].broken = true
		l.write(0, 8, 2)
		l.cards[1].broken = false
		l.crash()
		if !cache {
			l.mark.Cache = 0
		}
		l.opt.Destager = nil
		fenced := false
		err := l.try(1, func(o *Options) {
			o.Fence = func(done func(error)) { fenced = true; l.v.Call(l.v.Now(), func() { done(nil) }) }
		})
		if err == nil {
			l.wait(l.d.clean)
			l.want(0, 8, 2)
			t.Fatal("a peer that was left out was taken over")
		}
		if fenced || !strings.Contains(err.Error(), "left out") {
			t.Errorf("fenced: %v; %v", fenced, err)
		}
		if err := l.try(0, nil); err != nil {
			t.Fatalf("the host comes back with its own flash: %v", err)
		}
		l.want(0, 8, 2)
	}
}

// TestTakeOverHearsOfWhatComesBeforeTheFence: the lost host lives, and leaves the peer out while it is being fenced.
func TestTakeOverHearsOfWhatComesBeforeTheFence(t *testing.T) {
	l := newLab(t, withPeers(1))
	l.d.SetPolicy(Policy{Mode: WriteBack}, nil)
	l.write(0, 8, 1)
	l.crash()
	l.opt.Destager = nil
	err := l.try(1, func(o *Options) {
		o.Fence = func(done func(error)) { l.mark.Generation++; l.v.Call(l.v.Now(), func() { done(nil) }) }
	})
	if err == nil || !strings.Contains(err.Error(), "left out") {
		t.Errorf("it was left out before the fence, and is believed: %v", err)
	}
}

// TestStartStoresWhatTheWitnessMissed: the host died between its own label and the witness. The next start makes up for it
// before anything is acknowledged.
func TestStartStoresWhatTheWitnessMissed(t *testing.T) {
	l := newLab(t, withPeers(1))
	l.write(0, 8, 1)
	l.cards[1].broken = true
	l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}})
	l.wait(func() bool {
		on, _ := decodeLabel(l.cards[0].b)
		return on.generation > l.mark.Generation
	})
	l.crash()
	l.cards[1].broken = false
	if err := l.try(0, func(o *Options) { o.Peers, o.Policy = nil, Policy{Mode: WriteBack} }); err != nil {
		t.Fatal(err)
	}
	l.write(0, 8, 3)
	l.crash()
	l.opt.Destager = nil
	if err := l.try(1, nil); err == nil {
		l.wait(l.d.clean)
		l.want(0, 8, 3)
		t.Fatal("a peer that was left out was taken over")
	}
}

// TestFlashThatWasLeftOutIsNotBelievedWithoutItsPeer: it is given alone, and the witness of a host
// alone has not heard of what the LUN says. A flash that this witness follows is not the one that
// the LUN speaks of.
func TestFlashThatWasLeftOutIsNotBelievedWithoutItsPeer(t *testing.T) {
	for _, row := range []struct {
		name    string
		mark    func(l *lab, at uint64) Mark
		refused bool
	}{
		{"no mark of its own", func(l *lab, at uint64) Mark { return Mark{Elsewhere: at + 1} }, true},
		{"one of a time before", func(l *lab, at uint64) Mark { return Mark{Cache: l.d.cache, Generation: at - 1, Elsewhere: at + 1} }, true},
		{"one of its own", func(l *lab, at uint64) Mark { return Mark{Cache: l.d.cache, Generation: at, Elsewhere: at + 1} }, false},
		{"it was not left out", func(l *lab, at uint64) Mark { return Mark{Elsewhere: at} }, false},
	} {
		l := newLab(t, withPeers(1))
		l.write(0, 8, 1)
		at := l.d.local().label.generation
		l.crash()
		m := row.mark(l, at)
		m.NAA = l.d.info.NAA
		l.mark, l.opt.Destager, l.cards = m, nil, l.cards[:1]
		err := l.try(0, func(o *Options) { o.Policy.Peers = 0 })
		if refused := err != nil && strings.Contains(err.Error(), "left out"); refused != row.refused {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
