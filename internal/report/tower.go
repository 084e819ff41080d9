package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Tower is a time in which the volumes of a pool answer slowly without more work.
type Tower struct {
	Pool string `json:"pool"`
	Span
	Height  float64 `json:"height_seconds"` // mean response of all I/O in the worst sample
	Base    float64 `json:"base_seconds"`   // outside
	Load    Amount  `json:"load_ratio"`     // I/O a second, against outside
	Volumes int     `json:"volumes_hit"`
	Of      int     `json:"volumes_active"`
	Worst   []Hit   `json:"worst"`
	// Cause is "undercover" (an offload filled the partition), "hosts" (they did), "cache"
	// (it was full, and nobody can be named, or its cap was lowered), "back end" (it was not full, or the disks took
	// less than at other times while it was, and nobody brought as much more) or "unknown", with what is missing to tell.
	Cause   string   `json:"cause"`
	Missing []string `json:"missing,omitempty"`
	Culprit string   `json:"culprit,omitempty"`
	Shares  *Share   `json:"shares,omitempty"`

	culprit *Undercover
	highest int  // the worst sample
	full    bool // the partition was full
}

// Hit is a volume in a tower.
type Hit struct {
	Volume   string  `json:"volume"`
	Response float64 `json:"seconds"`
	Ops      Amount  `json:"iops"`
}

// What makes a tower.
const (
	towerFactor = 4    // times the usual response
	towerRise   = 0.01 // seconds above it, at the least
	hitFactor   = 3
	worstShown  = 10
	// towersModelled is of how many towers the shares are asked for.
	towersModelled = 4
)

// towerFrom is what makes a tower, in words.
var towerFrom = fmt.Sprintf("%d times the usual and %g ms above it", towerFactor, towerRise*1e3)

// response is the mean response of all I/O of volumes in sample i whose time is known, NaN
// without any, and I/O a second.
func response(vols []*Volume, i int) (mean, ops float64) {
	t, n := 0.0, 0.0
	ops = math.NaN()
	for _, v := range vols {
		for dir := range v.Ops {
			x := v.Ops[dir][i]
			add(&ops, x)
			if x > 0 && !math.IsNaN(v.Time[dir][i]) {
				n, t = n+x, t+v.Time[dir][i]
			}
		}
	}
	if n == 0 {
		return math.NaN(), ops
	}
	return t / n, ops
}

func (d *Data) towers(p *Pool, f *Findings) []Tower {
	vols := d.of(p.Name)
	n := len(d.Times)
	mean, ops := make(Series, n), make(Series, n)
	for i := range n {
		mean[i], ops[i] = response(vols, i)
	}
	// A tower may last for most of the data: the quiet part is the lower third.
	base := quantile(mean, 0.33)
	limit := max(towerFactor*base, base+towerRise)
	var out []Tower
	for i := 0; i < n; i++ {
		if !(mean[i] > limit) {
			continue
		}
		to := i
		for to+1 < n && (mean[to+1] > limit || math.IsNaN(mean[to+1]) && to+2 < n && mean[to+2] > limit) {
			to++
		}
		out = append(out, d.tower(p, vols, mean, ops, i, to, base, f))
		i = to
	}
	return out
}

func (d *Data) tower(p *Pool, vols []*Volume, mean, ops Series, from, to int, base float64, f *Findings) Tower {
	t := Tower{Pool: p.Name, Span: d.span(from, to), Base: base, Load: Amount(math.NaN()), Worst: []Hit{}}
	worst := from
	var outside []float64
	for i := range mean {
		if i < from || i > to {
			outside = append(outside, ops[i])
		}
	}
	for i := from; i <= to; i++ {
		if mean[i] > t.Height {
			t.Height, worst = mean[i], i
		}
	}
	if usual := quantile(outside, 0.5); usual > 0 {
		t.Load = Amount(quantile(ops[from:to+1], 0.5) / usual)
	}
	t.highest = worst
	for _, v := range vols {
		r := v.Response(worst)
		if math.IsNaN(r) {
			continue
		}
		t.Of++
		var all []float64
		for i := range d.Times {
			all = append(all, v.Response(i))
		}
		usual := quantile(all, 0.33)
		// A volume that is hardly used has no usual response: the pool's stands for it.
		if v.Ops[read][worst]+v.Ops[write][worst] < 1 {
			usual = min(usual, base)
		}
		if r > max(hitFactor*usual, usual+towerRise) || r > t.Height/2 {
			t.Volumes++
			n := math.NaN()
			add(&n, v.Ops[read][worst])
			add(&n, v.Ops[write][worst])
			t.Worst = append(t.Worst, Hit{v.Name, r, Amount(n)})
		}
	}
	slices.SortStableFunc(t.Worst, func(a, b Hit) int { return cmp.Compare(b.Response, a.Response) })
	t.Worst = t.Worst[:min(len(t.Worst), worstShown)]
	d.cause(&t, p, vols, f)
	return t
}

