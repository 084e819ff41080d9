package hostcache

import (
	"math"
	"math/rand/v2"
	"testing"
)

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

// TestTinyLFUTellsBlocksApart: when four times as many blocks as the cache has were referenced once, few of those that
// nobody referenced seem to have been, although the counters are eight bytes a block. With a byte for each, half of them do.
func TestTinyLFUTellsBlocksApart(t *testing.T) {
	const capacity, others = 10_000, 100_000
	var k sketch
	k.init(capacity)
	if n := len(k.counts) * 8; n > 9*capacity {
		t.Errorf("%d bytes for %d blocks", n, capacity)
	}
	for i := range Key(4 * capacity) {
		k.add(mix(i))
	}
	seem := 0
	for i := range Key(others) {
		if k.count(mix(1<<40+i)) > 0 {
			seem++
		}
	}
	if part := float64(seem) / others; part > 0.2 { // (1 - exp(-1))^4 = 0.16
		t.Errorf("%.1f %% of the blocks that nobody referenced seem to have been", 100*part)
	}
	for range 20 {
		k.add(mix(0))
	}
	if n := k.count(mix(0)); n != sketchMost {
		t.Errorf("a block that was referenced 21 times counts %d", n)
	}
}

// TestTinyLFUWindowClimbs: the window grows where blocks are referenced again soon and then never more, which a window of a
// hundredth misses; where some blocks are referenced more often than others, it costs little. The figures of a window that
// stays at a hundredth are 0.07 and 0.67.
func TestTinyLFUWindowClimbs(t *testing.T) {
	const capacity, refs = 1000, 400_000
	src := rand.New(rand.NewPCG(1, 2))
	for _, row := range []struct {
		name  string
		next  func(i int) Key
		hits  float64 // of the last three quarters, at least
		least int64   // blocks of the window
	}{
		{"recent", func(i int) Key {
			if i%2 == 0 {
				return Key(i / 2) // a new one
			}
			return Key(max(i/2-src.IntN(900), 0))
		}, 0.3, 400},
		{"frequent", func(int) Key { return Key(math.Exp(src.Float64() * math.Log(20_000))) }, 0.65, 10},
	} {
		ix := mustNew(Config{Policy: "w-tinylfu", Capacity: capacity})
		hits := 0
		for i := range refs {
			if ix.Access(row.next(i), 1) && i >= refs/4 {
				hits++
			}
		}
		window, part := ix.policy.(*tinyLFU).climb.window, float64(hits)/(refs*3/4)
		if t.Logf("%s: a window of %d blocks, %.2f hit", row.name, window, part); part < row.hits || window < row.least {
			t.Errorf("%s: a window of %d blocks, %.2f hit; want %d and %.2f", row.name, window, part, row.least, row.hits)
		}
	}
}
