package tier

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestBuffers: no two that are in use share memory, the limit holds, what is kept is bounded, and what was given back
// is used again.
func TestBuffers(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 4))
	const unit, limit = 4 << 10, 2 << 20
	b := newBuffers(unit/512, false)
	var used [][]byte
	for i := range 5000 {
		if k := len(used); k > 0 && r.IntN(2) == 0 {
			j := r.IntN(k)
			for _, x := range used[j] {
				if x != used[j][0] {
					t.Fatalf("step %d: somebody else wrote into a buffer", i)
				}
			}
			b.give(used[j])
			used[j] = used[k-1]
			used = used[:k-1]
			continue
		}
		n := uint64(1 + r.IntN(1<<r.IntN(21)))
		full := b.inUse+n > limit
		p := b.take(n, limit)
		if (p == nil) != full {
			t.Fatalf("step %d: %d bytes beside %d in use", i, n, b.inUse)
		}
		if p == nil {
			continue
		}
		if uint64(len(p)) != n {
			t.Fatalf("step %d: %d bytes of %d", i, len(p), n)
		}
		for j := range p {
			p[j] = byte(i)
		}
		used = append(used, p)
	}
	for _, p := range used {
		b.give(p)
	}
	if b.inUse != 0 || b.kept == 0 || b.kept > keptBuffers {
		t.Errorf("%d bytes in use, %d kept", b.inUse, b.kept)
	}
	if n := testing.AllocsPerRun(100, func() { b.give(b.take(5*unit, limit)) }); n > 0 {
		t.Errorf("%v allocations for a buffer like one that was given back", n)
	}
}

// TestBuffersWithoutPayload: all have the same bytes, and what is in use is counted all the same.
func TestBuffersWithoutPayload(t *testing.T) {
	b := newBuffers(1, true)
	x, y := b.take(512, 4096), b.take(3584, 4096)
	if len(x) != 512 || len(y) != 3584 || b.take(1, 4096) != nil {
		t.Fatalf("%d and %d bytes, and more", len(x), len(y))
	}
	if b.gather(y, [][]byte{{1, 2, 3}}, 0); y[0] != 0 {
		t.Error("it copies what nobody looks at")
	}
	if b.give(x); b.inUse != 3584 || b.take(512, 4096) == nil {
		t.Errorf("%d bytes in use", b.inUse)
	}
}
