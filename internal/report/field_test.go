package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A second model of arrays, for judging alone. It shares nothing with the one of model_test.go, nor with the firmware:
// commands wait in one queue by age, what is dirty leaves in proportion to what each volume holds, reads that miss take
// the disks from the destager, hosts come in shifts, waves and jobs, and what writes beneath the cache are
// snapshots (background copy and copy-on-write) and migrations. Causes can be left out, so that a
// tower's is known by what happens without it.

// fieldWriter writes to a volume below the hosts.
type fieldWriter struct {
	from         int     // second
	bytes, rate  float64 // in all, and a second
	window       float64 // bytes that it keeps waiting
	source       *fieldVolume
	grains       float64 // copy-on-write: bytes copied for a byte that hosts write to source
	done, queued float64
}

type fieldVolume struct {
	name        string
	write, read []float64 // bytes and operations a second, by second
	burst       []float64 // of write, what is no usual load
	readBurst   []float64
	usual       [2]float64 // means of read and write
	io          float64    // bytes of a write
	again       float64    // part of writes that replace what is dirty
	writer      *fieldWriter

	dirty, queued               float64
	hostIn, lower, below, fresh float64 // sums; fresh is of the second
	ops, time                   [2]float64
}

// fieldEntry is what waits for the cache, of one second.
type fieldEntry struct {
	v     *fieldVolume
	bytes float64
	at    int
	below bool
}

// fieldCase is what a seed gives.
type fieldCase struct {
	kind              string
	rng               *rand.Rand
	seconds, interval int
	volumes           []*fieldVolume
	cap, cut          float64 // bytes; cut is the part that is left after cutAt
	cutAt             int
	disks             float64   // bytes a second that they take
	speed             []float64 // of the disks, by second
	low, high         float64   // fullness at which the destager begins, and does all it can
	hits, missCost    float64   // of reads; bytes that a miss costs the disks
	rates             bool      // the source publishes means, not sums
	noise, missing    float64
	late              bool // gauges are read a second after counters
}

// fieldKinds are the kinds of case.
var fieldKinds = []string{"hosts", "background copy", "copy-on-write", "migration", "disks", "caps", "mixed", "two writers"}

// fieldShape is the load of a volume over time, about 1 in the mean.
func fieldShape(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	period, phase := float64(900+r.IntN(3600)), 2*math.Pi*r.Float64()
	kind, level, duty := r.IntN(4), 1.0, 0.2+0.5*r.Float64()
	for i := range x {
		at := float64(i)/period + phase
		switch kind {
		case 0: // a wave
			x[i] = 1 + 0.7*math.Sin(2*math.Pi*at)
		case 1: // jobs: on and off
			if _, f := math.Modf(at); f < duty {
				x[i] = 1 / duty
			}
		case 2: // steps at random
			if r.IntN(300) == 0 {
				level = math.Exp(0.6 * r.NormFloat64())
			}
			x[i] = level
		default: // a walk, back to 1
			level = math.Exp(0.995*math.Log(level) + 0.05*r.NormFloat64())
			x[i] = level
		}
		x[i] *= 0.7 + 0.6*r.Float64()
	}
	return x
}

func newFieldCase(seed uint64, kind string) *fieldCase {
	r := rand.New(rand.NewPCG(seed, 0xf1e1d))
	between := func(a, b float64) float64 { return a + (b-a)*r.Float64() }
	c := &fieldCase{kind: kind, rng: r, seconds: 7200, interval: 60, cutAt: math.MaxInt, cut: 1,
		cap: between(1, 16) * 1e9, disks: between(100, 900) * 1e6, low: between(0.1, 0.5), high: between(0.6, 0.95),
		hits: between(0.2, 0.9), missCost: between(32, 128) * 1024}
	switch r.IntN(4) {
	case 0: // a monitoring tool's 5-minute means
		c.interval, c.rates = 300, true
	case 1:
		c.missing = between(0.05, 0.3)
	case 2:
		c.noise = between(0.005, 0.03)
	}
	c.late = r.IntN(3) == 0
	c.speed = slices.Repeat([]float64{1}, c.seconds)
	n := 5 + r.IntN(30)
	writes, reads := c.disks*between(0.1, 0.55), c.disks*between(0.02, 0.3)/c.missCost/(1-c.hits)
	weights, sum := make([]float64, n), 0.0
	for i := range n {
		weights[i] = math.Pow(1-r.Float64(), -0.8) // a few do most
		sum += weights[i]
	}
	for i, w := range weights {
		v := &fieldVolume{name: fmt.Sprintf("lun_%03d", i), io: math.Pow(2, 12+float64(r.IntN(6))), burst: make([]float64, c.seconds), readBurst: make([]float64, c.seconds)}
		if r.IntN(3) == 0 {
			v.again = between(0, 0.9)
		}
		v.write, v.read = fieldShape(r, c.seconds), fieldShape(r, c.seconds)
		for t := range v.write {
			v.write[t] *= writes * w / sum
			v.read[t] *= reads * w / sum
		}
		c.volumes = append(c.volumes, v)
	}
	c.happens(between)
	for _, v := range c.volumes {
		for t := range v.write {
			v.usual[read] += v.read[t] / float64(c.seconds)
			v.usual[write] += v.write[t] / float64(c.seconds)
		}
	}
	return c
}

