package report

import "math"

// Share is what part of a tower goes when one of its causes is taken away: 1 is all of
// it, and below 0 it would be larger. Each is a run of the firmware on the fitted model,
// against a run with everything; they are counterfactuals of one another and need not
// add up to 1.
type Share struct {
	Offload float64 `json:"without_offload"`
	Cap     Range   `json:"without_cap"` // the pool may take all of the write cache
	Double  Range   `json:"cap_doubled"` // what half as many pools, about, would do
	// Fit is the wait that the model has, against the wait that was seen: how far the
	// shares can be trusted.
	Fit float64 `json:"fit"`
	// What the model was fitted to.
	Drain    float64 `json:"drain_rate"`    // bytes a second that leave the cache when it is full
	Hosts    float64 `json:"host_rate"`     // bytes a second that hosts write
	Intake   float64 `json:"copy_rate"`     // bytes a second that the copy gets when it is full
	Queued   float64 `json:"queued_bytes"`  // that the copy keeps waiting at the cap
	Room     float64 `json:"room_bytes"`    // that was free when it began
	Whole    float64 `json:"whole_bytes"`   // the cache without partitions
	Observed float64 `json:"tower_seconds"` // mean wait of a write, over the tower
}

// Range is what a share may be, for all that the counters leave open: how fast the copy
// would go if nothing held it up, and how fast the disks take what else a larger cache
// holds.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Open says why no figure is founded; it is empty where one is.
	Open string `json:"not_determined,omitempty"`
}

// rangeOf is the range between two shares; it is a figure where they agree.
func rangeOf(a, b float64) Range {
	r := Range{Low: min(a, b), High: max(a, b)}
	switch {
	case r.Low < -shareBound/5 && r.High > shareBound/5:
		r.Open = "a larger partition may shorten the wait or lengthen it: the counters do not say how fast the copy runs when nothing delays it"
	case r.High <= shareBound/5 && r.Low < r.High-shareBound:
		r.Open = "a larger partition does not help; how much longer writes wait depends on how fast the copy runs when nothing delays it, which the counters do not say"
	case !(r.High-r.Low <= shareBound):
		r.Open = "it depends on how fast the copy runs when nothing delays it, which the counters do not say"
	}
	return r
}

// What the counters leave open.
const (
	// A copy that a full cache holds up would go faster than it was seen to: by a half,
	// or so fast that it fills any cache before much of it is destaged. XCOPY reads tracks
	// from many drives at once, so the second is no exception.
	slowCopy, fastCopy = 1.5, 10
	// A larger cache holds more of the hosts' scattered writes when the copy comes, which
	// drives take slower than the runs of a copy: of what they take beyond what hosts write,
	// which they did take before, this part may be left.
	slowDrain = 0.5
	// A copy begins and ends inside a sample, so that of a tower's time half a sample may have been
	// at rest. Then more was waiting while it ran, and the drives took more: see fitted.crowded.
	// shareBound is how far the ends of a share may be apart if it is to be told.
	shareBound = 0.25
	// fitBound is the factor by which a model's wait may differ from what was seen.
	fitBound = 2
)

// policy is what part of the write cache a pool may take, by the number of pools.
var policy = [...]float64{1, 1, 0.66, 0.40, 0.30, 0.25}

// whole is the write cache without partitions.
func (d *Data) whole(limit float64) float64 {
	if d.CacheSize > 0 {
		return d.CacheSize
	}
	return limit / policy[min(len(d.Pools), len(policy)-1)]
}

