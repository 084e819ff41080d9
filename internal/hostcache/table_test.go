package hostcache

import "testing"

// TestTableOfFewBits has tables whose entries leave few bits to distance and hash, as an index of up to
// two thousand million slots has: what they do not say the keys tell, and nothing else changes.
func TestTableOfFewBits(t *testing.T) {
	r := random(t)
	for _, slotBits := range []int{31, 30, 29, 26, 23, 20, 10} {
		ix, want := mustNew(Config{Policy: "lru", Capacity: 300}), &naive{}
		ix.table.split(slotBits)
		for i, k := range workload(r, 20000, 700) {
			if got := ix.Access(k, 0); got != want.access("lru", k, 300) {
				t.Fatalf("%d bits, reference %d: hit is %v", slotBits, i, got)
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
}