func (d *Data) cause(t *Tower, p *Pool, vols []*Volume, f *Findings) {
	culprit, below := d.culprit(t, p, f)
	unknown := func(missing string) { t.Cause, t.Missing = "unknown", append(t.Missing, missing) }
	if peak := highest(p.Peak[max(t.from-1, 0) : t.to+1]...); !(peak >= fullFrom-0.02) {
		// Between two readings it may have been full unseen: surely so where a copy brought
		// more than there was room for.
		seconds := 0.0
		for i := t.from; i <= t.to; i++ {
			seconds += d.seconds(i)
		}
		room := p.Cap[t.from] * (1 - quantile(p.Full, 0.33))
		switch {
		case math.IsNaN(peak):
			unknown(needFullness)
			return
		case culprit != nil && math.IsNaN(room):
			unknown(needCap)
			return
		case culprit == nil || !(room > 0 && below*seconds >= room):
			t.Cause = "back end"
			return
		}
	}
	t.full = true
	sum := make(Series, len(d.Times))
	busiest, most := "", 0.0
	var elsewhere []float64
	for i := range sum {
		sum[i] = total(vols, i, func(v *Volume) float64 { return v.Host[write][i] })
		if i < t.from || i > t.to {
			elsewhere = append(elsewhere, sum[i])
			continue
		}
		for _, v := range vols {
			if x := v.Host[write][i]; x > most {
				busiest, most = v.Name, x
			}
		}
	}
	usual, now := quantile(sum, 0.33), quantile(sum[t.from:t.to+1], 0.5)
	lost := d.roomLost(t, p)
	slow, took, can := d.slowDisks(t, p, vols)
	switch {
	case math.IsNaN(usual) || math.IsNaN(now):
		unknown(needHost)
	// Whoever brought more than is usual: the copy, or hosts.
	case culprit != nil && below >= now-usual && filled(slow, now+below-usual, below, can-took):
		t.Cause, t.Culprit = "undercover", culprit.Volume
		t.culprit = culprit
	// A cap that was lowered is why, unless hosts brought more than it lost and than the disks took before.
	case lost > 0 && (now <= can || lost > (now-usual)*t.seconds(d)):
		t.Cause = "cache"
	// Of hosts that brought more to disks that took less, the latter are why only if hosts brought no more than in the
	// mean of other times. Else what they wrote may lie worse for the disks, which these counters do not show.
	case now >= 1.1*usual && slow == Yes && now > 1.1*average(elsewhere):
		unknown(needPlace)
	case now >= 1.1*usual && slow != Yes:
		t.Cause, t.Culprit = "hosts", busiest
	// Nobody brought more, and the disks took less than they can.
	case slow == Yes:
		t.Cause = "back end"
	case slow == Unknown:
		unknown(needOutflow)
	default:
		t.Cause = "cache"
	}
}

// filled says whether a copy that brought below, in bytes a second, can have filled a partition. What leaves a full
// one is what comes. So if all together brought less than usual (more is negative), or the disks took less than
// elsewhere by more than the copy brought, the partition is full because of the disks: the copy is only beside it.
func filled(slow Answer, more, below, less float64) bool {
	return slow == No || more >= 0 && (slow == Unknown || below >= less)
}

// average is the mean of those values that are known, NaN without any.
func average(values []float64) float64 {
	sum, n := math.NaN(), 0.0
	for _, x := range values {
		if add(&sum, x); !math.IsNaN(x) {
			n++
		}
	}
	return sum / n
}

// seconds is how long a tower's samples are.
func (t *Tower) seconds(d *Data) (sum float64) {
	for i := t.from; i <= t.to; i++ {
		sum += d.seconds(i)
	}
	return sum
}

// What slow disks are known by.
const (
	// slowBelow is the part of what the disks took at other times from which on they are not slow.
	slowBelow = 0.8
	// fullThroughout is the mean fullness of a sample in which somebody waited all the time.
	fullThroughout = 0.95
)

// slowDisks says whether the disks took less in a tower than they can. While a partition is full
// its destager does all that it can, so what leaves the cache then is what the disks take; and they can take what
// they took at any other time. It is not known without a sample that was full throughout: what left
// in one that was full for a part is a mean with the rest. took is what they took then, and can what they took elsewhere,
// in bytes a second.
func (d *Data) slowDisks(t *Tower, p *Pool, vols []*Volume) (slow Answer, took, can float64) {
	took = math.NaN()
	var other []float64
	for i := range d.Times {
		out := total(vols, i, func(v *Volume) float64 { return v.Lower[i] })
		if math.IsNaN(out) {
			out = p.Back[write][i]
		}
		switch {
		case i < t.from || i > t.to:
			other = append(other, out)
		case p.Full[i] >= fullThroughout:
			took = highest(took, out)
		}
	}
	// The highest of many is of noise, too.
	can = quantile(other, 0.95)
	switch {
	case math.IsNaN(took) || math.IsNaN(can):
		return Unknown, took, can
	case took < slowBelow*can:
		return Yes, took, can
	}
	return No, took, can
}

// roomLost is by how many bytes the partition's cap was lower in a tower than before, 0 if by less than a tenth.
func (d *Data) roomLost(t *Tower, p *Pool) float64 {
	if t.from == 0 {
		return 0
	}
	was := highest(p.Cap[:t.from]...)
	lost := was - quantile(p.Cap[t.from:t.to+1], 0)
	if !(lost >= 0.1*was) {
		return 0
	}
	return lost
}

// culprit is who was written undercover most about the time of a tower, and at what rate.
func (d *Data) culprit(t *Tower, p *Pool, f *Findings) (culprit *Undercover, below float64) {
	for i := range f.Undercover {
		u := &f.Undercover[i]
		// The copy must work while others wait, or have filled the cache in the sample before.
		if u.Pool != p.Name || u.from > t.to || u.to < t.from-1 {
			continue
		}
		if x := d.undercoverRate(u, max(t.from-1, 0), t.to); culprit == nil || x > below {
			culprit, below = u, x
		}
	}
	return culprit, below
}

// undercoverRate is what u's volume was written undercover in these samples, a second.
func (d *Data) undercoverRate(u *Undercover, from, to int) float64 {
	for _, v := range d.Volumes {
		if v.Name != u.Volume || v.Pool != u.Pool {
			continue
		}
		sum, time := 0.0, 0.0
		for i := from; i <= to; i++ {
			if x, _, _, ok := v.excess(i); ok {
				sum, time = sum+x, time+v.Span[i]
			}
		}
		if time > 0 {
			return max(sum, 0) / time
		}
	}
	return u.Rate
}
