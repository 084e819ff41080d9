package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/arraysim/arraysim/internal/stats"
)

// Series is one value a sample; NaN where it is not known. Arithmetic with what is not known gives
// what is not known, and nothing here makes a zero of it.
type Series []float64

// Data is time series by pool and volume. Sample i covers the time up to Times[i];
// rates are means over it, what is held is at its end.
type Data struct {
	Source    string
	Start     int64   // nanoseconds: the beginning of sample 0
	Times     []int64 // nanoseconds: the ends of the samples
	CacheSize float64 // bytes of write cache, 0 if it is not known
	Pools     []*Pool
	Volumes   []*Volume
	Offloads  []*Offload
	Notes     []string // what was amiss with the counters
	// Exact says that all values of a reading are of one instant: a gauge cannot hold what a
	// counter has passed on already.
	Exact bool
}

// Pool is a pool with its partition of the write cache.
type Pool struct {
	Name string
	// Full and Peak are the partition's fullness, 0 to 1: the mean and the highest of a sample.
	Full, Peak Series
	Cap        Series // bytes
	Back       [2]Series
	// ByOrigin are back-end writes in bytes a second, where the array tells; for pictures.
	ByOrigin map[string]Series
}

// Volume is a volume: what hosts do to it, what it holds of the cache, what is written below.
type Volume struct {
	Name, Pool string
	// Repeats says that this is a further copy of a mirrored volume, whose host writes are those of the first copy.
	Repeats   bool
	Span      Series    // seconds that the rates of a sample cover
	Ops       [2]Series // a second, reads and writes
	Host      [2]Series // bytes a second
	Time      [2]Series // seconds of response time a second: with Ops, the mean
	Held      Series    // bytes in the write cache
	Held0     float64   // at the beginning of sample 0
	Lower     Series    // bytes a second that leave the cache for the back end
	Described map[string]Series
	States    map[string]Series // provisioned bytes; for pictures
	// Labelled are bytes a second that offloads wrote below, by the origin label of an array that
	// has one. No finding is made of it; it is shown beside the findings.
	Labelled map[string]Series
}

// Offload is a primitive by the path it takes, in bytes a second; for pictures.
type Offload struct {
	Primitive, Path string
	Bytes           Series
}

const (
	read = iota
	write
)

// Response is the mean response time of all I/O of sample i in seconds, NaN without any.
func (v *Volume) Response(i int) float64 {
	ops, t := 0.0, 0.0
	for d := range v.Ops {
		if n := v.Ops[d][i]; n > 0 {
			ops, t = ops+n, t+v.Time[d][i]
		}
	}
	if ops == 0 {
		return math.NaN()
	}
	return t / ops // not known where the time of one direction is not
}

// Step is the usual length of a sample in seconds.
func (d *Data) Step() float64 {
	var steps []float64
	last := d.Start
	for _, t := range d.Times {
		steps = append(steps, float64(t-last)/1e9)
		last = t
	}
	return quantile(steps, 0.5)
}

// of returns the volumes of a pool.
func (d *Data) of(pool string) []*Volume {
	var out []*Volume
	for _, v := range d.Volumes {
		if v.Pool == pool {
			out = append(out, v)
		}
	}
	return out
}

// at is the time of an instant as people write it.
func (d *Data) at(t int64) string { return time.Unix(0, t).UTC().Format("2006-01-02 15:04:05") }

// reading is what a source says about everything at one instant: sums since some
// start, in the source's units, and gauges in base units. NaN and what is missing is not known.
type reading struct {
	time    int64
	volumes map[string]*volumeReading
	pools   map[string]*poolReading
	sums    map[offloadKey]float64
	// durations says that there are times of commands; see complete.
	durations bool
}

type offloadKey struct{ primitive, path string }

type volumeReading struct {
	pool string
	// anew says that the sums say nothing of the time since the volume's last reading.
	anew      bool
	ops       [2]float64
	bytes     [2]float64
	time      [2]float64
	lower     float64
	held      float64
	described map[string]float64
	states    map[string]float64
	labelled  map[string]float64
}

type poolReading struct {
	full, peak, cap float64
	seconds         float64 // integral of used bytes; NaN if full is a mean already
	back            [2]float64
	byOrigin        map[string]float64
}

func unknown() (x [2]float64) { x[0], x[1] = math.NaN(), math.NaN(); return x }

func newVolumeReading(pool string) *volumeReading {
	nan := math.NaN()
	return &volumeReading{pool: pool, ops: unknown(), bytes: unknown(), time: unknown(), lower: nan, held: nan}
}

func newPoolReading() *poolReading {
	nan := math.NaN()
	return &poolReading{full: nan, peak: nan, cap: nan, seconds: nan, back: unknown()}
}

