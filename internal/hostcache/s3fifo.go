package hostcache

// s3fifo is S3-FIFO (Yang et al., SOSP 2023): new blocks go through a small
// FIFO; those referenced s3Promote times in it, or again while they are
// remembered, go to the main FIFO, where references give another round each.
type s3fifo struct {
	ix                          *Index
	capacity, mainMax, ghostMax int64
}

const (
	s3Small = 1
	s3Main  = 2
	s3Ghost = firstGhost

	s3Promote = 2
	s3Rounds  = 3 // most that are saved up
)

func (p *s3fifo) name() string                { return "s3-fifo" }
func (p *s3fifo) ghosts(capacity int64) int64 { return capacity - capacity/10 }
func (p *s3fifo) place(s uint32, state uint8) { p.ix.push(s, state) }
func (p *s3fifo) drop(s uint32)               { p.ix.pull(s) }
func (p *s3fifo) hit(s uint32)                { p.ix.bump(s, s3Rounds) }

func (p *s3fifo) resize(capacity int64) {
	small := max(capacity/10, 1)
	p.capacity, p.mainMax, p.ghostMax = capacity, capacity-small, p.ghosts(capacity)
}

func (p *s3fifo) admit(_ Key, g uint32, w int64) (uint8, bool) {
	ix := p.ix
	state := uint8(s3Small)
	if g != 0 {
		state = s3Main
		ix.forget(g)
	}
	for ix.used+w > p.capacity {
		first, second := uint8(s3Small), uint8(s3Main)
		if ix.units[s3Main] > p.mainMax {
			first, second = second, first
		}
		v := ix.victimOf(first, second)
		if v == 0 {
			return 0, false
		}
		n := ix.count(v)
		switch small := ix.meta[v]&stateMask == s3Small; {
		case small && n >= s3Promote:
			ix.setCount(v, 0)
			ix.move(v, s3Main)
		case small:
			ix.setCount(v, 0)
			ix.remember(v, s3Ghost, p.ghostMax)
		case n > 0:
			ix.setCount(v, n-1)
			ix.renew(v)
		default:
			ix.expel(v)
		}
	}
	return state, true
}

func (p *s3fifo) order(r, g []uint32) ([]uint32, []uint32) {
	return p.ix.collect(r, s3Small, s3Main), p.ix.collect(g, s3Ghost)
}

func (p *s3fifo) adopt(resident, ghosts []uint32) int {
	for _, s := range resident {
		p.ix.setCount(s, 0)
		if p.ix.units[s3Small]+p.ix.weight(s) <= p.capacity-p.mainMax {
			p.ix.push(s, s3Small)
		} else {
			p.ix.push(s, s3Main)
		}
	}
	return p.ix.pushGhosts(ghosts, s3Ghost, p.ghostMax)
}
