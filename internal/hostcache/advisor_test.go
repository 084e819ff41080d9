package hostcache

import (
	"math"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// vmLike is a stream of requests with a hot part, runs, and partial blocks.
func vmLike(t *testing.T, n, blocks int, phase uint64, fn func(r block.Range, write bool)) {
	r := random(t)
	for range n {
		// Hot places are spread over the disk.
		start := 8 * (uint64(float64(blocks)*r.Float64()*r.Float64()*r.Float64()) * 7919 % uint64(blocks))
		count := uint64(8)
		switch r.IntN(4) {
		case 0:
			count = 8 * uint64(1+r.IntN(64))
		case 1:
			count = uint64(1 + r.IntN(8))
		}
		fn(block.Range{Start: start + phase, Count: count}, r.IntN(3) == 0)
	}
}

// TestAdvisorIsExact: without sampling, a curve says what a cache of that size
// and block size hits, for every step.
func TestAdvisorIsExact(t *testing.T) {
	type req struct {
		r     block.Range
		write bool
	}
	var reqs []req
	vmLike(t, 5000, 40000, 0, func(r block.Range, write bool) {
		// One region each: the advisor counts what crosses a border as two.
		if r.Start/regionSectors == (r.End()-1)/regionSectors {
			reqs = append(reqs, req{r, write})
		}
	})
	a := NewAdvisor(AdvisorConfig{})
	for _, q := range reqs {
		a.See(q.r, q.write)
	}
	adv := a.Advice()
	if adv.Sampled != 1 {
		t.Fatalf("a small disk was sampled: %g", adv.Sampled)
	}
	for _, c := range adv.Curves {
		if c.Phase != 0 {
			t.Fatalf("phase %d of requests that are aligned", c.Phase)
		}
		per := c.BlockSectors
		for step := 4; step < len(c.Hits); step += 3 {
			capacity := StepBytes(step) / int64(per) / block.SectorSize
			if capacity == 0 {
				continue
			}
			ix := mustNew(Config{Policy: "lru", Capacity: capacity, BlockSectors: per})
			reads, hits := 0, 0
			for _, q := range reqs {
				hit := true
				for s, end := q.r.Start, q.r.End(); s < end; {
					first := int(s % uint64(per))
					n := min(per-first, int(end-s))
					k := MakeKey(0, s/uint64(per))
					slot := ix.Lookup(k)
					if slot == None {
						hit = false
						slot = ix.Insert(k)
					} else {
						hit = hit && ix.Valid(slot, first, n)
						ix.Touch(slot)
					}
					ix.SetValid(slot, first, n)
					s += uint64(n)
				}
				if !q.write {
					reads++
					if hit {
						hits++
					}
				}
			}
			// A request larger than the cache evicts its own blocks: there the index may have less.
			if got, want := c.Hits[step], float64(hits)/float64(reads); math.Abs(got-want) > 0.0005 && capacity > 64 || got < want-1e-9 {
				t.Errorf("%d sectors a block, %d blocks: %.5f hits, a cache has %.5f", per, capacity, got, want)
			}
		}
	}
}

func TestAdvisorSamples(t *testing.T) {
	whole, part := NewAdvisor(AdvisorConfig{}), NewAdvisor(AdvisorConfig{Regions: 150})
	vmLike(t, 25000, 100000, 0, func(r block.Range, write bool) {
		whole.See(r, write)
		part.See(r, write)
	})
	w, p := whole.Advice(), part.Advice()
	if p.Sampled > 0.5 || len(part.views[0].ids) > 150 {
		t.Fatalf("a share of %g is followed, %d regions", p.Sampled, len(part.views[0].ids))
	}
	for i := range w.Curves {
		for s := range w.Curves[i].Hits {
			b := StepBytes(s)
			below, above := p.Curves[i].At(b*3/4), p.Curves[i].At(b*4/3)
			if got := w.Curves[i].At(b); got < below-0.03 || got > above+0.03 {
				t.Errorf("%d sectors a block: %.3f hits at %d bytes, the sample says %.3f to %.3f nearby", w.Curves[i].BlockSectors, got, b, below, above)
			}
		}
	}
}

func TestAdvicePhase(t *testing.T) {
	a := NewAdvisor(AdvisorConfig{})
	vmLike(t, 8000, 40000, 63, a.See)
	adv := a.Advice()
	if adv.Phase != 7 || adv.Aligned < 0.9 {
		t.Errorf("phase %d of %.2f, want 7", adv.Phase, adv.Aligned)
	}
	if c := adv.Curves[0]; c.Phase != 7 {
		t.Errorf("4 KiB blocks begin at %d, want 7", c.Phase)
	}
	small := NewAdvisor(AdvisorConfig{})
	small.See(block.Range{Start: 1, Count: 8}, false)
	if adv := small.Advice(); adv.Size() != 0 || adv.Reads != 1 {
		t.Errorf("advice from one read: %d bytes", adv.Size())
	}
}

func TestSplit(t *testing.T) {
	hot, cold, scan := NewAdvisor(AdvisorConfig{}), NewAdvisor(AdvisorConfig{}), NewAdvisor(AdvisorConfig{})
	r := random(t)
	for i := range uint64(30000) {
		hot.See(block.Range{Start: 8 * uint64(r.IntN(1000)), Count: 8}, false)
		if i%10 == 0 {
			cold.See(block.Range{Start: 8 * uint64(r.IntN(1000)), Count: 8}, false)
		}
		scan.See(block.Range{Start: 8 * i, Count: 8}, false)
	}
	disks := []Advice{hot.Advice(), cold.Advice(), scan.Advice()}
	got := Split(disks, 5<<20)
	if got[0] < 3<<20 || got[0] > 5<<20 || got[1] > got[0] || got[2] != 0 || got[0]+got[1]+got[2] > 5<<20 {
		t.Errorf("5 MiB are split into %v: want the hot disk's 4 MiB first and nothing for the scan", got)
	}
	got = Split(disks, 1<<30)
	if got[0] < 3<<20 || got[1] < 3<<20 || got[2] != 0 {
		t.Errorf("1 GiB is split into %v", got)
	}
}

func TestStackDistance(t *testing.T) {
	s := newStack()
	var order []Key // newest last
	for _, k := range workload(random(t), 6000, 300) {
		want := int32(0)
		for i := len(order) - 1; i >= 0; i-- {
			if order[i] == k {
				want = int32(len(order) - i)
				order = append(order[:i], order[i+1:]...)
				break
			}
		}
		order = append(order, k)
		if got := s.touch(k); got != want {
			t.Fatalf("distance %d, want %d", got, want)
		}
		if k%97 == 0 {
			s.drop(k)
			order = order[:len(order)-1]
		}
	}
}
