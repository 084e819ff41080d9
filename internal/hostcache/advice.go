package hostcache

// Curve is the share of a disk's reads that caches of one block size hit.
type Curve struct {
	BlockSectors int
	// Phase is the sector, modulo 8, at which blocks begin.
	Phase int
	// Hits by step (see [StepBytes]), up to the first step beyond which nothing is gained.
	Hits []float64
}

// At returns the hits of a cache of so many bytes.
func (c *Curve) At(bytes int64) float64 {
	hits := 0.0
	for s, h := range c.Hits {
		if StepBytes(s) > bytes {
			break
		}
		hits = h
	}
	return hits
}

// Advice is what an [Advisor] has found out.
type Advice struct {
	Reads, Writes int64
	// Phase is the first sector, modulo 8, of most requests, and Aligned their
	// share. A phase that is not 0 comes from a partition that does not begin at a multiple of 4 KiB.
	Phase   int
	Aligned float64
	// Sampled is the share of the disk that was followed.
	Sampled float64
	// Curves by block size, with the better phase.
	Curves []Curve
}

// Reach is the share of the hits of an unlimited cache that a recommended size reaches.
const Reach = 0.95

// nearly is how many hits (a share of all reads) a larger block may cost: it takes less memory.
const nearly = 0.005

// Advice returns what is known now.
func (a *Advisor) Advice() Advice {
	if a.views == nil {
		a.begin()
	}
	adv := Advice{Reads: a.reads, Writes: a.writes, Sampled: scaleOne / float64(a.views[0].scale)}
	adv.Phase, adv.Aligned = a.phase()
	for i := range advisedBlocks {
		best := a.views[0].curve(i)
		if len(a.views) > 1 {
			if c := a.views[1].curve(i); c.sum() > best.sum() {
				best = c
			}
		}
		adv.Curves = append(adv.Curves, best)
	}
	return adv
}

// sum adds up the hits of all steps.
func (c *Curve) sum() float64 {
	sum := 0.0
	for _, h := range c.Hits {
		sum += h
	}
	return sum + float64(numSteps-len(c.Hits))*c.Hits[len(c.Hits)-1]
}

func (v *view) curve(i int) Curve {
	m := &v.sims[i]
	c := Curve{BlockSectors: advisedBlocks[i], Phase: v.phase}
	last := 0
	for s, n := range m.hits {
		if n > 0 {
			last = s
		}
	}
	sum := int64(0)
	for _, n := range m.hits[:last+1] {
		sum += n
		c.Hits = append(c.Hits, float64(sum)/float64(max(m.reads, 1)))
	}
	return c
}

// Best returns the curve with the most hits in a cache of so many bytes: of
// those that are nearly as good, the one with the largest blocks.
func (a *Advice) Best(bytes int64) *Curve {
	top := 0.0
	for i := range a.Curves {
		top = max(top, a.Curves[i].At(bytes))
	}
	best := &a.Curves[0]
	for i := range a.Curves {
		if a.Curves[i].At(bytes) >= top-nearly {
			best = &a.Curves[i]
		}
	}
	return best
}

// Size returns the smallest cache that reaches nearly all hits that any cache
// can, 0 if no cache hits at all.
func (a *Advice) Size() int64 {
	top := a.ceiling()
	for s := range numSteps {
		if b := StepBytes(s); top > 0 && a.Best(b).At(b) >= Reach*top {
			return b
		}
	}
	return 0
}

func (a *Advice) ceiling() float64 {
	top := 0.0
	for i := range a.Curves {
		if h := a.Curves[i].Hits; len(h) > 0 {
			top = max(top, h[len(h)-1])
		}
	}
	return top
}

// Split divides a flash device among disks so that the most reads hit: again and
// again, the step that gains the most reads a byte is taken. It returns bytes by disk.
func Split(disks []Advice, budget int64) []int64 {
	out := make([]int64, len(disks))
	for {
		best, gain, take := -1, 0.0, int64(0)
		for i := range disks {
			a := &disks[i]
			have := a.Best(out[i]).At(out[i])
			for s := range numSteps {
				b := StepBytes(s)
				if b <= out[i] {
					continue
				}
				if b-out[i] > budget {
					break
				}
				g := (a.Best(b).At(b) - have) * float64(a.Reads) / float64(b-out[i])
				if g > gain*(1+1e-9) {
					best, gain, take = i, g, b-out[i]
				}
			}
		}
		if best < 0 {
			return out
		}
		out[best] += take
		budget -= take
	}
}
