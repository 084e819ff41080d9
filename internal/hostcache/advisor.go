package hostcache

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// AdvisorConfig bounds an [Advisor].
type AdvisorConfig struct {
	// Regions of 1 MiB that are followed at most; 0 is 1024. A disk that touches more is
	// sampled. Each takes about 40 KiB.
	Regions int
}

// Advisor watches the requests to one disk and says how large a cache of which block
// size would serve it, and where its partition begins.
//
// It follows LRU caches of all block sizes and all capacities at once, with validity by sector, in bounded
// memory: a hash picks regions of the disk, fewer when there are more (SHARDS with a fixed
// size: Waldspurger et al., FAST 2015). For every sector it keeps the smallest cache that still has it:
// the largest stack distance that its block has had since the sector was last referenced.
type Advisor struct {
	cfg           AdvisorConfig
	reads, writes int64
	starts        [MinBlockSectors]int64 // requests by first sector modulo 8
	early         []early                // until the phase is known
	views         []*view
}

// early is a request that came before the phase was known.
type early struct {
	r     block.Range
	write bool
}

const (
	regionSectors  = MaxBlockSectors
	defaultRegions = 1024
	// phaseAfter requests say whether the disk's partition is aligned.
	phaseAfter = 4096

	// Cache sizes are counted in steps, four to a doubling, from 64 KiB.
	stepsPerDouble = 4
	firstStep      = 64 << 10
	numSteps       = 128
	never          = 255 // no cache has it

	scaleOne = 1 << 16
)

// advisedBlocks are the block sizes in sectors: 4 KiB to 1 MiB.
var advisedBlocks = [...]int{8, 16, 32, 64, 128, 256, 512, 1024, 2048}

// view is the disk with one phase: block borders lie at it.
type view struct {
	phase   int
	limit   int
	below   uint64 // regions with a hash below it are followed; 0 is all
	scale   int64  // what a followed one stands for, times scaleOne
	ids     []uint64
	regions map[uint64]*region
	sims    [len(advisedBlocks)]sim
}

// region is 1 MiB of the disk: by block size, the step of every sector.
type region struct {
	steps [len(advisedBlocks)][regionSectors]uint8
}

// sim follows all LRU caches of one block size.
type sim struct {
	stack *lruStack
	reads int64           // pieces, weighted by what the sample stands for
	hits  [numSteps]int64 // reads that need a cache of this step
}

// NewAdvisor returns an Advisor of a disk.
func NewAdvisor(cfg AdvisorConfig) *Advisor {
	if cfg.Regions <= 0 {
		cfg.Regions = defaultRegions
	}
	return &Advisor{cfg: cfg}
}

// What an Advisor takes, about, in bytes: for each region, for each view without any, and for each early request.
const (
	regionMemory = 40 << 10
	viewMemory   = 128 << 10
	earlyMemory  = 32
)

// AdvisorMemory returns how many bytes an [Advisor] of so many regions takes at most, about.
func AdvisorMemory(regions int) int64 { return 2 * (viewMemory + int64(regions)*regionMemory) }

// Memory returns how many bytes the Advisor takes now, about.
func (a *Advisor) Memory() int64 {
	n := int64(len(a.early)) * earlyMemory
	for _, v := range a.views {
		n += viewMemory + int64(len(v.ids))*regionMemory
	}
	return n
}

// See is a request to the disk.
func (a *Advisor) See(r block.Range, write bool) {
	if r.Count == 0 {
		return
	}
	if write {
		a.writes++
	} else {
		a.reads++
	}
	a.starts[r.Start%MinBlockSectors]++
	if a.views != nil {
		a.feed(r, write)
		return
	}
	a.early = append(a.early, early{r, write})
	if len(a.early) == phaseAfter {
		a.begin()
	}
}

// begin makes the views that the phase asks for, and catches up.
func (a *Advisor) begin() {
	a.views = []*view{newView(0, a.cfg.Regions)}
	if p, _ := a.phase(); p != 0 {
		a.views = append(a.views, newView(p, a.cfg.Regions))
	}
	for _, e := range a.early {
		a.feed(e.r, e.write)
	}
	a.early = nil
}

