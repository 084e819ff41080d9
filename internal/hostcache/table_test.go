package hostcache

import (
	"slices"
	"testing"
	"unsafe"
)

func TestBucketIsALine(t *testing.T) {
	if n := unsafe.Sizeof(bucket{}); n != bucketBytes {
		t.Fatalf("a bucket has %d bytes, want %d", n, bucketBytes)
	}
}

// TestMatches draws buckets with few different tags and looks for each: places that match are among
// those returned, and the first one does match.
func TestMatches(t *testing.T) {
	r := random(t)
	for range 20000 {
		var b bucket
		kinds := uint8(1 + r.IntN(5))
		for n := range b.tags {
			b.tags[n] = uint8(r.IntN(int(kinds)))
		}
		for want := range kinds + 2 {
			var got []int
			for m := b.matches(want); m != 0; m &= m - 1 {
				got = append(got, place(m))
			}
			if len(got) > 0 && b.tags[got[0]] != want {
				t.Fatalf("tag %d in %v: first at %d", want, b.tags, got[0])
			}
			for n, v := range b.tags {
				if v == want && !slices.Contains(got, n) {
					t.Fatalf("tag %d in %v: %v", want, b.tags, got)
				}
			}
		}
	}
}

// TestTableThatCollides gives a cache keys whose homes are two of its buckets, the last one and another:
// most go to another bucket, also over the end of the table. Of two buckets, either is full at times,
// so that both count keys behind them: look-ups in vain end nevertheless.
func TestTableThatCollides(t *testing.T) {
	for _, capacity := range []int64{18, 300} {
		tableThatCollides(t, capacity)
	}
}

func tableThatCollides(t *testing.T, capacity int64) {
	r := random(t)
	ix, want := mustNew(Config{Policy: "lru", Capacity: capacity}), &naive{}
	var keys []Key
	n := len(ix.table.buckets)
	for len(keys) < int(2*capacity) {
		k := Key(r.Uint64())
		if at := ix.table.home(hash(k)); at == n-1 || at == max(n-4, 0) {
			keys = append(keys, k)
		}
	}
	for i, n := range workload(r, 20000, len(keys)) {
		k := keys[int(n)%len(keys)]
		if got := ix.Access(k, 0); got != want.access("lru", k, int(capacity)) {
			t.Fatalf("reference %d: hit is %v", i, got)
		}
		if r.IntN(50) == 0 {
			j := r.IntN(len(want.keys))
			ix.Drop(ix.Lookup(want.keys[j]))
			want.keys = append(want.keys[:j], want.keys[j+1:]...)
		}
		if i%500 == 0 {
			verify(t, ix)
		}
	}
}

// TestLookupsAreShort fills tables with keys at distances that are powers of two, on one disk and on many:
// few keys are behind their home. Of random keys 0.06 are, with tables as full as these.
func TestLookupsAreShort(t *testing.T) {
	const blocks = 1 << 15
	for shift := range blockBits {
		for _, disks := range []int{1, 100} {
			ix := mustNew(Config{Policy: "lru", Capacity: blocks})
			for n := range blocks {
				ix.Access(MakeKey(uint16(n%disks), uint64(n/disks)<<shift), 0)
			}
			behind := uint32(0)
			for i := range ix.table.buckets {
				for _, n := range ix.table.buckets[i].over {
					behind += uint32(n)
				}
			}
			if share := float64(behind) / float64(ix.Len()); share > 0.25 {
				t.Errorf("blocks at distances of 2^%d on %d disks: %.2f buckets behind home", shift, disks, share)
			}
		}
	}
}
