package hostcache

// tinyLFU is W-TinyLFU (Einziger, Friedman and Manes, ACM ToS 2017): new blocks
// go through a small LRU window; one that leaves it takes the place of the main
// cache's victim only if a sketch says that it was referenced more often. The
// main cache is a segmented LRU. The window's share climbs towards more hits (Einziger, Eytan, Friedman
// and Manes, Middleware 2018).
type tinyLFU struct {
	ix                              *Index
	capacity, mainMax, protectedMax int64
	sketch                          sketch
	climb                           climber
}

const (
	lfuWindow    = 1
	lfuProbation = 2
	lfuProtected = 3
)

func (p *tinyLFU) name() string       { return "w-tinylfu" }
func (p *tinyLFU) ghosts(int64) int64 { return 0 }
func (p *tinyLFU) drop(s uint32)      { p.ix.pull(s) }

func (p *tinyLFU) resize(capacity int64) {
	p.capacity = capacity
	blocks := capacity
	if p.ix.cfg.Sized {
		blocks /= autoObject
	}
	p.sketch.init(blocks)
	p.climb.init(capacity, blocks)
	p.divide()
}

// divide shares the cache out between the window and the main cache.
func (p *tinyLFU) divide() {
	p.mainMax = p.capacity - p.climb.window
	p.protectedMax = p.mainMax - p.mainMax/5
}

// refer counts a reference for the climber.
func (p *tinyLFU) refer(hit bool) {
	if p.climb.see(hit) {
		p.divide()
	}
}

// shrinkProtected moves what is beyond the protected part's size to probation. After a change of that size it takes some
// calls, so that none takes long.
func (p *tinyLFU) shrinkProtected() {
	ix := p.ix
	for n := 0; n < climbMoves && ix.units[lfuProtected] > p.protectedMax && ix.blocks[lfuProtected] > 0; n++ {
		ix.move(ix.oldest(lfuProtected), lfuProbation)
	}
}

func (p *tinyLFU) hit(s uint32) {
	ix := p.ix
	p.refer(true)
	state := ix.meta[s] & stateMask
	if state == lfuWindow { // references that come close together count once
		ix.renew(s)
		return
	}
	p.sketch.refer(mix(ix.nodes[s].key))
	switch state {
	case lfuProbation:
		ix.move(s, lfuProtected)
		p.shrinkProtected()
	default:
		ix.renew(s)
	}
}

func (p *tinyLFU) admit(k Key, _ uint32, w int64) (uint8, bool) {
	ix := p.ix
	p.refer(false)
	p.sketch.refer(mix(k))
	for n := 0; n < climbMoves && ix.units[lfuProbation]+ix.units[lfuProtected] > p.mainMax; n++ {
		// The window has grown: what leaves the main cache next comes there.
		out := ix.victimOf(lfuProbation, lfuProtected)
		if out == 0 {
			break
		}
		ix.move(out, lfuWindow)
	}
	for ix.used+w > p.capacity {
		in := ix.victim(lfuWindow)
		if in != 0 && ix.units[lfuProbation]+ix.units[lfuProtected]+ix.weight(in) <= p.mainMax {
			p.toMain(in)
			continue
		}
		out := ix.victimOf(lfuProbation, lfuProtected)
		switch {
		case in == 0 && out == 0:
			return 0, false
		case in == 0:
			ix.expel(out)
		case out == 0 || p.sketch.count(mix(ix.nodes[in].key)) <= p.sketch.count(mix(ix.nodes[out].key)):
			ix.expel(in)
		default:
			ix.expel(out)
			ix.move(in, lfuProbation)
		}
	}
	return lfuWindow, true
}

// toMain moves a block from the window into a main cache that has room. It begins in probation however much is
// there: a block is protected for a reference, never for having come early.
func (p *tinyLFU) toMain(s uint32) { p.ix.move(s, lfuProbation) }

func (p *tinyLFU) place(s uint32, state uint8) { p.ix.push(s, state) }

func (p *tinyLFU) order(r, g []uint32) ([]uint32, []uint32) {
	return p.ix.collect(r, lfuProbation, lfuWindow, lfuProtected), g
}

func (p *tinyLFU) adopt(resident, _ []uint32) int {
	clear(p.sketch.counts)
	for i, s := range resident {
		// The sketch knows nothing yet: what would leave last counts more.
		p.sketch.add(mix(p.ix.nodes[s].key))
		if i > len(resident)/2 {
			p.sketch.add(mix(p.ix.nodes[s].key))
		}
		p.ix.setCount(s, 0)
		if p.ix.units[lfuProbation]+p.ix.weight(s) <= p.mainMax-p.protectedMax {
			p.ix.push(s, lfuProbation)
		} else if p.ix.units[lfuProtected]+p.ix.weight(s) <= p.protectedMax {
			p.ix.push(s, lfuProtected)
		} else {
			p.ix.push(s, lfuWindow)
		}
	}
	return 0
}

