package hostcache

// inCache is the state of resident blocks in policies with one list.
const inCache = 1

// lru evicts the block that was not referenced for longest.
type lru struct {
	ix       *Index
	capacity int64
}

func (p *lru) name() string                { return "lru" }
func (p *lru) ghosts(int64) int64          { return 0 }
func (p *lru) resize(capacity int64)       { p.capacity = capacity }
func (p *lru) hit(s uint32)                { p.ix.renew(s) }
func (p *lru) place(s uint32, state uint8) { p.ix.push(s, state) }
func (p *lru) drop(s uint32)               { p.ix.pull(s) }

func (p *lru) admit(_ Key, _ uint32, w int64) (uint8, bool) {
	for p.ix.used+w > p.capacity {
		v := p.ix.victim(inCache)
		if v == 0 {
			return 0, false
		}
		p.ix.expel(v)
	}
	return inCache, true
}

func (p *lru) order(r, g []uint32) ([]uint32, []uint32) { return p.ix.collect(r, inCache), g }

func (p *lru) adopt(resident, _ []uint32) int {
	for _, s := range resident {
		p.ix.setCount(s, 0)
		p.ix.push(s, inCache)
	}
	return 0
}

// fifo evicts the block that has been in the cache for longest.
type fifo struct{ lru }

func (p *fifo) name() string { return "fifo" }
func (p *fifo) hit(uint32)   {}

// clock is fifo with a second chance: a block that was referenced since it
// became the newest becomes the newest again in place of leaving.
type clock struct{ lru }

func (p *clock) name() string { return "clock" }
func (p *clock) hit(s uint32) { p.ix.bump(s, 1) }

func (p *clock) admit(_ Key, _ uint32, w int64) (uint8, bool) {
	for p.ix.used+w > p.capacity {
		v := p.ix.victim(inCache)
		if v == 0 {
			return 0, false
		}
		if p.ix.count(v) > 0 {
			p.ix.setCount(v, 0)
			p.ix.renew(v)
			continue
		}
		p.ix.expel(v)
	}
	return inCache, true
}

// sieve keeps the order of insertion. A hand goes from the oldest to the newest
// block and round again; it clears the marks of those referenced and evicts the
// first without (Zhang et al., NSDI 2024).
type sieve struct {
	lru
	hand uint32 // where it goes on; 0 is at the oldest
}

func (p *sieve) name() string { return "sieve" }
func (p *sieve) hit(s uint32) { p.ix.bump(s, 1) }

func (p *sieve) drop(s uint32) {
	if p.hand == s {
		p.hand = p.newer(s)
	}
	p.ix.pull(s)
}

// newer returns the next newer slot, or 0 behind the newest.
func (p *sieve) newer(s uint32) uint32 {
	if n := p.ix.nodes[s].prev; n >= numLists {
		return n
	}
	return 0
}

func (p *sieve) admit(_ Key, _ uint32, w int64) (uint8, bool) {
	ix := p.ix
	for ix.used+w > p.capacity {
		if ix.pinned == ix.resident {
			return 0, false
		}
		s := p.hand
		for {
			if s == 0 {
				s = ix.oldest(inCache)
			}
			if ix.meta[s]&pinMask == 0 {
				if ix.count(s) == 0 {
					break
				}
				ix.setCount(s, 0)
			}
			s = p.newer(s)
		}
		p.hand = p.newer(s)
		ix.expel(s)
	}
	return inCache, true
}

func (p *sieve) adopt(resident, ghosts []uint32) int {
	p.hand = 0
	return p.lru.adopt(resident, ghosts)
}
