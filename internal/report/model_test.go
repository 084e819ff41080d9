package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/arraysim/arraysim/internal/metrics"
)

// A model of an array, second by second, apart from the one that findings use: volumes
// of one pool share a drain fairly, writes wait in one queue at the cap, copies keep an
// amount outstanding. It speaks in the counters of a real array.

type modelVolume struct {
	name                    string
	rate                    float64 // bytes a second that hosts write
	readRate                float64
	dirty, hostIn, lower    float64
	ops, time               [2]float64
	copyBytes, copyRate     float64 // to copy to it, and how fast it could go
	copyFrom                int
	copied                  float64
	burstFrom, burstTo      int
	burst                   float64
	shownHost, shownLower   float64 // as counters show them: with noise
	shownOps, shownTime     [2]float64
	lastHost, lastLower     float64
	lastOps, lastTime       [2]float64
	waitingHost, waitedCopy float64
}

type modelArray struct {
	rng                *rand.Rand
	cap, used, seconds float64
	drain, idleDrain   float64
	volumes            []*modelVolume
	queued             float64
	noise              float64
	now                int
	offset             float64 // of all counters: before they wrap
	wrap               float64
	resetAt            int
	base               map[string]float64
	backBytes          float64
}

func (m *modelArray) step() {
	m.now++
	// What wants in.
	want := 0.0
	copying := 0.0
	for _, v := range m.volumes {
		r := v.rate
		if m.now >= v.burstFrom && m.now < v.burstTo {
			r += v.burst
		}
		r *= 0.8 + 0.4*m.rng.Float64()
		v.waitingHost += r
		if m.now >= v.copyFrom && v.copied < v.copyBytes {
			v.waitedCopy = min(v.copyRate, v.copyBytes-v.copied)
			copying += m.queued
		} else {
			v.waitedCopy = 0
		}
		want += v.waitingHost + v.waitedCopy
	}
	// Drain: by the ramp, or all there is when somebody waits; max-min fair by volume.
	drain := m.drain
	if f := m.used / m.cap; m.used+want < m.cap {
		drain = m.idleDrain * max(f-0.4, 0) / 0.5
	}
	left := min(drain, m.used)
	for range 8 {
		active := 0
		for _, v := range m.volumes {
			if v.dirty > 1 {
				active++
			}
		}
		if active == 0 || left < 1 {
			break
		}
		share := left / float64(active)
		for _, v := range m.volumes {
			x := min(v.dirty, share)
			v.dirty, v.lower, left = v.dirty-x, v.lower+x, left-x
			m.used -= x
			m.backBytes += x
		}
	}
	// Admission: everybody gets the same part of what he wants.
	part, wait := 1.0, 0.0
	if room := m.cap - m.used; want > room {
		part = room / want
		wait = (want - room + copying) / m.drain
	}
	for _, v := range m.volumes {
		h := v.waitingHost * part
		v.waitingHost -= h
		c := v.waitedCopy * part
		v.copied += c
		v.dirty += h + c
		m.used += h + c
		v.hostIn += h
		ops := h / 32768
		v.ops[write] += ops
		v.time[write] += ops * (0.0007 + wait)
		reads := v.readRate
		v.ops[read] += reads
		v.time[read] += reads * 0.004
	}
	m.seconds += m.used
}

// show lets the counters take what happened since the last time, with noise.
func (m *modelArray) show() {
	n := func() float64 { return 1 + m.noise*m.rng.NormFloat64() }
	for _, v := range m.volumes {
		v.shownHost += (v.hostIn - v.lastHost) * max(n(), 0)
		v.shownLower += (v.lower - v.lastLower) * max(n(), 0)
		v.lastHost, v.lastLower = v.hostIn, v.lower
		for d := range 2 {
			v.shownOps[d] += v.ops[d] - v.lastOps[d]
			v.shownTime[d] += v.time[d] - v.lastTime[d]
			v.lastOps[d], v.lastTime[d] = v.ops[d], v.time[d]
		}
	}
}

// reading is what the array publishes now.
func (m *modelArray) reading() *reading {
	m.show()
	r := newReading(int64(m.now) * 1e9)
	p := r.pool("pool")
	p.cap, p.seconds = m.cap, m.seconds
	p.full, p.peak = m.used/m.cap, m.used/m.cap
	count := func(key string, x float64) float64 {
		if m.resetAt > 0 && m.now >= m.resetAt {
			if _, ok := m.base[key]; !ok {
				m.base[key] = x
			}
			return x - m.base[key]
		}
		if m.wrap > 0 {
			return math.Mod(x+m.offset, m.wrap)
		}
		return x
	}
	for _, v := range m.volumes {
		x := r.volume(v.name, "pool")
		for d := range 2 {
			x.ops[d] = count(v.name+"o"+fmt.Sprint(d), v.shownOps[d])
			x.time[d] = count(v.name+"t"+fmt.Sprint(d), v.shownTime[d])
		}
		x.bytes[write] = count(v.name+"b", v.shownHost/512)
		x.bytes[read] = 0
		x.lower = count(v.name+"l", v.shownLower/512)
		x.held = max(v.dirty*(1+m.noise*m.rng.NormFloat64()), 0)
	}
	return r
}

