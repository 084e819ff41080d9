package report

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Findings is what the counters say. Times are nanoseconds since 1970 with what they are
// for people beside them; bytes are bytes; rates are bytes a second.
type Findings struct {
	Source     string       `json:"source"`
	From       string       `json:"from"`
	To         string       `json:"to"`
	Step       float64      `json:"sample_seconds"`
	Pools      []PoolState  `json:"pools"`
	Holders    []Holder     `json:"holders"`
	Undercover []Undercover `json:"undercover"`
	Towers     []Tower      `json:"towers"`
	Advice     []string     `json:"advice"`
	Notes      []string     `json:"notes,omitempty"`
}

// PoolState is how full a pool's partition was.
type PoolState struct {
	Pool  string  `json:"pool"`
	Mean  float64 `json:"mean_fullness"`
	Peak  float64 `json:"peak_fullness"`
	Cap   float64 `json:"cap_bytes"`
	Full  float64 `json:"full_seconds"` // in samples in which it reached its cap
	Spans []Span  `json:"full,omitempty"`
}

// Span is a time, from the beginning of a sample to the end of one.
type Span struct {
	From     string `json:"from"`
	To       string `json:"to"`
	from, to int    // samples, to included
}

// Holder is a volume that held much of a full partition.
type Holder struct {
	Pool   string  `json:"pool"`
	Volume string  `json:"volume"`
	At     string  `json:"at"`
	Held   float64 `json:"held_bytes"`
	Share  float64 `json:"share"` // of the cap
	Host   float64 `json:"host_write_rate"`
	// Explained says whether hosts have written what the volume holds.
	Explained bool `json:"explained_by_host"`
	// Busiest is the volume of the pool that hosts wrote most, and what it held.
	Busiest     string  `json:"busiest"`
	BusiestHost float64 `json:"busiest_host_write_rate"`
	BusiestHeld float64 `json:"busiest_held_bytes"`

	at int
}

// Undercover is a volume to which more went below than hosts had sent.
type Undercover struct {
	Pool   string `json:"pool"`
	Volume string `json:"volume"`
	Span
	// Bytes is what must have been written and no host has sent, at the least: what was
	// overwritten before it left the cache does not show.
	Bytes float64 `json:"bytes"`
	Rate  float64 `json:"rate"`
	Host  float64 `json:"host_written_bytes"`
	// Confidence is 0 to 1: by how much the bytes exceed what noise in the counters and
	// readings at different instants can explain.
	Confidence float64 `json:"confidence"`
	Evidence   string  `json:"evidence"`
}

// What noise is allowed to be.
const (
	// skew is by how many seconds the gauge of what is held may be older or newer than the counters.
	skew = 2.0
	// leastNoise is the part of host and back-end bytes by which counters may disagree.
	leastNoise = 0.03
	// leastBytes is what no accusation is made of: a file copied inside a guest.
	leastBytes = 64 << 20
	// pause is how many seconds without apart one offload is from the next.
	pause = 30.0
	// leastConfidence of a finding that is reported.
	leastConfidence = 0.5
	fullFrom        = 0.97 // fullness from which a partition counts as full
	holderFrom      = 0.5  // of the cap
)

// Analyze makes findings of counters. Towers of an offload are run again by the
// firmware, on a model that is fitted to them, which takes some seconds each.
func Analyze(d *Data) *Findings {
	f := detect(d)
	d.blame(f)
	f.Advice = advise(f)
	return f
}