// climber finds the window's share of the cache. From time to time it changes the share by a step; if hits
// became fewer, it turns round. Steps become smaller, until the hits change by much.
type climber struct {
	capacity, window int64
	step             int64 // of the window, times climbScale
	period, left     int64 // references between two steps; until the next
	hits, was        int64 // in this period; in the one before, or -1
}

const (
	// climbPeriod is the references between two steps, for every block of the cache, climbStep the part of the cache of the
	// first step, climbDecay by how much each is smaller than the one before, in percent, and climbRestart which part of the
	// references has to hit more or less for a first step again. All are as published.
	climbPeriod  = 10
	climbStep    = 16
	climbDecay   = 98
	climbRestart = 20
	climbScale   = 1 << 10
	// climbMost is the largest window, in percent.
	climbMost = 80
	// climbMoves is how many blocks at most change lists with a reference because the window has changed: none takes long.
	climbMoves = 4
)

func (c *climber) init(capacity, blocks int64) {
	*c = climber{capacity: capacity, window: max(capacity/100, 1), period: max(climbPeriod*blocks, 64), was: -1}
	c.left, c.step = c.period, c.first()
}

func (c *climber) first() int64 { return max(c.capacity*climbScale/climbStep, climbScale) }

// see counts a reference, and reports whether the window has changed.
func (c *climber) see(hit bool) bool {
	if hit {
		c.hits++
	}
	if c.left--; c.left > 0 {
		return false
	}
	gain, begin := c.hits-c.was, c.was < 0
	c.was, c.hits, c.left = c.hits, 0, c.period
	if begin {
		return false // the cache was empty
	}
	if gain < 0 {
		c.step = -c.step
	}
	window := min(max(c.window+c.step/climbScale, max(c.capacity/100, 1)), max(c.capacity*climbMost/100, 1))
	changed := window != c.window
	c.window = window
	if max(gain, -gain) >= c.period/climbRestart {
		if first := c.first(); c.step < 0 {
			c.step = -first
		} else {
			c.step = first
		}
	} else {
		c.step = c.step * climbDecay / 100
	}
	return changed
}

// sketch counts references by hash, in four bits each: a count-min sketch with
// conservative update. All counts are halved from time to time, so that old ones fade.
type sketch struct {
	counts     []uint64 // sketchPerWord counters in each
	size, left int64    // references until the first halving; until the next
}

const (
	sketchRows = 4
	// sketchPerBlock counters for every block of the cache, in eight bytes: with fewer, blocks that collide look alike,
	// and one that nobody referenced before counts as much as what it would replace. With half of them it misses up to
	// 1.8 points more, most of all in large caches.
	sketchPerBlock = 16
	sketchPerWord  = 16
	// sketchPeriod is how many references are counted, for every block of the cache, misses among them,
	// until counts are halved first, and half as many after that. It and sketchMost are as published.
	sketchPeriod = 10
	// sketchMost is the highest count.
	sketchMost = 15
	// sketchHalf keeps from a word that is shifted by one what belongs to each counter.
	sketchHalf = 0x7777777777777777
)

func (k *sketch) init(blocks int64) {
	k.counts = make([]uint64, blocks*sketchPerBlock/sketchPerWord+8)
	k.size = sketchPeriod * blocks
	k.left = k.size
}

// cells returns the counters of a hash, one in each row. Rows share the counters.
func (k *sketch) cells(h uint64) (cells [sketchRows]int) {
	for row := range cells {
		cells[row] = reduce(uint32(h>>32)*0x9e3779b1+uint32(h)*uint32(2*row+1), len(k.counts)*sketchPerWord)
	}
	return cells
}

// reduce maps a hash to 0..n-1.
func reduce(h uint32, n int) int { return int(uint64(h) * uint64(n) >> 32) }

// at returns a counter.
func (k *sketch) at(cell int) uint8 {
	return uint8(k.counts[cell/sketchPerWord]>>(cell%sketchPerWord*4)) & sketchMost
}

func (k *sketch) least(cells *[sketchRows]int) uint8 {
	least := k.at(cells[0])
	for _, c := range cells[1:] {
		least = min(least, k.at(c))
	}
	return least
}

func (k *sketch) count(h uint64) uint8 {
	cells := k.cells(h)
	return k.least(&cells)
}

func (k *sketch) add(h uint64) {
	cells := k.cells(h)
	least := k.least(&cells)
	if least >= sketchMost {
		return
	}
	for _, c := range cells {
		if k.at(c) == least { // two rows may have the same one
			k.counts[c/sketchPerWord] += 1 << (c % sketchPerWord * 4)
		}
	}
}

// refer counts a reference, whether it hits or misses, and halves all counts when it is time.
func (k *sketch) refer(h uint64) {
	k.add(h)
	if k.left--; k.left > 0 {
		return
	}
	k.left = k.size / 2
	for i := range k.counts {
		k.counts[i] = k.counts[i] >> 1 & sketchHalf
	}
}
