package hostcache

// arc is the Adaptive Replacement Cache (Megiddo and Modha, FAST 2003): a list of
// blocks referenced once (T1) and one of others (T2), each with ghosts (B1, B2).
// A hit on a ghost moves the target size of T1 towards the list that missed it.
type arc struct {
	ix       *Index
	capacity int64
	target   int64 // of T1, times arcScale
}

const (
	arcT1 = 1
	arcT2 = 2
	arcB1 = firstGhost
	arcB2 = firstGhost + 1

	arcScale = 1 << 16
)

func (p *arc) name() string                { return "arc" }
func (p *arc) ghosts(capacity int64) int64 { return capacity + 1 }
func (p *arc) place(s uint32, state uint8) { p.ix.push(s, state) }
func (p *arc) drop(s uint32)               { p.ix.pull(s) }

func (p *arc) resize(capacity int64) {
	p.capacity = capacity
	p.target = min(p.target, capacity*arcScale)
}

func (p *arc) hit(s uint32) {
	if p.ix.meta[s]&stateMask == arcT2 {
		p.ix.renew(s)
		return
	}
	p.ix.move(s, arcT2)
}

func (p *arc) admit(_ Key, g uint32, w int64) (uint8, bool) {
	ix := p.ix
	state, fromB2 := uint8(arcT1), false
	if g != 0 {
		state = arcT2
		b1, b2 := ix.units[arcB1], ix.units[arcB2]
		if fromB2 = ix.meta[g]&stateMask == arcB2; fromB2 {
			p.target = max(0, p.target-arcStep(b1, b2, w))
		} else {
			p.target = min(p.capacity*arcScale, p.target+arcStep(b2, b1, w))
		}
		ix.forget(g)
	}
	for ix.used+w > p.capacity {
		if !p.replace(fromB2, g == 0, w) {
			return 0, false
		}
	}
	if g == 0 { // the directory holds twice the capacity, L1 the capacity
		for ix.units[arcT1]+ix.units[arcB1]+w > p.capacity && ix.blocks[arcB1] > 0 {
			ix.forget(ix.oldest(arcB1))
		}
		for ix.used+ix.units[arcB1]+ix.units[arcB2]+w > 2*p.capacity && ix.blocks[arcB2] > 0 {
			ix.forget(ix.oldest(arcB2))
		}
	}
	return state, true
}

// arcStep is how far a ghost hit moves the target: more if the other list of
// ghosts is longer.
func arcStep(other, own, w int64) int64 {
	return max(arcScale, other*arcScale/max(own, 1)) * w
}

// replace makes one block leave, as REPLACE and case IV of the paper do.
func (p *arc) replace(fromB2, fresh bool, w int64) bool {
	ix := p.ix
	t1 := ix.units[arcT1]
	// Without a ghost in L1, its oldest block leaves unremembered.
	if fresh && ix.blocks[arcB1] == 0 && t1+w > p.capacity {
		if v := ix.victim(arcT1); v != 0 {
			ix.expel(v)
			return true
		}
	}
	first, second := uint8(arcT2), uint8(arcT1)
	if t1 > 0 && (t1*arcScale > p.target || fromB2 && t1*arcScale == p.target) {
		first, second = second, first
	}
	v := ix.victimOf(first, second)
	if v == 0 {
		return false
	}
	ghost := uint8(arcB1)
	if ix.meta[v]&stateMask == arcT2 {
		ghost = arcB2
	}
	// Both lists of ghosts share one bound.
	other := ix.units[arcB1] + ix.units[arcB2] - ix.units[ghost]
	if other+ix.weight(v) > p.ix.ghostsMax {
		ix.forget(ix.oldest(uint32(arcB1 + arcB2 - ghost)))
		other = ix.units[arcB1] + ix.units[arcB2] - ix.units[ghost]
	}
	ix.remember(v, ghost, p.ix.ghostsMax-other)
	return true
}

func (p *arc) order(r, g []uint32) ([]uint32, []uint32) {
	return p.ix.collect(r, arcT1, arcT2), p.ix.collect(g, arcB2, arcB1)
}

func (p *arc) adopt(resident, ghosts []uint32) int {
	for i, s := range resident {
		p.ix.setCount(s, 0)
		if i < len(resident)/2 {
			p.ix.push(s, arcT1)
		} else {
			p.ix.push(s, arcT2)
		}
	}
	p.target = p.ix.units[arcT1] * arcScale
	return p.ix.pushGhosts(ghosts, arcB1, p.capacity-p.ix.units[arcT1])
}
