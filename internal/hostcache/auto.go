package hostcache

import "math/bits"

// auto follows the policy that does best on a sample. A hash picks blocks, the
// same ones for all candidates; each candidate runs a shadow cache, smaller by the
// rate of the sample, on the references to them (SHARDS: Waldspurger et al., FAST 2015).
//
// To change the policy has a price: what is resident was chosen by the other
// one, so up to a cache full of misses is lost. Hence a candidate takes over when
// it has saved as many as that on its sample, counted from the moment when it was
// last level with the policy at work. So short advantages do not matter, and what is lost against
// the best candidate is bounded by a few cache fulls for every time that the workload changes.
type auto struct {
	ix      *Index
	cur     int
	live    []policy
	shadows []shadow
	shift   uint  // one in 1<<shift blocks is sampled
	left    int64 // sampled references until the next comparison
	every   int64
}

// shadow is a candidate on the sample.
type shadow struct {
	ix     *Index
	misses int64 // units missed since the last comparison
	saved  int64 // against the policy at work
}

// autoCandidates begins with the one that is safest before anything is known.
var autoCandidates = []string{"s3-fifo", "lru", "2q", "arc", "lirs", "w-tinylfu", "sieve", "lfu"}

const (
	// autoShadow is the blocks that a shadow cache holds at least, if the cache
	// does: fewer are too noisy, more cost memory.
	autoShadow = 512
	// autoObject is the size that objects are taken to have when the sample is chosen.
	autoObject = 16 << 10
)

func newAuto(ix *Index) *auto {
	p := &auto{ix: ix}
	for _, name := range autoCandidates {
		q, err := newPolicy(name, ix)
		if err != nil {
			panic("hostcache: internal error: " + err.Error())
		}
		p.live = append(p.live, q)
	}
	return p
}

func (p *auto) name() string { return p.live[p.cur].name() }

func (p *auto) ghosts(capacity int64) int64 {
	n := int64(0)
	for _, q := range p.live {
		n = max(n, q.ghosts(capacity))
	}
	return n
}

func (p *auto) resize(capacity int64) {
	for _, q := range p.live {
		q.resize(capacity)
	}
	p.shift = sampleShift(capacity, autoShadow, p.ix.cfg.Sized)
	p.shadows = make([]shadow, len(p.live))
	for i, name := range autoCandidates {
		p.shadows[i].ix = mustNew(Config{Policy: name, Capacity: max(capacity>>p.shift, 1), Sized: p.ix.cfg.Sized})
	}
	p.every = max(min(capacity>>p.shift, autoShadow)/16, 4)
	p.left = p.every
}

// mustNew makes an Index of a configuration that is known to be right.
func mustNew(cfg Config) *Index {
	ix, err := New(cfg)
	if err != nil {
		panic("hostcache: internal error: " + err.Error())
	}
	return ix
}

// sampleShift returns how thin a sample can be so that a cache of this capacity
// becomes one of at least so many blocks.
func sampleShift(capacity, blocks int64, sized bool) uint {
	if sized {
		capacity /= autoObject
	}
	if capacity <= blocks {
		return 0
	}
	return uint(bits.Len64(uint64(capacity/blocks))) - 1
}

// sampled tells whether a block is in the sample of one in 1<<shift. The hash is
// another one than that of the table.
func sampled(k Key, shift uint) bool {
	return mix(k^0x5851f42d4c957f2d)>>(64-shift) == 0
}

// see is a reference to a block, hit or not.
func (p *auto) see(k Key, w int64) {
	if !sampled(k, p.shift) {
		return
	}
	for i := range p.shadows {
		if s := &p.shadows[i]; !s.ix.Access(k, uint32(w)) {
			s.misses += w
		}
	}
	if p.left--; p.left == 0 {
		p.left = p.every
		p.compare()
	}
}

func (p *auto) compare() {
	misses, best := p.shadows[p.cur].misses, p.cur
	for i := range p.shadows {
		s := &p.shadows[i]
		s.saved = max(0, s.saved+misses-s.misses)
		s.misses = 0
		if s.saved > p.shadows[best].saved {
			best = i
		}
	}
	if p.shadows[best].saved < p.shadows[best].ix.capacity || best == p.cur {
		return
	}
	for i := range p.shadows {
		p.shadows[i].saved = 0
	}
	p.follow(best)
}

// follow hands all slots to another candidate.
func (p *auto) follow(next int) {
	ix := p.ix
	resident, ghosts := p.live[p.cur].order(nil, nil)
	ix.emptyLists()
	kept := p.live[next].adopt(resident, ghosts)
	for _, g := range ghosts[:len(ghosts)-kept] {
		ix.release(g)
	}
	p.cur = next
	ix.stats.Switches++
}

func (p *auto) hit(s uint32) {
	p.see(p.ix.nodes[s].key, p.ix.weight(s))
	p.live[p.cur].hit(s)
}

func (p *auto) admit(k Key, g uint32, w int64) (uint8, bool) {
	return p.live[p.cur].admit(k, g, w)
}

// place comes before see: what see makes of the lists must hold the new slot.
func (p *auto) place(s uint32, state uint8) {
	p.live[p.cur].place(s, state)
	p.see(p.ix.nodes[s].key, p.ix.weight(s))
}

func (p *auto) drop(s uint32) { p.live[p.cur].drop(s) }

func (p *auto) order(r, g []uint32) ([]uint32, []uint32) { return p.live[p.cur].order(r, g) }
func (p *auto) adopt(r, g []uint32) int                  { return p.live[p.cur].adopt(r, g) }
