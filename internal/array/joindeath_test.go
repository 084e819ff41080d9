package array

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
)

// joinImage is the disk of an array that was killed when two pages counted at an address, and what it was opened with.
func joinImage(t *testing.T, k *killer) *powerRig {
	var h *hungSync
	r := newPowerRigWith(t, 1, false, func(r *powerRig) {
		k.r = r
		r.wrap = []func(block.Store) block.Store{
			func(s block.Store) block.Store { h = &hungSync{Store: s}; return h },
			func(s block.Store) block.Store { return killable{s, k} },
		}
	})
	if r.put(1, 0, 80, 1) != block.OK { // so that a page that becomes free has a descriptor
		t.Fatal("nothing fails yet")
	}
	r.clock.RunUntil(r.clock.Now() + 5e9)
	h.name = "b.m"
	if r.put(2, 0, 16, 2) != block.OK || r.wait(2, &block.Request{Op: block.OpFlush}) != block.OK {
		t.Fatal("nothing fails yet")
	}
	r.clock.RunUntil(r.clock.Now() + 3e9)
	for s := uint64(0); s < 16; s += 8 {
		if r.put(2, s, 1, 3) != block.OK {
			t.Fatal("nothing fails yet")
		}
	}
	if n := r.a.cache.Unsynced(); n == 0 {
		t.Fatal("no page waits for a sync")
	}
	r.disk.KillNow()
	r.files.Close()
	return r
}

// TestDeathInADescriptorOfAStart kills a start behind each word of each descriptor that it writes. The next one finds
// nothing damaged.
func TestDeathInADescriptorOfAStart(t *testing.T) {
	k := &killer{}
	r := joinImage(t, k)
	image := r.disk.Image()
	deaths := 0
	for n, dead := 1, true; dead; n++ {
		for words := 0; words <= 16; words++ {
			what := fmt.Sprintf("update %d, %d words", n, words)
			r.disk = image.Kill()
			*k = killer{r: r, left: n, exact: true, words: words}
			_, files, err := openOn(r.disk, &block.Virtual{}, r.rnd, r.opt, r.wrap...)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			k.ended()
			files.Close()
			if dead = r.isCut(); !dead {
				break
			}
			deaths++
			left := r.disk.Image()
			for _, cut := range []bool{false, true} {
				r.startsWhole(what, left, cut)
			}
		}
	}
	if deaths < 6*17 {
		t.Errorf("only %d deaths", deaths)
	}
}

// startsWhole starts the array that a dead start has left, perhaps behind a loss of power, and verifies it.
func (r *powerRig) startsWhole(what string, image *storetest.Disk, cut bool) {
	r.disk = image.Kill()
	if cut {
		r.disk = image.Kill().Cut()
	}
	r.clock = &block.Virtual{}
	var err error
	if r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt); err != nil {
		r.t.Fatalf("%s, cut %t: %v", what, cut, err)
	}
	r.find()
	if rec := r.a.Recovery(); rec.BadPages+rec.BadSectors > 0 {
		r.t.Errorf("%s, cut %t: recovery: %+v", what, cut, rec)
	}
	for s := range uint64(16) {
		got, want := make([]byte, 512), make([]byte, 512)
		fillStamp(want, 2<<20|s)
		if s%8 == 0 {
			fillStamp(want, 3<<20)
		}
		if st := r.wait(2, &block.Request{Op: block.OpRead, Range: rng(s, 1), Data: [][]byte{got}}); st != block.OK || !cut && !bytes.Equal(got, want) {
			r.t.Errorf("%s, cut %t: sector %d: %v, %x, not %x", what, cut, s, st, le.Uint64(got), le.Uint64(want))
		}
	}
	r.files.Close()
}
