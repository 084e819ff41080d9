package hostcache

// lirs is LIRS (Jiang and Zhang, SIGMETRICS 2002). Blocks of low inter-reference
// recency (LIR) fill nearly all of the cache. The others (HIR) are resident in a small
// queue Q. A stack S orders by recency all LIR blocks and those HIR blocks, resident or
// not, that are younger than its oldest LIR block; one that is referenced while on S becomes LIR.
//
// S is made of the links of the Index. Q has nodes of its own: it is a hundredth.
type lirs struct {
	ix       *Index
	capacity int64
	lirMax   int64
	q        slotQueue
	scan     uint32 // below it on S there is hardly a ghost; 0 is at the oldest
}

const (
	lirsStack = 1 // list S; also the state of LIR blocks
	lirsBoth  = 2 // HIR, on S and Q
	lirsQ     = 3 // HIR, on Q only
	lirsGhost = firstGhost
)

func (p *lirs) name() string                { return "lirs" }
func (p *lirs) ghosts(capacity int64) int64 { return capacity }

func (p *lirs) resize(capacity int64) {
	hir := max(capacity/100, 1)
	p.capacity, p.lirMax = capacity, capacity-hir
	if p.ix.cfg.Sized {
		hir = 0
	}
	p.q.init(hir)
}

// offStack takes a slot from S.
func (p *lirs) offStack(s uint32) {
	if p.scan == s {
		p.scan = p.younger(s)
	}
	p.ix.unlink(s)
}

func (p *lirs) younger(s uint32) uint32 {
	if n := p.ix.nodes[s].prev; n >= numLists {
		return n
	}
	return 0
}

func (p *lirs) hit(s uint32) {
	ix := p.ix
	switch ix.meta[s] & stateMask {
	case lirsStack:
		if ix.newest(lirsStack) == s {
			return
		}
		p.offStack(s)
		ix.linkNewest(lirsStack, s)
		p.prune()
	case lirsBoth:
		p.offStack(s)
		p.q.remove(s)
		ix.exit(s)
		ix.enter(s, lirsStack)
		ix.linkNewest(lirsStack, s)
		p.shrinkLIR(0)
		p.prune()
	default:
		ix.exit(s)
		ix.enter(s, lirsBoth)
		ix.linkNewest(lirsStack, s)
		p.q.remove(s)
		p.q.push(s)
	}
}

// prune keeps a LIR block at the old end of S.
func (p *lirs) prune() {
	ix := p.ix
	for {
		s := ix.oldest(lirsStack)
		switch ix.meta[s] & stateMask {
		case lirsBoth:
			p.offStack(s)
			ix.exit(s)
			ix.enter(s, lirsQ)
		case lirsGhost:
			p.offStack(s)
			ix.exit(s)
			ix.release(s)
		default: // LIR, or the head of the empty list
			return
		}
	}
}

// shrinkLIR makes room for w units among the LIR blocks.
func (p *lirs) shrinkLIR(w int64) {
	for p.ix.units[lirsStack]+w > p.lirMax && p.ix.blocks[lirsStack] > 0 {
		p.demoteLIR()
	}
}

// demoteLIR makes the oldest LIR block the newest of Q; there is one.
func (p *lirs) demoteLIR() {
	ix := p.ix
	p.prune() // S may have been without a LIR block, and may be so again
	s := ix.oldest(lirsStack)
	p.offStack(s)
	ix.exit(s)
	ix.enter(s, lirsQ)
	p.q.push(s)
	p.prune()
}

func (p *lirs) admit(_ Key, g uint32, w int64) (uint8, bool) {
	ix := p.ix
	if g != 0 {
		p.offStack(g)
		ix.exit(g)
		ix.release(g)
	}
	for ix.used+w > p.capacity {
		for ix.pinnedIn[lirsBoth]+ix.pinnedIn[lirsQ] == ix.blocks[lirsBoth]+ix.blocks[lirsQ] {
			if ix.blocks[lirsStack] == 0 {
				return 0, false
			}
			p.demoteLIR()
		}
		p.evictHIR()
	}
	if g != 0 {
		p.shrinkLIR(w)
	}
	if ix.units[lirsStack]+w <= p.lirMax {
		return lirsStack, true
	}
	return lirsBoth, true
}

// evictHIR evicts the oldest of Q that is not pinned; there is one.
func (p *lirs) evictHIR() {
	ix := p.ix
	s := p.q.oldest()
	for ix.meta[s]&pinMask != 0 {
		p.q.remove(s)
		p.q.push(s)
		s = p.q.oldest()
	}
	p.q.remove(s)
	ix.exit(s)
	if ix.meta[s]&stateMask == lirsQ {
		ix.evict(s)
		return
	}
	for ix.units[lirsGhost]+ix.weight(s) > ix.ghostsMax && ix.blocks[lirsGhost] > 0 {
		p.forgetOld()
	}
	g := ix.demote(s, lirsGhost)
	if p.scan == s {
		p.scan = g
	}
	ix.enter(g, lirsGhost)
	l := ix.nodes
	l[l[g].prev].next = g
	l[l[g].next].prev = g
}

// forgetOld frees the oldest ghost of S, or one of the oldest.
func (p *lirs) forgetOld() {
	ix := p.ix
	s := p.scan
	for {
		if s == 0 {
			s = ix.oldest(lirsStack)
		}
		if ix.meta[s]&stateMask == lirsGhost {
			break
		}
		s = p.younger(s)
	}
	p.scan = p.younger(s)
	ix.unlink(s)
	ix.exit(s)
	ix.release(s)
}

func (p *lirs) place(s uint32, state uint8) {
	p.ix.enter(s, state)
	p.ix.linkNewest(lirsStack, s)
	if state == lirsBoth {
		p.q.push(s)
	}
}

func (p *lirs) drop(s uint32) {
	ix := p.ix
	state := ix.meta[s] & stateMask
	ix.exit(s)
	if state != lirsQ {
		p.offStack(s)
	}
	if state == lirsBoth || state == lirsQ {
		p.q.remove(s)
	}
	if state == lirsStack {
		// The slot keeps its state until it is released, and is on no list any more.
		p.prune()
	}
}

func (p *lirs) order(r, g []uint32) ([]uint32, []uint32) {
	ix := p.ix
	p.q.each(func(s uint32) { r = append(r, s) })
	for s := ix.oldest(lirsStack); s >= numLists; s = ix.nodes[s].prev {
		switch ix.meta[s] & stateMask {
		case lirsStack:
			r = append(r, s)
		case lirsGhost:
			g = append(g, s)
		}
	}
	return r, g
}

func (p *lirs) adopt(resident, ghosts []uint32) int {
	ix := p.ix
	p.q.init(p.q.limit)
	p.scan = 0
	room := ix.used - p.lirMax // what does not fit among the LIR blocks
	for i, s := range resident {
		ix.setCount(s, 0)
		if room <= 0 {
			for _, t := range resident[i:] {
				ix.setCount(t, 0)
				ix.enter(t, lirsStack)
				ix.linkNewest(lirsStack, t)
			}
			break
		}
		room -= ix.weight(s)
		ix.enter(s, lirsQ)
		p.q.push(s)
	}
	// Ghosts count as younger than all LIR blocks: a second reference promotes them.
	n, w := 0, int64(0)
	for i := len(ghosts) - 1; i >= 0; i-- {
		if w += ix.weight(ghosts[i]); w > ix.ghostsMax {
			break
		}
		n++
	}
	for _, g := range ghosts[len(ghosts)-n:] {
		ix.enter(g, lirsGhost)
		ix.linkNewest(lirsStack, g)
	}
	p.prune()
	return n
}
