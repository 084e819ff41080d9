package hostcache

import "testing"

// TestTinyLFUProtectsWhatIsReferenced: what fills an empty main cache is on probation, as published, and gives way to blocks
// that are referenced again. Were it protected, a cache would be full of what came first for a long time.
func TestTinyLFUProtectsWhatIsReferenced(t *testing.T) {
	const capacity, loop, rounds = 1000, 600, 4
	filled := func(n Key) *Index {
		ix := mustNew(Config{Policy: "w-tinylfu", Capacity: capacity})
		for k := range n {
			ix.Access(1<<20+k, 1)
		}
		return ix
	}
	ix := filled(2 * capacity) // the first of these leave the window when the cache is full
	if n := ix.blocks[lfuProtected]; n > 0 {
		t.Errorf("%d blocks are protected, and none was referenced twice", n)
	}
	ix = filled(capacity)
	misses := make([]int, rounds)
	for r := range misses {
		for k := range Key(loop) {
			if !ix.Access(k, 1) {
				misses[r]++
			}
		}
	}
	t.Logf("misses of a loop of %d blocks by round: %v", loop, misses)
	if third := misses[2]; third > loop/3 {
		t.Errorf("in the third round %d of %d blocks still miss", third, loop)
	}
}