// happens puts in what a kind is about.
func (c *fieldCase) happens(between func(a, b float64) float64) {
	r := c.rng
	begin := func() int { return 1200 + r.IntN(c.seconds-3600) }
	any := func() *fieldVolume { return c.volumes[r.IntN(len(c.volumes))] }
	burst := func() { // a host that restores, or a database that loads
		v, from := any(), begin()
		rate, to := c.disks*between(0.3, 2), min(from+int(between(30, 900)), c.seconds)
		for t := from; t < to; t++ {
			v.burst[t] += rate
		}
	}
	slow := func() { // a rebuild, a path that is lost; or somebody reads everything
		from := begin()
		to := min(from+int(between(60, 1200)), c.seconds)
		if r.IntN(2) == 0 {
			f := between(0.05, 0.6)
			for t := from; t < to; t++ {
				c.speed[t] = f
			}
			return
		}
		v := any()
		for t := from; t < to; t++ {
			v.readBurst[t] += c.disks * between(0.5, 1.5) / c.missCost / (1 - c.hits)
		}
	}
	writer := func() *fieldWriter {
		// From a file to a file system.
		return &fieldWriter{from: begin(), bytes: 20e6 * math.Pow(3000, r.Float64()), rate: c.disks * between(0.1, 1.5), window: between(16, 512) * (1 << 20)}
	}
	target := func(idle bool) *fieldVolume {
		v := any()
		if v.writer != nil {
			return target2(c, v)
		}
		for t := range v.write {
			if idle { // nobody writes to what a snapshot is copied to
				v.write[t], v.burst[t] = 0, 0
			}
		}
		return v
	}
	switch c.kind {
	case "hosts":
		burst()
		burst()
	case "background copy":
		target(true).writer = writer()
	case "copy-on-write":
		v, w := target(true), writer()
		for w.source = any(); w.source == v; w.source = any() {
		}
		w.grains = between(1, 8) // of 64 to 256 KiB, for writes of less
		v.writer = w
	case "migration":
		target(false).writer = writer()
	case "disks":
		slow()
		slow()
	case "caps":
		c.cut, c.cutAt = between(0.02, 0.5), begin()
	case "mixed":
		target(r.IntN(2) == 0).writer = writer()
		burst()
		slow()
	case "two writers":
		target(false).writer, target(true).writer = writer(), writer()
	}
}

// target2 is another volume than v that has no writer yet.
func target2(c *fieldCase, v *fieldVolume) *fieldVolume {
	at := slices.Index(c.volumes, v)
	for k := range c.volumes {
		if o := c.volumes[(at+k)%len(c.volumes)]; o.writer == nil {
			return o
		}
	}
	return v
}

// fieldRun is a case carried out.
type fieldRun struct {
	c        *fieldCase
	without  string
	now      int
	used     float64
	queue    []fieldEntry
	fulls    []float64 // by second
	readings []*reading
	mean     Series // response of all I/O by interval, as it was
	below    map[string]float64
	last     [2]float64 // operations and their time, at the last interval
}

