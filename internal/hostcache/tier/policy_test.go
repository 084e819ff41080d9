package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestQuiesceThatEndsBeforeItIsClean: who waits for it hears that there is none, when its time is
// over or its token is given back, and one that is clean in time is not touched by that.
func TestQuiesceThatEndsBeforeItIsClean(t *testing.T) {
	for _, how := range []string{"its time is over", "it is given back"} {
		t.Run(how, func(t *testing.T) {
			l := newLab(t, withoutDestager)
			l.dirty(0, 8, 1)
			var heard []uint64
			var longer uint64
			l.d.Quiesce(1_000_000_000, func(token uint64) { heard = append(heard, token) })
			l.d.Quiesce(1e15, func(token uint64) { longer = token })
			if how == "it is given back" {
				l.d.Resume(1)
				l.v.RunUntil(l.v.Now() + 1_000)
			} else {
				l.v.RunUntil(l.v.Now() + 999_000_000)
				if len(heard) > 0 {
					t.Fatalf("tokens %v before anything is clean", heard)
				}
				l.v.RunUntil(l.v.Now() + 1_001_000)
			}
			if len(heard) != 1 || heard[0] != 0 {
				t.Fatalf("who waits has heard %v, want 0: there is no such token", heard)
			}
			l.destages()
			l.wait(func() bool { return longer != 0 })
			l.wantBelow(0, 8, 1)
			l.v.RunUntil(l.v.Now() + 2_000_000_000)
			if len(heard) != 1 || longer != 2 || !l.d.Resume(longer) {
				t.Errorf("heard %v and %d", heard, longer)
			}
			delete(l.a.gate, block.OpWrite)
		})
	}
}
