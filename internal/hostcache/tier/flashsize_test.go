package tier

import (
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// grown is a larger card with all that another one has.
func grown(c *card, by int) *card {
	x := *c
	x.b = append(slices.Clone(c.b), make([]byte, by)...)
	return &x
}

// TestTakeOverOfALargerPeer: what a peer lends may be larger than the flash, and has the layout of that.
func TestTakeOverOfALargerPeer(t *testing.T) {
	for _, by := range []int{512, 4096, 64 << 10, 8 << 20} {
		l := newLab(t, func(w *world) {
			withPeers(1)(w)
			w.cards[1] = grown(w.cards[1], by)
		})
		l.write(0, 8, 1)
		l.d.j.renew()
		l.d.pump()
		l.wait(func() bool { return !l.d.j.compact })
		l.write(64, 8, 2)
		l.crash()
		l.opt.Destager = nil
		if err := l.try(1, nil); err != nil {
			t.Errorf("%d bytes larger: %v", by, err)
			continue
		}
		l.want(0, 8, 1)
		l.want(64, 8, 2)
		l.wait(l.d.clean)
		l.wantBelow(0, 8, 1)
		l.stop()
	}
}

// laidOut returns the frames of a flash of so many bytes, and where they begin.
func laidOut(t *testing.T, size int) (frames, start uint64) {
	d := &Disk{per: hostcache.MinBlockSectors}
	d.j.on = true
	if err := d.layOut(uint64(size)); err != nil {
		t.Fatal(err)
	}
	return d.totalFrames, d.dataStart
}

// TestFlashThatWasCopiedToALargerOne: it keeps its layout, over further starts. Both what is clean and what is dirty is there, also
// where the larger one would have as many frames, elsewhere.
func TestFlashThatWasCopiedToALargerOne(t *testing.T) {
	shifted := 1 << 20
	for ; ; shifted += block.SectorSize {
		frames, start := laidOut(t, shifted)
		if n, at := laidOut(t, shifted+4096); n == frames && at != start {
			break
		}
	}
	for _, row := range []struct{ size, by int }{{1 << 20, 512}, {1 << 20, 4096}, {1 << 20, 1 << 20}, {shifted, 4096}} {
		by := row.by
		l := newLab(t, func(w *world) {
			w.opt.Policy = Policy{Mode: WriteThrough}
			w.cards[0] = newCard(w.v, w.r, row.size)
		})
		l.write(0, 8, 1)
		l.write(512, 8, 3)
		l.wait(func() bool { return len(l.d.active) == 0 })
		l.setPolicy(WriteBack)
		l.d.destager.used = l.d.destager.ahead()
		l.write(64, 8, 2)
		l.crash()
		l.cards[0] = grown(l.cards[0], by)
		l.opt.Destager = NewDestager(1)
		l.opt.Destager.used = l.opt.Destager.ahead()
		for range 2 {
			err := l.try(0, nil)
			if err != nil {
				t.Errorf("%d bytes larger: %v", by, err)
				break
			}
			l.want(0, 8, 1)
			l.want(64, 8, 2)
			l.want(512, 8, 3)
			l.crash()
		}
	}
}

// TestLabelWithoutASize: an earlier version wrote it. It counts for a flash of as many frames.
func TestLabelWithoutASize(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.crash()
	for i := range 2 {
		b := l.cards[0].b[i*labelCopy:][:block.SectorSize]
		old, _ := decodeLabel(b)
		old.size = 0
		copy(b, old.encode())
	}
	for range 2 {
		if err := l.try(0, nil); err != nil {
			t.Fatal(err)
		}
		l.want(0, 8, 1)
		l.crash()
	}
	if on, _ := decodeLabel(l.cards[0].b); on.size != 1<<20 {
		t.Errorf("behind a start the label has a size of %d", on.size)
	}
}

// TestFlashThatWasCutOff: what is behind its end would be missing.
func TestFlashThatWasCutOff(t *testing.T) {
	l := newLab(t, nil)
	l.crash()
	l.cards[0].b = l.cards[0].b[:len(l.cards[0].b)-block.SectorSize]
	err := l.try(0, nil)
	if err == nil || !strings.Contains(err.Error(), "1048576") || !strings.Contains(err.Error(), "1048064") || !strings.Contains(err.Error(), "--format") {
		t.Errorf("%v", err)
	}
}

// TestPeersAreAsLargeAsTheFlash: one that is smaller is refused, at a start and later, and one that has the size of a cache on a larger
// device is not.
func TestPeersAreAsLargeAsTheFlash(t *testing.T) {
	l := newLab(t, withPeers(1))
	small := func() Peer { return Peer{Name: "small", Medium: &slot{card: newCard(l.v, l.r, 1<<20-512)}} }
	l.crash()
	if err := l.try(0, func(o *Options) { o.Peers = append(o.Peers, small()) }); err == nil || !strings.Contains(err.Error(), "small lends 1048064 bytes") {
		t.Errorf("a start with a peer that is too small: %v", err)
	}
	l.cards[0] = grown(l.cards[0], 1<<20)
	if err := l.try(0, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.d.AddPeer(small()); err == nil {
		t.Error("a peer that is too small is taken")
	}
	if err := l.d.AddPeer(Peer{Name: "p2", Medium: &slot{card: newCard(l.v, l.r, 1<<20)}}); err != nil {
		t.Error(err)
	}
}