// detect finds; it does not ask what would be otherwise.
func detect(d *Data) *Findings {
	f := &Findings{Source: d.Source, From: d.at(d.Start), To: d.at(d.Times[len(d.Times)-1]), Step: d.Step(), Notes: d.Notes,
		Pools: []PoolState{}, Holders: []Holder{}, Undercover: []Undercover{}, Towers: []Tower{}, Advice: []string{}}
	noise := d.noise()
	for _, p := range d.Pools {
		f.Pools = append(f.Pools, d.poolState(p))
	}
	for _, v := range d.Volumes {
		f.Undercover = append(f.Undercover, d.undercover(v, noise)...)
	}
	for _, p := range d.Pools {
		f.Undercover = append(f.Undercover, d.undercoverByPool(p, f)...)
		f.Holders = append(f.Holders, d.holders(p, f)...)
	}
	slices.SortStableFunc(f.Undercover, func(a, b Undercover) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, p := range d.Pools {
		f.Towers = append(f.Towers, d.towers(p, f)...)
	}
	slices.SortStableFunc(f.Towers, func(a, b Tower) int { return cmp.Compare(a.from, b.from) })
	return f
}

// blame finds the shares of the highest towers that offloads made.
func (d *Data) blame(f *Findings) {
	var order []*Tower
	for i := range f.Towers {
		if f.Towers[i].culprit != nil {
			order = append(order, &f.Towers[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Tower) int { return cmp.Compare(b.Height, a.Height) })
	var all sync.WaitGroup
	for _, t := range order[:min(len(order), towersModelled)] {
		i := slices.IndexFunc(d.Pools, func(p *Pool) bool { return p.Name == t.Pool })
		all.Go(func() { t.Shares = d.shares(t, d.Pools[i], d.of(t.Pool), t.culprit) })
	}
	all.Wait()
}

func (d *Data) span(from, to int) Span {
	begin := d.Start
	if from > 0 {
		begin = d.Times[from-1]
	}
	return Span{From: d.at(begin), To: d.at(d.Times[to]), from: from, to: to}
}

func (d *Data) seconds(i int) float64 {
	begin := d.Start
	if i > 0 {
		begin = d.Times[i-1]
	}
	return float64(d.Times[i]-begin) / 1e9
}

func (d *Data) poolState(p *Pool) PoolState {
	s := PoolState{Pool: p.Name, Cap: known(quantile(p.Cap, 1))}
	sum, time := 0.0, 0.0
	open := -1
	for i := range d.Times {
		dt := d.seconds(i)
		if !math.IsNaN(p.Full[i]) {
			sum, time = sum+p.Full[i]*dt, time+dt
		}
		s.Peak = max(s.Peak, known(p.Peak[i]))
		full := p.Peak[i] >= fullFrom
		if full {
			s.Full += dt
			if open < 0 {
				open = i
			}
		}
		if open >= 0 && (!full || i == len(d.Times)-1) {
			end := i
			if !full {
				end--
			}
			s.Spans = append(s.Spans, d.span(open, end))
			open = -1
		}
	}
	if time > 0 {
		s.Mean = sum / time
	}
	return s
}

// excess is what went below for a volume in sample i and was not sent by hosts, in
// bytes, with what hosts sent; ok is false when the counters do not say.
//
// What enters the cache is destaged, still there, or was overwritten or discarded. So
// destaged bytes and the growth of what is held are at most what was admitted, and
// where they exceed what hosts wrote, something else did.
func (v *Volume) excess(i int) (excess, host, moved float64, ok bool) {
	dt := v.Span[i]
	host = v.Host[write][i] * dt
	lower, grown := v.Lower[i]*dt, v.Held[i]-v.heldBefore(i)
	excess = lower + grown - host
	if math.IsNaN(excess) {
		return 0, 0, 0, false
	}
	return excess, host, lower + math.Abs(grown), true
}

// heldBefore is what v held at the reading before that of sample i: rates cover the time since
// the volume's last one.
func (v *Volume) heldBefore(i int) float64 {
	for k := i - 1; k >= 0; k-- {
		if !math.IsNaN(v.Held[k]) || !math.IsNaN(v.Span[k]) {
			return v.Held[k]
		}
	}
	return v.Held0
}

// noise is the part of their bytes by which counters and gauges of ordinary volumes may be
// off: three standard deviations and more.
type noise struct{ flow, gauge float64 }

// noise measures it by the excess of volumes that hosts write. Only what is below a volume's
// usual excess counts: what is above may be what is sought. And the usual is taken off
// where it is below zero: writes that replace one another in the cache lower the excess
// steadily, which is no fault of the counters. (A volume most of whose writes are replaced thus
// says less of noise than there is; its own excess is as far from an accusation.) Flows are judged by samples in which
// more flows than is held, the gauge by the others: what a volume holds may be a hundred times
// what it moves in a sample.
func (d *Data) noise() noise {
	var flow, gauge []float64
	for _, v := range d.Volumes {
		var parts []float64
		for i := range d.Times {
			if x, host, _, ok := v.excess(i); ok && host > leastBytes/8 {
				parts = append(parts, x/host)
			}
		}
		usual := min(known(quantile(parts, 0.5)), 0)
		for i := range d.Times {
			x, host, _, ok := v.excess(i)
			if off := usual*host - x; ok && host > leastBytes/8 && off >= 0 {
				lower, held, before := v.Lower[i]*v.Span[i], v.Held[i], v.heldBefore(i)
				if host+lower >= held+before {
					flow = append(flow, off/math.Hypot(host, lower))
				} else {
					gauge = append(gauge, off/math.Hypot(held, before))
				}
			}
		}
	}
	if len(flow)+len(gauge) < 4 {
		return noise{flow: leastNoise}
	}
	// With too few samples of one kind, the other's stand for it.
	if len(flow) < 4 {
		flow = gauge
	} else if len(gauge) < 4 {
		gauge = flow
	}
	of := func(parts []float64) float64 { return min(5*quantile(parts, 0.5), 0.5) }
	return noise{flow: max(leastNoise, of(flow)), gauge: of(gauge)}
}

// undercover finds the times in which more goes below for v than hosts send.
func (d *Data) undercover(v *Volume, noise noise) []Undercover {
	n := len(d.Times)
	var out []Undercover
	if math.IsNaN(quantile(v.Lower, 0.5)) {
		return nil // by the pool, with the help of what is held
	}
	// The times sought are those over which the sum of the excess, less what noise may
	// be, is highest: a rise that a later fall takes back was only bytes on their way.
	best := struct {
		from, to int
		sum      float64
	}{-1, -1, 0}
	sum, quiet, from := 0.0, 0.0, 0
	emit := func() {
		if best.from >= 0 {
			if u, ok := d.accuse(v, best.from, best.to, noise); ok {
				out = append(out, u)
			}
		}
		best.from, best.sum, sum, quiet = -1, 0, 0, 0
	}
	for i := range n {
		x, host, moved, ok := v.excess(i)
		if !ok {
			continue
		}
		part := x - noise.flow*(host+moved)/2
		if sum <= 0 {
			sum, from = 0, i
		}
		sum += part
		if sum > best.sum {
			best.from, best.to, best.sum, quiet = from, i, sum, 0
		} else if quiet += v.Span[i]; best.from >= 0 && (sum < best.sum/2 || quiet >= pause) {
			emit()
		}
	}
	emit()
	return out
}

// accuse says how sure it is that more went to v below than hosts had sent.
func (d *Data) accuse(v *Volume, from, to int, noise noise) (Undercover, bool) {
	var sum, host, moved, time, fastest float64
	held := known(v.Held0)
	if from > 0 {
		held = known(v.Held[from-1])
	}
	for i := from; i <= to; i++ {
		x, h, m, ok := v.excess(i)
		if !ok {
			continue
		}
		held = max(held, v.Held[i])
		dt := v.Span[i]
		sum, host, moved, time = sum+x, host+h, moved+m, time+dt
		fastest = max(fastest, h/dt, known(v.Lower[i]))
	}
	// Host writes in the margin of the window may have been counted on its other side, and
	// the gauge of what is held is as noisy as the counters.
	doubt := max(leastBytes, skew*fastest, noise.flow*(host+moved), 3*noise.gauge*held)
	if sum < doubt {
		return Undercover{}, false
	}
	u := Undercover{Pool: v.Pool, Volume: v.Name, Span: d.span(from, to), Bytes: sum, Rate: sum / time, Host: host,
		Confidence: 1 - math.Exp(1-2*sum/doubt), Evidence: "destaged bytes and the growth of what the cache holds exceed what hosts wrote"}
	u.Confidence = min(u.Confidence, 0.99)
	return u, u.Confidence >= leastConfidence
}

// undercoverByPool is for counters that do not say what a volume's cache destages: a
// volume that holds what hosts cannot have written is a culprit, and what the pool's
// back end wrote beyond all hosts is a bound for its bytes.
func (d *Data) undercoverByPool(p *Pool, f *Findings) []Undercover {
	vols := d.of(p.Name)
	for _, v := range vols {
		if !math.IsNaN(quantile(v.Lower, 0.5)) {
			return nil
		}
	}
	var out []Undercover
	for _, v := range vols {
		for i := 0; i < len(d.Times); i++ {
			need := max(leastBytes, 0.1*known(p.Cap[i]))
			if known(v.Held[i]) < need || d.written(v, i, v.Held[i]) > 0.5*v.Held[i] {
				continue
			}
			to, sum, host, time := i, v.Held[i], 0.0, 0.0
			for to+1 < len(d.Times) && known(v.Held[to+1]) >= need && d.written(v, to+1, v.Held[to+1]) <= 0.5*v.Held[to+1] {
				to++
			}
			below := 0.0
			for k := i; k <= to; k++ {
				dt := d.seconds(k)
				time += dt
				host += known(v.Host[write][k]) * dt
				all := 0.0
				for _, o := range vols {
					all += known(o.Host[write][k]) * dt
				}
				if b := p.Back[write][k] * dt; b > 1.3*all {
					below += b - all
				}
			}
			evidence, confidence := "the volume holds what hosts have not written to it", 0.7
			if below > sum {
				sum, confidence = below, 0.8
				evidence += "; the bytes are the pool's back-end writes beyond all hosts'"
			}
			out = append(out, Undercover{Pool: p.Name, Volume: v.Name, Span: d.span(i, to), Bytes: sum, Rate: sum / time, Host: host, Confidence: confidence, Evidence: evidence})
			i = to
		}
	}
	return out
}

// written is what hosts wrote to v in the time in which it came to hold what it holds
// at the end of sample i: since it held a tenth of that, and a sample before.
func (d *Data) written(v *Volume, i int, held float64) float64 {
	sum := 0.0
	for k := i; k >= 0; k-- {
		sum += known(v.Host[write][k]) * known(v.Span[k])
		if k < i && known(v.Held[k]) < 0.1*held {
			return sum
		}
	}
	return sum + known(v.Held0) // nobody knows who wrote what was there at the beginning
}

// holders are the volumes that held half of a full partition or more, once for each
// time that a volume did, where it held most.
func (d *Data) holders(p *Pool, f *Findings) []Holder {
	var out []Holder
	vols := d.of(p.Name)
	for i := range d.Times {
		if !(p.Peak[i] >= fullFrom) {
			continue
		}
		for _, v := range vols {
			if !(v.Held[i] >= holderFrom*p.Cap[i]) {
				continue
			}
			h := Holder{Pool: p.Name, Volume: v.Name, At: d.at(d.Times[i]), Held: v.Held[i], Share: v.Held[i] / p.Cap[i], Host: known(v.Host[write][i]), at: i}
			h.Explained = !f.accused(v.Name, i, i)
			for _, o := range vols {
				if o != v && known(o.Host[write][i]) > h.BusiestHost {
					h.Busiest, h.BusiestHost, h.BusiestHeld = o.Name, o.Host[write][i], known(o.Held[i])
				}
			}
			last := slices.IndexFunc(out, func(x Holder) bool { return x.Volume == v.Name && x.Explained == h.Explained && x.at >= i-2 })
			switch {
			case last < 0:
				out = append(out, h)
			case out[last].Held < h.Held:
				out[last] = h
			default:
				out[last].at = i // it goes on
			}
		}
	}
	return out
}

// accused tells whether a volume was written undercover in these samples.
func (f *Findings) accused(volume string, from, to int) bool {
	return slices.ContainsFunc(f.Undercover, func(u Undercover) bool { return u.Volume == volume && u.from <= to && u.to >= from })
}