// fit takes from the counters what a model of a tower needs; nil if they do not have it.
func (d *Data) fit(t *Tower, p *Pool, vols []*Volume, u *Undercover) (*Share, *fitted) {
	s := &Share{}
	time, sample, hosts, below, waited, writes := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	var usual, rates []float64
	for i := range d.Times {
		dt := d.seconds(i)
		h := total(vols, i, func(v *Volume) float64 { return v.Host[write][i] })
		w := total(vols, i, func(v *Volume) float64 { return v.Time[write][i] })
		n := total(vols, i, func(v *Volume) float64 { return v.Ops[write][i] })
		if i < t.from || i > t.to {
			rates = append(rates, h)
			if n > 0 {
				usual = append(usual, w/n)
			}
			continue
		}
		l := total(vols, i, func(v *Volume) float64 { return v.Lower[i] })
		if math.IsNaN(h + w + n + l) {
			continue // means are of the samples that say all
		}
		time, hosts, waited, writes, below = time+dt, hosts+h*dt, waited+w*dt, writes+n*dt, below+l*dt
		sample = dt
	}
	limit, level := p.Cap[t.from], quantile(p.Full, 0.33)
	base, before := quantile(usual, 0.5), quantile(rates, 0.5)
	if time == 0 || writes == 0 || below == 0 || !(limit > 0) || math.IsNaN(level+base+before) {
		return nil, nil
	}
	s.Hosts, s.Drain = hosts/time, below/time
	s.Observed = max(waited/writes-base, 0)
	s.Intake = max(s.Drain-s.Hosts, 0)
	s.Room, s.Whole = limit*max(1-level, 0), max(d.whole(limit), limit)
	// Little's law: what the copy keeps waiting passes at the rate at which the cache drains.
	s.Queued = s.Observed * s.Drain
	if s.Observed == 0 || s.Hosts == 0 || s.Hosts >= s.Drain {
		return nil, nil
	}
	m := &fitted{scale: max(s.Drain/fitDrain, 1), whole: s.Whole, cap: limit, level: level, hosts: s.Hosts, drain: s.Drain, copyBytes: u.Bytes,
		copyRate: slowCopy * max(u.Rate, s.Intake), outstanding: s.Queued, seconds: min(time, fitLongest),
		crowded: time / (time - sample/2), areas: map[string]float64{}}
	// Hosts may have written less while they waited.
	m.usual = min(max(before, 0.1*s.Hosts), 0.95*s.Drain)
	return s, m
}

// shares fits models to a tower and lets the firmware run them: as it was, without the
// offload, with twice the partition, and with all of the cache. There are two, for the ends
// of what the counters leave open.
func (d *Data) shares(t *Tower, p *Pool, vols []*Volume, u *Undercover) *Share {
	s, m := d.fit(t, p, vols, u)
	if s == nil {
		return nil
	}
	part := m.cap / m.whole
	seen := s.Observed * m.seconds
	fast := *m
	fast.copyRate *= fastCopy / slowCopy
	fast.drain *= m.crowded
	fast.outstanding *= m.crowded * m.crowded
	area, ok := m.match(part, seen)
	areaFast, okFast := fast.match(part, seen)
	if !ok || !okFast {
		return nil
	}
	s.Queued, s.Fit = m.outstanding, area/seen
	a, err := m.run(part, false)
	if err != nil {
		return nil
	}
	s.Offload = 1 - a/area
	takes := max(m.hosts, m.usual)
	fast.drain = takes + slowDrain*(m.drain-takes)
	for _, what := range [...]struct {
		to   *Range
		part float64
	}{{&s.Double, min(2*part, 1)}, {&s.Cap, 1}} {
		a, err := m.run(what.part, true)
		b, err2 := fast.run(what.part, true)
		if err != nil || err2 != nil {
			return nil
		}
		*what.to = rangeOf(1-a/area, 1-b/areaFast)
		if badFit(area/seen) || badFit(areaFast/seen) {
			what.to.Open = "the model does not wait as long as was seen"
		}
	}
	return s
}

// badFit tells whether a model's wait, against what was seen, is too far off for shares.
func badFit(x float64) bool { return !(x > 1/fitBound && x < fitBound) }

// match seeks what the copy keeps waiting with which hosts wait as long as was seen. A
// sample is longer than what is in it, so the copy may have had more waiting, for a
// shorter time, than the means say.
func (m *fitted) match(part, seen float64) (area float64, ok bool) {
	best, chosen := math.Inf(1), m.outstanding
	for range 4 {
		a, err := m.run(part, true)
		if err != nil || a <= 0 {
			return 0, false
		}
		if off := math.Abs(math.Log(a / seen)); off < best {
			area, best, chosen = a, off, m.outstanding
		}
		if best < 0.1 {
			break
		}
		m.outstanding = min(max(m.outstanding*seen/a, 256<<10), 0.5*m.cap)
	}
	m.outstanding = chosen
	return area, !math.IsInf(best, 1)
}
