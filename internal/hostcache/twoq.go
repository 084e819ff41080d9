package hostcache

// twoQ is the full version of 2Q (Johnson and Shasha, VLDB 1994): new blocks go
// through a FIFO; those referenced again after they left it, while they are
// remembered, go to an LRU list.
type twoQ struct {
	ix            *Index
	capacity      int64
	inMax, outMax int64 // Kin: a quarter of the cache; Kout: remembers half of it
}

const (
	q2In   = 1 // A1in
	q2Main = 2 // Am
	q2Out  = firstGhost
)

func (p *twoQ) name() string                { return "2q" }
func (p *twoQ) ghosts(capacity int64) int64 { return max(capacity/2, 1) }
func (p *twoQ) place(s uint32, state uint8) { p.ix.push(s, state) }
func (p *twoQ) drop(s uint32)               { p.ix.pull(s) }

func (p *twoQ) resize(capacity int64) {
	p.capacity, p.inMax, p.outMax = capacity, capacity/4, p.ghosts(capacity)
}

// hit does nothing in A1in: references that come close together are correlated.
func (p *twoQ) hit(s uint32) {
	if p.ix.meta[s]&stateMask == q2Main {
		p.ix.renew(s)
	}
}

func (p *twoQ) admit(_ Key, g uint32, w int64) (uint8, bool) {
	ix := p.ix
	state := uint8(q2In)
	if g != 0 {
		state = q2Main
		ix.forget(g)
	}
	for ix.used+w > p.capacity {
		first, second := uint8(q2Main), uint8(q2In)
		if ix.units[q2In] > p.inMax {
			first, second = second, first
		}
		v := ix.victimOf(first, second)
		switch {
		case v == 0:
			return 0, false
		case ix.meta[v]&stateMask == q2In:
			ix.remember(v, q2Out, p.outMax)
		default:
			ix.expel(v)
		}
	}
	return state, true
}

func (p *twoQ) order(r, g []uint32) ([]uint32, []uint32) {
	return p.ix.collect(r, q2In, q2Main), p.ix.collect(g, q2Out)
}

func (p *twoQ) adopt(resident, ghosts []uint32) int {
	for _, s := range resident {
		p.ix.setCount(s, 0)
		if p.ix.units[q2In]+p.ix.weight(s) <= p.inMax {
			p.ix.push(s, q2In)
		} else {
			p.ix.push(s, q2Main)
		}
	}
	return p.ix.pushGhosts(ghosts, q2Out, p.outMax)
}

// pushGhosts puts the newest of ghosts that fit in limit units on a list, and
// returns how many that are.
func (ix *Index) pushGhosts(ghosts []uint32, state uint8, limit int64) int {
	n, w := 0, int64(0)
	for i := len(ghosts) - 1; i >= 0; i-- {
		if w += ix.weight(ghosts[i]); w > limit {
			break
		}
		n++
	}
	for _, g := range ghosts[len(ghosts)-n:] {
		ix.push(g, state)
	}
	return n
}
