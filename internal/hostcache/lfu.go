package hostcache

// lfu keeps what was referenced most often. Blocks are in four classes: referenced once, 2 to 3, 4 to 7
// times, and 8 times or more; the oldest block of the lowest class leaves. There is no history, so what is
// new leaves first as long as everything else has been referenced twice: under a loop larger than the cache
// a part of the loop stays.
type lfu struct{ lru }

const lfuClasses = 4 // states 1 to 4

func (p *lfu) name() string { return "lfu" }

func (p *lfu) hit(s uint32) {
	ix := p.ix
	class := ix.meta[s] & stateMask
	n := ix.count(s) + 1
	if class == lfuClasses || n < 1<<(class-1) {
		if class < lfuClasses {
			ix.setCount(s, n)
		}
		ix.renew(s)
		return
	}
	ix.setCount(s, 0)
	ix.move(s, class+1)
}

func (p *lfu) admit(_ Key, _ uint32, w int64) (uint8, bool) {
	ix := p.ix
	for ix.used+w > p.capacity {
		v := uint32(0)
		for class := uint8(1); class <= lfuClasses && v == 0; class++ {
			v = ix.victim(class)
		}
		if v == 0 {
			return 0, false
		}
		ix.expel(v)
	}
	return inCache, true
}

func (p *lfu) order(r, g []uint32) ([]uint32, []uint32) { return p.ix.collect(r, 1, 2, 3, 4), g }