// Emit makes the array a source of our own counters, the origin label included.
func (m *modelArray) Emit(e metrics.Emitter) {
	e.Value(metrics.CacheSize, m.cap/0.3)
	e.Value(metrics.CacheLimit, m.cap, "pool")
	e.Value(metrics.CacheUsed, m.used, "pool")
	e.Value(metrics.CacheUsedSeconds, m.seconds, "pool")
	for _, v := range m.volumes {
		e.Value(metrics.HostTransferred, v.hostIn, v.name, "pool", "write")
		for d, op := range directions {
			h := metrics.Histogram{Count: uint64(v.ops[d]), Sum: int64(v.time[d] * 1e9)}
			e.Histogram(metrics.HostDuration, &h, v.name, op)
		}
		e.Value(metrics.CacheDirty, v.dirty, "pool", v.name, "host")
		e.Value(metrics.CacheDestaged, v.lower, "pool", v.name, "host")
	}
}

func (m *modelArray) snapshot(s *metrics.Snapshot) { s.Take(int64(m.now)*1e9, &sync.Mutex{}, m) }

// modelScenario is what a seed gives.
type modelScenario struct {
	kind     string
	array    *modelArray
	seconds  int
	interval int
	missing  float64 // part of the readings that are lost
	culprits map[string]float64
	degrade  func(*reading) // takes out what the source does not have
}

// modelKinds are the kinds of scenarios that findings are judged by.
var modelKinds = []string{"host-only", "offload", "both", "noisy", "5-minute samples", "missing samples", "wraps", "resets"}

// newModel makes the scenario of a seed; offload says whether there is one.
func newModel(seed uint64, kind string, offload bool) *modelScenario {
	r := rand.New(rand.NewPCG(seed, 41))
	m := &modelArray{rng: r, cap: (2 + 10*r.Float64()) * 1e9, base: map[string]float64{}}
	m.drain = (150 + 500*r.Float64()) * 1e6
	m.idleDrain = m.drain * 0.9
	s := &modelScenario{kind: kind, array: m, seconds: 3600, interval: 60, culprits: map[string]float64{}}
	n := 8 + r.IntN(40)
	load := m.drain * (0.2 + 0.4*r.Float64())
	var weights []float64
	sum := 0.0
	for range n {
		w := math.Exp(r.NormFloat64())
		weights, sum = append(weights, w), sum+w
	}
	for i := range n {
		v := &modelVolume{name: fmt.Sprintf("vol%02d", i), rate: load * weights[i] / sum, readRate: 20 * r.Float64()}
		if r.IntN(5) == 0 {
			v.rate = 300 * r.Float64()
		}
		m.volumes = append(m.volumes, v)
	}
	if kind == "host-only" || kind == "both" || r.IntN(3) == 0 {
		// Hosts that write more than the back end takes, for a while.
		for range 1 + r.IntN(2) {
			v := m.volumes[r.IntN(n)]
			v.burstFrom = 600 + r.IntN(2000)
			v.burstTo = v.burstFrom + 120 + r.IntN(500)
			v.burst = m.drain * (0.3 + r.Float64())
		}
	}
	switch kind {
	case "noisy":
		m.noise = 0.02 + 0.04*r.Float64()
	case "5-minute samples":
		s.interval, s.seconds = 300, 7200
	case "missing samples":
		s.missing = 0.25
	case "wraps":
		m.wrap = 1 << 32
		m.offset = 1<<32 - 20e6
		if r.IntN(2) == 0 {
			m.wrap = 1 << 64
			m.offset = 1<<64 - 40e6
		}
	case "resets":
		m.resetAt = 900 + r.IntN(1800)
	}
	if offload {
		m.queued = (64 + 400*r.Float64()) * (1 << 20)
		for range 1 + r.IntN(2) {
			v := m.volumes[r.IntN(n)]
			v.copyFrom = 500 + r.IntN(s.seconds-1500)
			v.copyBytes = (4 + 60*r.Float64()) * 1e9
			v.copyRate = m.drain * (0.4 + 1.2*r.Float64())
			s.culprits[v.name] = v.copyBytes
		}
	}
	return s
}

// run returns the data that somebody would have who samples the array.
func (s *modelScenario) run() *Data {
	var all []*reading
	for t := 0; t <= s.seconds; t++ {
		if t > 0 {
			s.array.step()
		}
		if t%s.interval == 0 {
			r := s.array.reading()
			if s.degrade != nil {
				s.degrade(r)
			}
			if s.array.rng.Float64() >= s.missing {
				all = append(all, r)
			}
		}
	}
	for _, v := range s.array.volumes {
		if _, ok := s.culprits[v.name]; ok {
			s.culprits[v.name] = v.copied
		}
	}
	d := series(s.kind, all, units{bytes: 512, time: 1})
	d.CacheSize = s.array.cap / 0.3
	return d
}
