package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestReadCacheIsLRU compares the cache with a slice, oldest first: chunks of many media, side by side
// and far apart, in tables that are half full.
func TestReadCacheIsLRU(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	for _, limit := range []int{1, 3, 8, 100, 700, 3 * firstChunks} {
		c, want := newReadCache(limit, 1), []uint64(nil)
		for i := range 20000 {
			key := uint64(r.IntN(3))<<44 | uint64(r.IntN(4))<<40 | uint64(float64(3*limit)*r.Float64()*r.Float64())
			at := slices.Index(want, key)
			if got := c.touch(key>>44, key&(1<<44-1)*chunkBytes, 4096); got != (at >= 0) {
				t.Fatalf("limit %d, reference %d to %x: hit is %v", limit, i, key, got)
			}
			switch {
			case at >= 0:
				want = slices.Delete(want, at, at+1)
			case len(want) == limit:
				want = want[1:]
			}
			want = append(want, key)
		}
	}
}

// TestReadCacheGrows: a cache has memory for what was touched, and not for all that it could have.
func TestReadCacheGrows(t *testing.T) {
	c := newReadCache(1<<20, 1)
	for chunk := range uint64(10 * firstChunks) {
		if n := max(2*chunk, firstChunks) + 2; uint64(cap(c.nodes)) > n || uint64(len(c.slots)) > 4*n {
			t.Fatalf("with %d chunks the cache has room for %d, and %d slots", chunk, cap(c.nodes), len(c.slots))
		}
		c.touch(1, chunk*chunkBytes, 1)
	}
}

// BenchmarkReadCacheMiss is a cache of 32 GiB that misses three times in four.
func BenchmarkReadCacheMiss(b *testing.B) {
	c := newReadCache(1<<19, 1)
	r := rand.New(rand.NewPCG(1, 2))
	touch := func(n int) {
		for range n {
			c.touch(1, r.Uint64N(1<<21)*chunkBytes, 4096)
		}
	}
	touch(1 << 20)
	b.ResetTimer()
	touch(b.N)
}
