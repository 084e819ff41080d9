package report

import "math"

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
	// Margin is how many times what noise in the counters and readings at different instants
	// could make of nothing the bytes are: 1 at the least. It is no probability.
	Margin   float64 `json:"margin"`
	Evidence string  `json:"evidence"`
}

// Floor is what the counters prove nothing below. Less than that may have been written undercover
// wherever there is no finding, and what was replaced in the cache before it left it shows nowhere.
type Floor struct {
	Seconds float64 `json:"seconds"` // of the data
	// Bytes of a volume that hosts do not write.
	Bytes float64 `json:"bytes"`
	// Volume is the one of which they prove least, if that is more: hosts' own writes that replace
	// one another in the cache can hide so much of an offload's.
	Volume      string  `json:"volume,omitempty"`
	VolumeBytes float64 `json:"volume_bytes,omitempty"`
}

// What noise is allowed to be.
const (
	// skew is by how many seconds counters and gauges of one reading may be of different instants, and
	// how long bytes may be in the cache before the command that brought them counts as done.
	skew = 2.0
	// leastNoise is the part of host and back-end bytes by which counters may disagree.
	leastNoise = 0.03
	// leastBytes is what no accusation is made of: a file copied inside a guest.
	leastBytes = 64 << 20
	// pause is how many seconds without apart one offload is from the next.
	pause = 30.0
)

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
		usual := min(quantile(parts, 0.5), 0) // not known without parts, and then there is nothing to compare
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
	if !anyKnown(v.Lower) {
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

// flow is what happened to a volume in some samples, in bytes; fastest is the highest rate at which
// hosts wrote.
type flow struct{ excess, host, moved, below, held, time, fastest float64 }

// flow sums up the samples that say everything.
func (v *Volume) flow(from, to int) (f flow) {
	f.held = highest(v.heldBefore(from), 0)
	for i := from; i <= to; i++ {
		x, h, m, ok := v.excess(i)
		if !ok {
			continue
		}
		dt := v.Span[i]
		f.excess, f.host, f.moved, f.time = f.excess+x, f.host+h, f.moved+m, f.time+dt
		f.below += v.Lower[i]*dt + max(v.Held[i]-v.heldBefore(i), 0)
		f.held, f.fastest = max(f.held, v.Held[i]), max(f.fastest, h/dt)
	}
	return f
}

// doubt is what noise and readings at different instants can make of nothing in these bytes;
// margins is by how much the bytes at both ends of the time may be on its other side.
func (f flow) doubt(noise noise, margins float64) float64 {
	return max(leastBytes, margins, noise.flow*(f.host+f.moved), 3*noise.gauge*f.held)
}

// margins is how many bytes may be counted on the wrong side of the beginning or the end of a
// time: what hosts wrote next to it, and, where gauges and counters are of different instants,
// what left the cache just then and is counted as held too, or as neither.
func (d *Data) margins(v *Volume, from, to int) float64 {
	before, after := from-1, to+1
	for before >= 0 && !v.says(before) {
		before--
	}
	for after < len(v.Span) && !v.says(after) {
		after++
	}
	at := func(s Series, i int) float64 {
		if i < 0 || i >= len(s) || !v.says(i) {
			return 0 // outside of the data there is nothing to be mistaken for
		}
		return s[i]
	}
	hosts := v.Host[write]
	sum := skew * (max(at(hosts, before), at(hosts, from)) + max(at(hosts, to), at(hosts, after)))
	if d.Exact {
		return sum
	}
	lower := skew * max(at(v.Lower, before), at(v.Lower, from))
	if before >= 0 {
		// No more than hosts can have put there by then.
		lower = min(lower, max(v.heldBefore(from), v.heldBefore(before)+hosts[before]*v.Span[before]))
	}
	return sum + lower + min(skew*max(at(v.Lower, to), at(v.Lower, after)), v.Held[to])
}

// says tells whether sample i has all that excess needs.
func (v *Volume) says(i int) bool {
	_, _, _, ok := v.excess(i)
	return ok
}

// accuse says whether more went to v below than hosts had sent, and by how much beyond doubt.
func (d *Data) accuse(v *Volume, from, to int, noise noise) (Undercover, bool) {
	f := v.flow(from, to)
	doubt := f.doubt(noise, d.margins(v, from, to))
	return Undercover{Pool: v.Pool, Volume: v.Name, Span: d.span(from, to), Bytes: f.excess, Rate: f.excess / f.time, Host: f.host,
		Margin: f.excess / doubt, Evidence: "destaged bytes and the growth of what the cache holds exceed what hosts wrote"}, f.excess >= doubt
}

// floor says what nothing is proved below, nil where nothing could be judged.
func (d *Data) floor(f *Findings, noise noise) *Floor {
	var out *Floor
	n := len(d.Times)
	for _, v := range d.Volumes {
		x := v.flow(0, n-1)
		if x.time == 0 {
			continue
		}
		if out == nil {
			out = &Floor{Seconds: float64(d.Times[n-1]-d.Start) / 1e9, Bytes: leastBytes}
		}
		// The ends of a time may be anywhere, and all that hosts wrote may have been replaced.
		hidden := x.doubt(noise, 2*skew*x.fastest) + min(x.host, x.below)
		if hidden > max(out.Bytes, out.VolumeBytes) && !f.accused(v.Name, 0, n-1) {
			out.Volume, out.VolumeBytes = v.Name, hidden
		}
	}
	return out
}

// undercoverByPool is for counters that do not say what a volume's cache destages: a
// volume that holds what hosts cannot have written is a culprit, and what the pool's
// back end wrote beyond all hosts is a bound for its bytes.
func (d *Data) undercoverByPool(p *Pool) []Undercover {
	vols := d.of(p.Name)
	var out []Undercover
	for _, v := range vols {
		if anyKnown(v.Lower) {
			continue
		}
		for i := 0; i < len(d.Times); i++ {
			if !d.unwritten(v, p, i) {
				continue
			}
			to, sum := i, v.Held[i]
			for to+1 < len(d.Times) && d.unwritten(v, p, to+1) {
				to++
			}
			host, time, below := 0.0, 0.0, 0.0
			for k := i; k <= to; k++ {
				dt := d.seconds(k)
				time, host = time+dt, host+v.Host[write][k]*dt
				if b, all := p.Back[write][k], total(vols, k, func(o *Volume) float64 { return o.Host[write][k] }); b > 1.3*all {
					below += (b - all) * dt
				}
			}
			u := Undercover{Pool: p.Name, Volume: v.Name, Span: d.span(i, to), Bytes: max(sum, below), Host: host, Margin: sum / p.worthNaming(i), Evidence: "the volume holds what hosts have not written to it"}
			if below > sum {
				u.Evidence += "; the bytes are the pool's back-end writes beyond all hosts'"
			}
			u.Rate = u.Bytes / time
			out = append(out, u)
			i = to
		}
	}
	return out
}

// worthNaming is what a volume must hold at the end of sample i to be looked at.
func (p *Pool) worthNaming(i int) float64 { return highest(leastBytes, 0.1*p.Cap[i]) }

// unwritten tells whether v holds, at the end of sample i, much that hosts are known not to have
// written.
func (d *Data) unwritten(v *Volume, p *Pool, i int) bool {
	return v.Held[i] >= p.worthNaming(i) && d.written(v, i, v.Held[i]) <= 0.5*v.Held[i]
}

// written is what hosts wrote to v in the time in which it came to hold what it holds
// at the end of sample i: since it held a tenth of that, and a sample before. It is not known
// where a sample of that time is not.
func (d *Data) written(v *Volume, i int, held float64) float64 {
	sum := 0.0
	for k := i; k >= 0; k-- {
		sum += v.Host[write][k] * v.Span[k]
		if k < i && v.Held[k] < 0.1*held {
			return sum
		}
	}
	return sum + v.Held0 // nobody knows who wrote what was there at the beginning
}

// total is a sum over the volumes that have a reading in sample i: not known where one of them
// does not say, or none is there.
func total(vols []*Volume, i int, of func(*Volume) float64) float64 {
	sum := math.NaN()
	for _, v := range vols {
		if math.IsNaN(v.Span[i]) {
			continue
		}
		x := of(v)
		if math.IsNaN(x) {
			return x
		}
		add(&sum, x)
	}
	return sum
}