// run carries the case out without one of its causes.
func (c *fieldCase) run(without string) *fieldRun {
	x := &fieldRun{c: c, without: without, below: map[string]float64{}}
	for _, v := range c.volumes {
		v.dirty, v.queued, v.hostIn, v.lower, v.below, v.fresh = 0, 0, 0, 0, 0, 0
		v.ops, v.time = [2]float64{}, [2]float64{}
		if v.writer != nil {
			v.writer.done, v.writer.queued = 0, 0
		}
	}
	for ; x.now < c.seconds; x.now++ {
		if x.now%c.interval == 0 {
			x.read()
		}
		x.step()
		if c.late && x.now%c.interval == 0 {
			x.gauges()
		}
	}
	x.read()
	for _, v := range c.volumes {
		if v.below > 0 {
			x.below[v.name] = v.below
		}
	}
	return x
}

// limit is the partition's cap now.
func (x *fieldRun) limit() float64 {
	switch {
	case x.without == "cache":
		return 100 * x.c.cap
	case x.now >= x.c.cutAt:
		return x.c.cap * x.c.cut
	}
	return x.c.cap
}

func (x *fieldRun) step() {
	c, cap := x.c, x.limit()
	power, misses := c.disks, 0.0
	if x.without != "back end" {
		power *= c.speed[x.now]
	}
	for _, v := range c.volumes {
		x.arrive(v)
		misses += x.reads(v) * (1 - c.hits)
	}
	// Reads go first; the destager has the rest, and a tenth at the least.
	busy := min(misses*c.missCost/power, 0.95)
	drain := power * max(1-busy, 0.1)
	if len(x.queue) == 0 {
		drain *= min(max((x.used/cap-c.low)/(c.high-c.low), 0), 1)
	}
	drain = min(drain, x.used)
	for _, v := range c.volumes {
		if x.used > 0 {
			out := v.dirty * drain / x.used
			v.lower, v.dirty = v.lower+out, v.dirty-out
		}
		n := x.reads(v)
		v.ops[read] += n
		v.time[read] += n * (0.0004 + (1-c.hits)*0.005*(1+drain/power)/(1-busy))
	}
	x.used -= drain
	x.admit(cap)
	x.fulls = append(x.fulls, min(x.used/cap, 1))
}

// reads are what hosts read of v in this second. More than usual of them is a matter of the disks.
func (x *fieldRun) reads(v *fieldVolume) float64 {
	if x.without == "back end" {
		return v.usual[read]
	}
	return v.read[x.now] + v.readBurst[x.now]
}

// arrive queues what comes for v in this second.
func (x *fieldRun) arrive(v *fieldVolume) {
	n := v.write[x.now] + v.burst[x.now]
	if x.without == "hosts" {
		n = v.usual[write] // no more than they usually write
	}
	// Hosts have so much outstanding, and wait.
	n = min(n, max(2*n+8e6-v.queued, 0))
	if n > 0 {
		x.queue = append(x.queue, fieldEntry{v, n, x.now, false})
		v.queued += n
	}
	w := v.writer
	if w == nil || x.without == "undercover" || x.now < w.from {
		return
	}
	n = min(w.rate, w.window-w.queued, w.bytes-w.done-w.queued)
	if w.source != nil {
		n = min(w.source.fresh*w.grains, w.bytes-w.done-w.queued)
	}
	if n > 0 {
		x.queue = append(x.queue, fieldEntry{v, n, x.now, true})
		w.queued += n
	}
}

// admit lets in what there is room for, by age.
func (x *fieldRun) admit(cap float64) {
	for _, v := range x.c.volumes {
		v.fresh = 0
	}
	waits := 0.0
	for len(x.queue) > 0 && cap-x.used > 1 {
		e := &x.queue[0]
		fresh := 1.0 // the part that does not replace what is there
		if !e.below && e.v.dirty > e.bytes {
			fresh -= e.v.again
		}
		n := min(e.bytes, (cap-x.used)/fresh)
		stays := n * fresh
		x.used, e.v.dirty, e.bytes = x.used+stays, e.v.dirty+stays, e.bytes-n
		if e.below {
			e.v.below, e.v.writer.done, e.v.writer.queued = e.v.below+n, e.v.writer.done+n, e.v.writer.queued-n
		} else {
			if waits = float64(x.now - e.at); e.bytes > 0 || waits > 0 {
				waits += 0.5
			}
			e.v.hostIn, e.v.fresh, e.v.queued = e.v.hostIn+n, e.v.fresh+n, e.v.queued-n
			e.v.ops[write] += n / e.v.io
			e.v.time[write] += n / e.v.io * (0.0005 + waits)
		}
		if e.bytes <= 0 {
			x.queue = x.queue[1:]
		}
	}
}