// phase returns the commonest first sector modulo 8, and its share.
func (a *Advisor) phase() (int, float64) {
	best, sum := 0, int64(0)
	for p, n := range a.starts {
		sum += n
		if n > a.starts[best] {
			best = p
		}
	}
	return best, float64(a.starts[best]) / float64(max(sum, 1))
}

func (a *Advisor) feed(r block.Range, write bool) {
	for _, v := range a.views {
		// Addresses from the phase on; the first sectors of the disk are in region 0.
		first := r.Start + regionSectors - uint64(v.phase)
		for left := r.Count; left > 0; {
			n := min(left, regionSectors-first%regionSectors)
			v.see(first, int(n), write)
			first += n
			left -= n
		}
	}
}

func newView(phase, limit int) *view {
	v := &view{phase: phase, limit: limit, scale: scaleOne, regions: make(map[uint64]*region)}
	for i := range v.sims {
		v.sims[i].stack = newStack()
	}
	return v
}

// see is a piece of a request that lies in one region.
func (v *view) see(first uint64, n int, write bool) {
	id := first / regionSectors
	if v.below != 0 && regionHash(id) >= v.below {
		return
	}
	g := v.regions[id]
	if g == nil {
		g = new(region)
		for i := range g.steps {
			for s := range g.steps[i] {
				g.steps[i][s] = never
			}
		}
		v.regions[id] = g
		v.ids = append(v.ids, id)
	}
	for i := range v.sims {
		need := v.sims[i].see(first, n, advisedBlocks[i], &g.steps[i], v.scale)
		if write {
			continue
		}
		v.sims[i].reads += v.scale
		if need < numSteps {
			v.sims[i].hits[need] += v.scale
		}
	}
	if len(v.ids) > v.limit {
		v.thin()
	}
}

// see brings the stack and the sectors up to date and returns the step of the
// smallest cache in which all sectors of the piece were.
func (m *sim) see(first uint64, n, per int, steps *[regionSectors]uint8, scale int64) uint8 {
	need := uint8(0)
	at := int(first % regionSectors)
	for n > 0 {
		b := first / uint64(per)
		k := min(n, per-int(first%uint64(per)))
		if d := m.stack.touch(Key(b)); d != 0 {
			step := stepOf(int64(d) * scale / scaleOne * int64(per) * block.SectorSize)
			// What the block's other sectors need grows: they fall out with it.
			whole := steps[at/per*per:][:per]
			for i, s := range whole {
				whole[i] = max(s, step)
			}
		}
		for i := at; i < at+k; i++ {
			need = max(need, steps[i])
			steps[i] = 0
		}
		first += uint64(k)
		at += k
		n -= k
	}
	return need
}

// stepOf returns the first step whose cache size is not below.
func stepOf(bytes int64) uint8 {
	for s := uint8(max(0, bits.Len64(uint64(bytes)/firstStep)-1) * stepsPerDouble); ; s++ {
		if s >= numSteps-1 || StepBytes(int(s)) >= bytes {
			return min(s, numSteps-1)
		}
	}
}

// quarters of a doubling, times 2^16: 2^(i/4).
var quarters = [stepsPerDouble]int64{65536, 77936, 92682, 110218}

// StepBytes returns the cache size of a step of a [Curve].
func StepBytes(step int) int64 {
	return firstStep / 65536 * quarters[step%stepsPerDouble] << (step / stepsPerDouble)
}

// regionHash orders the regions for the sample.
func regionHash(id uint64) uint64 { return mix(Key(id) ^ 0x5851f42d4c957f2d) }

// thin drops the eighth of the regions with the largest hashes.
func (v *view) thin() {
	slices.SortFunc(v.ids, func(a, b uint64) int { return cmp.Compare(regionHash(a), regionHash(b)) })
	keep := v.limit - v.limit/8
	v.below = regionHash(v.ids[keep])
	scale, _ := bits.Div64(scaleOne, 0, v.below)
	v.scale = int64(scale)
	for _, id := range v.ids[keep:] {
		delete(v.regions, id)
		for i, per := range advisedBlocks {
			first := id * regionSectors / uint64(per)
			for b := range uint64(regionSectors / per) {
				v.sims[i].stack.drop(Key(first + b))
			}
		}
	}
	v.ids = v.ids[:keep]
}