func newReading(t int64) *reading {
	return &reading{time: t, volumes: map[string]*volumeReading{}, pools: map[string]*poolReading{}}
}

func (r *reading) volume(name, pool string) *volumeReading {
	v := r.volumes[name]
	if v == nil {
		v = newVolumeReading(pool)
		r.volumes[name] = v
	}
	if v.pool == "" {
		v.pool = pool
	}
	return v
}

func (r *reading) pool(name string) *poolReading {
	p := r.pools[name]
	if p == nil {
		p = newPoolReading()
		r.pools[name] = p
	}
	return p
}

// units are a source's: what one of its sums is in base units. With rates its readings are no sums but means a second
// over the usual time between two. Sums that are endless never wrap: one that became smaller was restarted.
type units struct {
	bytes, time float64
	rates       bool
	endless     bool
}

// counterWraps are the sizes of counters that begin anew when they are full.
var counterWraps = [...]float64{1 << 32, 1 << 64}

// increase is the growth of a counter. One that became smaller has wrapped, when it is not endless,
// was near the end of 32 or 64 bits and is near the beginning; else its array was
// restarted, and what happened in between is not known.
func increase(was, now float64, endless bool) (d float64, reset bool) {
	if now >= was {
		return now - was, false
	}
	for _, size := range counterWraps {
		if !endless && was < size && was > 0.75*size && now < 0.25*size {
			return size - was + now, false
		}
	}
	if math.IsNaN(was) || math.IsNaN(now) {
		return math.NaN(), false
	}
	return math.NaN(), true
}

// series makes rates of readings, which may be in any order. A volume that a reading
// does not have has no values there, and its next rates cover all the time since.
func series(source string, readings []*reading, u units) *Data {
	slices.SortFunc(readings, func(a, b *reading) int { return cmp.Compare(a.time, b.time) })
	readings = slices.CompactFunc(readings, func(a, b *reading) bool { return a.time == b.time })
	d := &Data{Source: source}
	if len(readings) < 2 {
		return d
	}
	d.Start = readings[0].time
	for _, r := range readings[1:] {
		d.Times = append(d.Times, r.time)
	}
	n := len(d.Times)
	resets := map[string]bool{}
	for _, name := range names(readings, func(r *reading) map[string]*volumeReading { return r.volumes }) {
		d.Volumes = append(d.Volumes, volumeSeries(name, readings, n, u, resets))
	}
	for _, name := range names(readings, func(r *reading) map[string]*poolReading { return r.pools }) {
		d.Pools = append(d.Pools, poolSeries(name, readings, n, u))
	}
	d.offloads(readings, n, u)
	if len(resets) > 0 {
		d.Notes = append(d.Notes, restarted)
	}
	if u.rates {
		d.unspan()
	}
	if step := d.Step(); step > 0 {
		last, gaps := d.Start, 0
		for _, t := range d.Times {
			if float64(t-last)/1e9 > gapFactor*step {
				gaps++
			}
			last = t
		}
		if gaps > 0 {
			d.Notes = append(d.Notes, "samples are missing: rates across the gaps are means")
		}
	}
	return d
}

// restarted is the note on counters that became smaller.
const restarted = "counters restarted: samples in which they did are left out"

// unspan takes back the time that rates are said to cover where readings are missing: they are
// means over the usual time between two, and of the rest of the gap nobody knows.
func (d *Data) unspan() {
	step := d.Step()
	for _, v := range d.Volumes {
		for i, dt := range v.Span {
			if dt > gapFactor*step {
				v.Span[i] = math.NaN()
			}
		}
	}
}

// gapFactor is how many usual times between two readings are a gap.
const gapFactor = 1.6

