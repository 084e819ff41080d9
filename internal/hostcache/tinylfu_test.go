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

// TestTinyLFUAgesByReferences: what was referenced often fades while all references are to other blocks and miss.
func TestTinyLFUAgesByReferences(t *testing.T) {
	const capacity, hot = 1000, Key(7)
	ix := mustNew(Config{Policy: "w-tinylfu", Capacity: capacity})
	for k := range Key(2 * capacity) {
		ix.Access(1<<20+k, 1)
		if k%50 == 0 { // it has left the window by then
			ix.Access(hot, 1)
		}
	}
	p := ix.policy.(*tinyLFU)
	was := p.sketch.count(mix(hot))
	for k := range Key(sketchPeriod * capacity) {
		if ix.Access(1<<30+k, 1) {
			t.Fatalf("block %d is there before it was referenced", k)
		}
	}
	if now := p.sketch.count(mix(hot)); was < 8 || now > was/2+2 {
		t.Errorf("after %d misses the count is %d, and was %d", sketchPeriod*capacity, now, was)
	}
}
