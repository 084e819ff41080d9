package nvlog

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestUnsureRanges: of every sector that was changed behind the last sure record it is known, however many there are; and
// of none else as long as the marks suffice.
func TestUnsureRanges(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+40; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		var u Unsure
		noted := map[block.Range]bool{}
		last, sure, coarse := map[uint64]uint64{}, uint64(0), uint64(0)
		step := 1 + r.Uint64N(20) // of sure, one in so many
		for seq := uint64(1); seq < 2000; seq++ {
			g := block.Range{Start: r.Uint64N(4000), Count: 1 + r.Uint64N(12)}
			if len(u.marks) == maxMarks {
				coarse = seq
			}
			u.Note(g, seq, sure)
			noted[g] = true
			for s := range g.Count {
				last[g.Start+s] = seq
			}
			if len(u.marks) > maxMarks {
				t.Fatalf("seed %d: %d marks", seed, len(u.marks))
			}
			if r.Uint64N(40*step) == 0 {
				sure += r.Uint64N(seq - sure + 1)
			}
			g = block.Range{Start: r.Uint64N(4000), Count: 1 + r.Uint64N(12)}
			want := false
			for s := range g.Count {
				want = want || last[g.Start+s] > sure
			}
			if got := u.Has(g, sure); want && !got || got && !want && coarse <= sure && !merged(&u, g, noted) {
				t.Fatalf("seed %d, record %d, sure %d: %v is unsure: %v, want %v", seed, seq, sure, g, got, want)
			}
		}
	}
}

// merged reports whether a range meets a mark of several records, which is told as one of the newest.
func merged(u *Unsure, g block.Range, noted map[block.Range]bool) bool {
	for _, m := range u.marks {
		if m.Overlaps(g) && !noted[m.Range] {
			return true
		}
	}
	return false
}