func names[T any](readings []*reading, of func(*reading) map[string]T) []string {
	set := map[string]bool{}
	for _, r := range readings {
		for name := range of(r) {
			set[name] = true
		}
	}
	var out []string
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func gaps(n int) Series {
	s := make(Series, n)
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}

func volumeSeries(name string, readings []*reading, n int, u units, resets map[string]bool) *Volume {
	v := &Volume{Name: name, Held0: math.NaN(), Span: gaps(n), Held: gaps(n), Lower: gaps(n), Described: map[string]Series{}, States: map[string]Series{}, Labelled: map[string]Series{}}
	for d := range 2 {
		v.Ops[d], v.Host[d], v.Time[d] = gaps(n), gaps(n), gaps(n)
	}
	var was *volumeReading
	at := int64(0)
	for k, r := range readings {
		x := r.volumes[name]
		if x == nil {
			continue
		}
		if v.Pool == "" {
			v.Pool = x.pool
		}
		if k == 0 {
			v.Held0 = x.held
		} else {
			v.Held[k-1] = x.held
			put(v.States, x.states, k-1, n, 1)
		}
		if was != nil {
			i, dt, began := k-1, float64(r.time-at)/1e9, false
			v.Span[i] = dt
			rate := func(old, now, unit float64) float64 {
				if u.rates {
					return now * unit
				}
				inc, reset := increase(old, now, u.endless)
				began = began || reset
				return inc * unit / dt
			}
			if x.anew {
				was = newVolumeReading("")
			}
			for d := range 2 {
				v.Ops[d][i] = rate(was.ops[d], x.ops[d], 1)
				v.Host[d][i] = rate(was.bytes[d], x.bytes[d], u.bytes)
				v.Time[d][i] = rate(was.time[d], x.time[d], u.time)
			}
			v.Lower[i] = rate(was.lower, x.lower, u.bytes)
			if began {
				// All of them began anew, also those that have grown beyond what they were.
				resets[name] = true
				for _, s := range [...]Series{v.Ops[read], v.Ops[write], v.Host[read], v.Host[write], v.Time[read], v.Time[write], v.Lower} {
					s[i] = math.NaN()
				}
				was = newVolumeReading("")
			}
			for op, now := range x.described {
				inc, _ := increase(was.described[op], now, u.endless)
				put(v.Described, map[string]float64{op: inc}, i, n, u.bytes/dt)
			}
			for origin, now := range x.labelled {
				// An origin that never occurred may have no row: then it had none before.
				inc, _ := increase(was.labelled[origin], now, u.endless)
				if was.labelled == nil {
					inc = math.NaN()
				}
				put(v.Labelled, map[string]float64{origin: inc}, i, n, u.bytes/dt)
			}
		}
		was, at = x, r.time
	}
	return v
}

func put(to map[string]Series, values map[string]float64, i, n int, unit float64) {
	for key, x := range values {
		if to[key] == nil {
			to[key] = gaps(n)
		}
		to[key][i] = x * unit
	}
}

func poolSeries(name string, readings []*reading, n int, u units) *Pool {
	p := &Pool{Name: name, Full: gaps(n), Peak: gaps(n), Cap: gaps(n), Back: [2]Series{gaps(n), gaps(n)}, ByOrigin: map[string]Series{}}
	var was *poolReading
	at := int64(0)
	for k, r := range readings {
		x := r.pools[name]
		if x == nil {
			continue
		}
		if k > 0 {
			p.Full[k-1], p.Peak[k-1], p.Cap[k-1] = x.full, x.peak, x.cap
		}
		if was != nil {
			i, dt := k-1, float64(r.time-at)/1e9
			if used, _ := increase(was.seconds, x.seconds, u.endless); !math.IsNaN(x.seconds) && x.cap > 0 {
				if p.Full[i] = min(used/dt/x.cap, 1); x.cap != was.cap {
					p.Full[i] = math.NaN() // nobody knows when the cap changed
				}
				p.Peak[i] = highest(p.Full[i], x.peak, was.peak)
			}
			for d := range 2 {
				inc, _ := increase(was.back[d], x.back[d], u.endless)
				p.Back[d][i] = inc * u.bytes / dt
			}
			for o, now := range x.byOrigin {
				inc, _ := increase(was.byOrigin[o], now, u.endless)
				put(p.ByOrigin, map[string]float64{o: inc}, i, n, u.bytes/dt)
			}
		}
		was, at = x, r.time
	}
	return p
}

func (d *Data) offloads(readings []*reading, n int, u units) {
	by := map[offloadKey]*Offload{}
	for k, r := range readings[1:] {
		dt := float64(r.time-readings[k].time) / 1e9
		for key, now := range r.sums {
			o := by[key]
			if o == nil {
				o = &Offload{key.primitive, key.path, gaps(n)}
				by[key] = o
				d.Offloads = append(d.Offloads, o)
			}
			inc, _ := increase(readings[k].sums[key], now, u.endless)
			o.Bytes[k] = inc / dt
		}
	}
	slices.SortFunc(d.Offloads, func(a, b *Offload) int {
		return cmp.Or(cmp.Compare(a.Primitive, b.Primitive), cmp.Compare(a.Path, b.Path))
	})
}

// quantile of the values that are known, NaN if none is.
func quantile(values []float64, q float64) float64 { return stats.Quantile(values, q) }

// add adds to a sum of what is known; a sum of nothing is not known.
func add(to *float64, x float64) {
	switch {
	case math.IsNaN(x):
	case math.IsNaN(*to):
		*to = x
	default:
		*to += x
	}
}

// highest of values that are known, NaN if none is.
func highest(values ...float64) float64 { return quantile(values, 1) }

// rank is x for the order of a picture, in which what is not known comes last.
func rank(x float64) float64 {
	if math.IsNaN(x) {
		return math.Inf(-1)
	}
	return x
}
