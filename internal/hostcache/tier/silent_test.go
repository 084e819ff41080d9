package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestSilentLUN: a LUN that answers no destage takes the slots of its host's other disks for a while
// only, though nobody asks them for anything. When it answers, all of it is destaged.
func TestSilentLUN(t *testing.T) {
	g := NewDestager(2)
	silent := newLab(t, func(w *world) { w.opt.Destager = g })
	other := newLab(t, func(w *world) {
		w.v, w.opt.Exec, w.opt.Destager = silent.v, silent.v, g
		w.a = newArray(w.v, w.r, 4096)
		w.cards = []*card{newCard(w.v, w.r, 1<<20)}
	})
	for at := uint64(0); at < 1024; at += 128 {
		silent.dirty(at, 8, 1)
	}
	silent.wait(func() bool { return len(silent.a.kept) == 2 })
	other.write(0, 8, 2)
	other.write(64, 8, 3)
	silent.v.RunUntil(silent.v.Now() + silentAfter + 1_000_000_000)
	if !other.d.clean() {
		t.Fatalf("the other disk is not destaged: %s", other.d.dump())
	}
	other.wantBelow(64, 8, 3)
	silent.path.open(block.OpWrite)
	silent.wait(silent.d.clean)
	silent.wantBelow(896, 8, 1)
	other.write(128, 8, 4)
	other.wait(other.d.clean)
	silent.v.RunUntil(silent.v.Now() + 2*silentAfter)
	if g.used != 0 || g.below != 0 || len(g.queue) != 0 || len(g.busy) != 0 || g.timer != nil {
		t.Errorf("%d slots are taken, %d below, %d wait, %d disks are busy", g.used, g.below, len(g.queue), len(g.busy))
	}
}
