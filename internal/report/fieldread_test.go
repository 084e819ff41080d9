package report

import (
	"math"
	"math/rand/v2"
	"slices"
)

// read takes what the array publishes now: sums, or means since the last time.
func (x *fieldRun) read() {
	c := x.c
	r := newReading(int64(x.now+1) * 1e9)
	dt := 1.0
	if c.rates {
		dt = float64(c.interval)
	}
	n, took := 0.0, 0.0
	for _, v := range c.volumes {
		y := r.volume(v.name, "p")
		y.ops, y.time = v.ops, v.time
		y.bytes = [2]float64{v.ops[read] * 8192, v.hostIn}
		y.lower, y.held = v.lower, v.dirty
		n, took = n+v.ops[read]+v.ops[write], took+v.time[read]+v.time[write]
	}
	p := r.pool("p")
	p.cap = x.limit()
	if len(x.fulls) > 0 {
		sum := 0.0
		for _, f := range x.fulls {
			sum += f
		}
		// Whole percent, as arrays have it.
		p.full, p.peak = math.Round(100*sum/float64(len(x.fulls)))/100, math.Round(100*slices.Max(x.fulls))/100
		x.fulls = x.fulls[:0]
		x.mean = append(x.mean, (took-x.last[1])/(n-x.last[0]))
	}
	x.last = [2]float64{n, took}
	x.readings = append(x.readings, r)
	if k := len(x.readings); c.rates && k > 1 {
		// The sums stay in the run; what is published is the difference.
		for name, y := range r.volumes {
			was := x.sums(k-2, name)
			for d := range 2 {
				y.ops[d], y.bytes[d], y.time[d] = (y.ops[d]-was.ops[d])/dt, (y.bytes[d]-was.bytes[d])/dt, (y.time[d]-was.time[d])/dt
			}
			y.lower = (y.lower - was.lower) / dt
		}
	}
}

// gauges reads what is held anew.
func (x *fieldRun) gauges() {
	for _, v := range x.c.volumes {
		x.readings[len(x.readings)-1].volumes[v.name].held = v.dirty
	}
}

// sums are a volume's at reading k, where readings are differences: those of all until then.
func (x *fieldRun) sums(k int, name string) (s volumeReading) {
	for _, r := range x.readings[1 : k+1] {
		y, dt := r.volumes[name], float64(x.c.interval)
		for d := range 2 {
			s.ops[d], s.bytes[d], s.time[d] = s.ops[d]+y.ops[d]*dt, s.bytes[d]+y.bytes[d]*dt, s.time[d]+y.time[d]*dt
		}
		s.lower += y.lower * dt
	}
	return s
}

// data is what somebody has who looks at a run, with what goes wrong on the way to him.
func (x *fieldRun) data(seed uint64) *Data {
	c, r := x.c, rand.New(rand.NewPCG(seed, 0xda7a))
	var seen []*reading
	var was, shown map[string]*volumeReading
	for _, y := range x.readings {
		now := map[string]*volumeReading{}
		for _, v := range c.volumes { // in order, for the dice
			exact := y.volumes[v.name]
			kept := *exact
			now[v.name] = &kept
			if c.noise == 0 {
				continue
			}
			off := func() float64 { return max(1+c.noise*r.NormFloat64(), 0) }
			if was != nil && !c.rates {
				exact.bytes[write] = shown[v.name].bytes[write] + (kept.bytes[write]-was[v.name].bytes[write])*off()
				exact.lower = shown[v.name].lower + (kept.lower-was[v.name].lower)*off()
			}
			exact.held *= off()
		}
		was, shown = now, y.volumes
		if r.Float64() >= c.missing {
			seen = append(seen, y)
		}
	}
	d := series(c.kind, seen, units{bytes: 1, time: 1, rates: c.rates})
	d.CacheSize = c.cap / 0.5
	return d
}

// fieldTower is a time in which the pool answered slowly, with the causes without any of which it would
// not have been; none if it takes several to be gone.
type fieldTower struct {
	from, to int // intervals
	causes   []string
}

// fieldCauses are those that can be left out: offloads, what hosts write beyond their mean, what they read beyond
// theirs and disks that are slow, and the cap.
var fieldCauses = []string{"undercover", "hosts", "back end", "cache"}

// towers finds them by their definition (docs/undercover.md), in what really was.
func (c *fieldCase) towers(real *fieldRun) []fieldTower {
	sorted := slices.Sorted(slices.Values(real.mean))
	usual := sorted[len(sorted)/3]
	limit := max(4*usual, usual+0.01)
	var out []fieldTower
	for i := 0; i < len(real.mean); i++ {
		if real.mean[i] <= limit {
			continue
		}
		t := fieldTower{from: i, to: i}
		for t.to+1 < len(real.mean) && real.mean[t.to+1] > limit {
			t.to++
		}
		out, i = append(out, t), t.to
	}
	if len(out) == 0 {
		return nil
	}
	for _, cause := range fieldCauses {
		other := c.run(cause)
		for i := range out {
			if highest(other.mean[out[i].from:out[i].to+1]...) <= limit {
				out[i].causes = append(out[i].causes, cause)
			}
		}
	}
	return out
}
