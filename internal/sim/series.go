package sim

import (
	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
)

// The time series: for each volume and interval what hosts did, what the volume holds
// of the cache at the interval's end, and what was written below by origin; for each
// pool and second its fullness, at the instant and in the mean, and what writes waited.

// volumeSample is one volume in one interval.
type volumeSample struct {
	host  hostSide
	held  uint64
	lower [block.NumOrigins]uint64 // bytes that reached the back end
}

// poolSample is one pool in one second.
type poolSample struct {
	used, limit uint64 // bytes, at the second's end
	mean        uint64 // of used, over the second
	top         uint64
	writes      uint64 // of hosts that ended, to the pool's volumes
	ios         uint64
	wait        int64 // of those writes, from issue to response
	waits       uint64
	waited      int64 // of hosts' writes for room in the partition
}

const (
	second       = 1_000_000_000
	gaugeSamples = 10 // in a second, for the highest fullness
)

type series struct {
	r        *Run
	interval int64
	volumes  [][]volumeSample // by volume, then interval
	pools    []poolSeries
	last     []volumeSample // cumulative values at the last sample
	ticks    int
	lastPool []poolSample
	tickFn   func()
}

type poolSeries struct {
	sys      *system
	index    int // in sys.pools
	name     string
	samples  []poolSample
	top      uint64
	integral float64 // of what the pool holds
	waits    uint64
	waited   int64
	volumes  []*volume
}

func (s *series) begin(r *Run) {
	s.r, s.interval = r, int64(r.s.Series)
	s.volumes = make([][]volumeSample, len(r.volumes))
	s.last = make([]volumeSample, len(r.volumes))
	s.syncPools()
	s.read()
	s.tickFn = s.tick
	r.at(second/gaugeSamples, s.tickFn)
}

// syncPools takes pools in that were added.
func (s *series) syncPools() {
	for _, y := range s.r.arrays {
		for i, p := range y.pools {
			known := false
			for _, q := range s.pools {
				known = known || q.sys == y && q.index == i
			}
			if known {
				continue
			}
			q := poolSeries{sys: y, index: i, name: p.Name(), samples: make([]poolSample, max(0, s.ticks-1)/gaugeSamples), integral: p.UsedSeconds()}
			q.waits, q.waited = hostWaits(p)
			for _, v := range y.vols {
				if v.info.Pool == q.name {
					q.volumes = append(q.volumes, v)
				}
			}
			s.pools = append(s.pools, q)
			s.lastPool = append(s.lastPool, poolSample{})
		}
	}
}

func (s *series) tick() {
	s.ticks++
	s.syncPools()
	whole := s.ticks%gaugeSamples == 0
	for i := range s.pools {
		p := &s.pools[i]
		q := p.sys.pools[p.index]
		used, limit := q.Fullness()
		p.top = max(p.top, uint64(used))
		if !whole {
			continue
		}
		integral := q.UsedSeconds()
		x := poolSample{used: uint64(used), limit: uint64(limit), mean: uint64(integral - p.integral), top: p.top}
		p.integral, p.top = integral, 0
		if p.sys.array.Pool(p.name) != q {
			x.limit = 0 // it was removed
		}
		x.waits, x.waited = hostWaits(q)
		x.waits, x.waited = x.waits-p.waits, x.waited-p.waited
		p.waits, p.waited = p.waits+x.waits, p.waited+x.waited
		var now poolSample
		for _, v := range p.volumes {
			now.writes += v.host.ops[1]
			now.ios += v.host.ops[0] + v.host.ops[1]
			now.wait += v.host.wait[1]
		}
		l := &s.lastPool[i]
		x.writes, x.ios, x.wait = now.writes-l.writes, now.ios-l.ios, now.wait-l.wait
		*l = now
		p.samples = append(p.samples, x)
	}
	if t := int64(s.ticks) * (second / gaugeSamples); t%s.interval == 0 {
		s.sample()
	}
	s.r.exec.Call(s.r.exec.Now()+second/gaugeSamples, s.tickFn)
}

// hostWaits is how many writes of hosts have waited for room in the partition, and how long.
func hostWaits(p *array.Pool) (n uint64, wait int64) {
	for _, o := range [...]block.Origin{block.OriginHost, block.OriginCAW} {
		sum, count, _ := p.Waits(o)
		n, wait = n+count, wait+sum
	}
	return n, wait
}

// sample closes an interval of the volumes' series.
func (s *series) sample() {
	before := make([]volumeSample, len(s.last))
	copy(before, s.last)
	s.read()
	for i := range s.last {
		now, was := &s.last[i], &before[i]
		x := volumeSample{held: now.held}
		for d := range 2 {
			x.host.ops[d] = now.host.ops[d] - was.host.ops[d]
			x.host.bytes[d] = now.host.bytes[d] - was.host.bytes[d]
			x.host.wait[d] = now.host.wait[d] - was.host.wait[d]
		}
		for o := range x.lower {
			x.lower[o] = now.lower[o] - was.lower[o]
		}
		s.volumes[i] = append(s.volumes[i], x)
	}
}

// finish closes what is left of the last interval.
func (s *series) finish(*Run) {
	if int64(s.ticks)*(second/gaugeSamples)%s.interval != 0 {
		s.sample()
	}
}

// read makes last the present cumulative values.
func (s *series) read() {
	var flows [block.NumOrigins]array.Flow
	for i, v := range s.r.volumes {
		x := volumeSample{host: v.host}
		v.vol.Flow(&flows)
		for o := range flows {
			x.held += uint64(flows[o].Dirty)
			x.lower[o] = flows[o].Destaged
		}
		s.last[i] = x
	}
}

// window returns the sum of a volume's intervals that end in (from, to], and the last.
func (s *series) window(i int, from, to int64) (sum volumeSample, seconds float64) {
	all := s.volumes[i]
	for k, x := range all {
		end := int64(k+1) * s.interval
		if k == len(all)-1 {
			end = min(end, s.r.end)
			if s.r.end < 0 {
				end = s.r.now()
			}
		}
		if end <= from || end > to {
			continue
		}
		for d := range 2 {
			sum.host.ops[d] += x.host.ops[d]
			sum.host.bytes[d] += x.host.bytes[d]
			sum.host.wait[d] += x.host.wait[d]
		}
		for o := range x.lower {
			sum.lower[o] += x.lower[o]
		}
		sum.held = x.held
		seconds += float64(end-int64(k)*s.interval) / second
	}
	return sum, seconds
}
