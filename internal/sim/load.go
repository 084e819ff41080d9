package sim

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/stats"
)

// load is a workload generator of one volume.
type load struct {
	j     *job
	d     *device
	k     *disk
	rng   Rand
	ppm   uint64 // writes, in millionths
	hot   uint64 // reads of the hot span, in millionths
	size  uint64 // of every I/O, if it has no histogram
	align uint64
	span  uint64
	hotAt uint64 // bytes
	sizes []IOSize
	total uint64 // of their weights
	pos   uint64
	laps  int
	limit int // commands under way; 0 is no limit
	gap   int64
	now   int   // commands under way
	think int   // of a closed loop: how many of its commands wait to be issued
	due   bool  // an arrival of an open loop is scheduled
	at    int64 // for when, on the executor's clock
	on    bool
	until int64 // end of the present burst
	next  func()
	done  func(*command)
}

// What a rate may be: I/Os a second, and bytes a second.
const (
	minRate, maxRate = 0.001, 1e9
	maxBandwidth     = 1 << 50
)

// check returns what of a load cannot be, and how to mend it.
func (s *Load) check() error {
	switch {
	case s.IO == 0 && len(s.Sizes) == 0:
		return errors.New("a load needs io or sizes")
	case s.Outstanding == 0 && s.Rate == 0 && s.Bandwidth == 0:
		return errors.New("a load needs outstanding (a closed loop), rate or bandwidth (an open one)")
	case !fraction(s.Write) || s.Hot != nil && !fraction(s.Hot.Reads):
		return errors.New("fractions go from 0 to 1")
	case s.IO%512 != 0 || s.IO > 16<<20:
		return fmt.Errorf("an I/O of %s; sizes are multiples of 512 up to 16 MiB", s.IO)
	case s.Burst != nil && (s.Burst.For == 0 || s.Burst.Every == 0): // it would follow itself without time between
		return errors.New("a burst takes time, and so does what is between two; give for and every, such as burst: {for: 1s, every: 10s}")
	}
	if err := s.checkSpread(); err != nil {
		return err
	}
	weights := 0
	for _, x := range s.Sizes {
		if x.Size == 0 || x.Size%512 != 0 || x.Size > 16<<20 {
			return fmt.Errorf("an I/O of %s; sizes are multiples of 512 up to 16 MiB", x.Size)
		}
		if x.Weight < 0 || x.Weight > 1e9 {
			return fmt.Errorf("the size %s has the weight %d; weights go from 0 to 10^9", x.Size, x.Weight)
		}
		weights += x.Weight
	}
	if len(s.Sizes) > 0 && weights == 0 {
		return errors.New("no size has a weight; give each one, such as sizes: [{size: 4KiB, weight: 3}, {size: 64KiB, weight: 1}]")
	}
	if err := s.checkRate(max(s.Rate, s.RateMax), s.Bandwidth); err != nil {
		return err
	}
	open := max(s.Rate, s.RateMax) > 0 || s.Bandwidth > 0
	for _, c := range s.Changes {
		if err := s.checkRate(c.Rate, c.Bandwidth); err != nil {
			return fmt.Errorf("change at %s: %w", c.At, err)
		}
		if opens := c.Rate > 0 || c.Bandwidth > 0; opens != open && (open || s.Burst == nil) {
			return fmt.Errorf("change at %s: an open loop stays one, with a rate or bandwidth above 0, and a closed one without", c.At)
		}
	}
	return s.checkRate(s.Rate, s.Bandwidth)
}

// checkRate looks at a rate and a bandwidth of which either may be 0.
func (s *Load) checkRate(rate float64, bandwidth Size) error {
	switch {
	case !(rate == 0 || rate >= minRate && rate <= maxRate):
		return fmt.Errorf("a rate of %g I/Os a second; give %g to 10^9", rate, minRate)
	case bandwidth > maxBandwidth:
		return fmt.Errorf("a bandwidth of %s; give 1 PiB or less", bandwidth)
	case bandwidth > 0 && milliRate(uint64(bandwidth), s.meanSize()) == 0:
		return fmt.Errorf("a bandwidth of %s is less than an I/O in 1000 s; give more", bandwidth)
	}
	return nil
}

// meanSize is the mean I/O in bytes.
func (s *Load) meanSize() uint64 {
	total, sum := uint64(0), uint64(0)
	for _, x := range s.Sizes {
		total += uint64(x.Weight)
		sum += uint64(x.Size) * uint64(x.Weight)
	}
	if total == 0 {
		return uint64(s.IO)
	}
	return sum / total
}

// milliRate is a bandwidth in thousandths of an I/O a second.
func milliRate(bandwidth, size uint64) uint64 { return bandwidth * 1000 / size }

func (j *job) makeLoads(vols []*volume) error {
	s := j.spec
	var weights []uint64
	sum := uint64(0)
	pick := newRand(j.r.s.Seed, "weights of "+s.Name)
	for range vols {
		w := uint64(1 << 16)
		if s.LogNormal > 0 {
			w = pick.logNormal(int64(s.LogNormal * 1000))
		}
		weights = append(weights, w)
		sum += w
	}
	for i, v := range vols {
		l := &load{j: j, d: j.h.device(v), rng: newRand(j.r.s.Seed, s.Name+" on "+v.name), ppm: uint64(s.Write*1e6 + 0.5), limit: s.Outstanding, sizes: s.Sizes}
		var err error
		if l.k, err = newDisk(l.d, s.Disk, uint64(s.Size)); err != nil {
			return err
		}
		largest, err := l.setSizes(s)
		if err != nil {
			return err
		}
		l.span = l.k.bytes
		if s.Span != 0 {
			l.span = min(uint64(s.Span), l.k.bytes)
		}
		l.span -= l.span % l.align
		if l.span < max(l.align, largest) {
			return fmt.Errorf("its span, in steps of align, is %s and smaller than one I/O of %s; give more", Size(l.span), Size(largest))
		}
		if s.Hot != nil {
			l.hot = uint64(s.Hot.Reads*1e6 + 0.5)
			l.hotAt = max(l.up(largest), min(uint64(s.Hot.Span), l.span)/l.align*l.align)
		}
		l.done = l.ended
		l.next = l.arrive
		rate := s.Rate
		if s.RateMax > s.Rate {
			rate = max(rate+(s.RateMax-s.Rate)*float64(pick.N(1<<20))/(1<<20), minRate)
		}
		l.setRate(rate, uint64(s.Bandwidth), weights[i], sum)
		for _, c := range s.Changes {
			w, of := weights[i], sum
			j.r.changes = append(j.r.changes, change{int64(c.At), func() { l.change(c.Rate, uint64(c.Bandwidth), w, of) }})
		}
		j.loads = append(j.loads, l)
		if s.Laps > 0 {
			j.total += l.span * uint64(s.Laps)
		}
	}
	if s.Laps > 1 && s.Pattern == "sequential" { // others have no laps
		j.lap1.latency = newLatencies(2)
	}
	if s.Bytes > 0 {
		j.total = uint64(s.Bytes)
	}
	return nil
}

// change is a rate that changes at a time.
type change struct {
	at int64
	fn func()
}

// setSizes takes the sizes of I/Os and what their addresses are multiples of, and returns the largest size.
func (l *load) setSizes(s *JobSpec) (largest uint64, err error) {
	l.size = uint64(s.IO)
	largest, err = l.size, l.d.v.wholeBlocks(s.IO)
	for _, x := range s.Sizes {
		l.total += uint64(x.Weight)
		largest = max(largest, uint64(x.Size))
		if err == nil {
			err = l.d.v.wholeBlocks(x.Size)
		}
	}
	if l.align = uint64(s.Align); l.align == 0 {
		l.align = 1 << bits.Len64(largest-1)
		if s.Pattern == "sequential" {
			l.align = largest
		}
	}
	bs := uint64(l.d.v.info.BlockSize)
	l.align = (l.align + bs - 1) / bs * bs
	return largest, err
}

// up is a number of bytes in whole steps of the alignment.
func (l *load) up(bytes uint64) uint64 { return (bytes + l.align - 1) / l.align * l.align }

// place is a random address in the first so many bytes, which have room for the I/O.
func (l *load) place(within, size uint64) uint64 {
	return l.rng.N((within-size)/l.align+1) * l.align
}

// wholeBlocks returns an error for I/Os that are not whole blocks of the volume: their commands would be of fewer.
func (v *volume) wholeBlocks(io Size) error {
	if bs := v.info.BlockSize; uint64(io)%uint64(bs) != 0 {
		return fmt.Errorf("an I/O of %s on volume %s, whose blocks are of %d bytes; give a multiple of that", io, v.name, bs)
	}
	return nil
}

// setRate makes the gap between arrivals: rate is I/Os a second, or bytes a second
// with bandwidth; of a total only the volume's part, weight out of all.
func (l *load) setRate(rate float64, bandwidth, weight, all uint64) {
	l.gap = 0
	// In thousandths of an I/O a second.
	milli := uint64(rate*1000 + 0.5)
	if bandwidth != 0 {
		milli = milliRate(bandwidth, l.j.spec.meanSize())
	}
	if milli == 0 {
		return
	}
	gap := uint64(1e12) / milli
	if l.j.spec.Total {
		hi, lo := bits.Mul64(gap, all)
		gap, _ = bits.Div64(hi%weight, lo, weight)
	}
	l.gap = int64(max(1, gap))
}

func (j *job) startLoads() {
	for _, l := range j.loads {
		l.begin()
	}
}

func (l *load) begin() {
	if b := l.j.spec.Burst; b != nil {
		l.burst()
		return
	}
	l.on = true
	l.run()
}

// run starts a closed loop's commands, or the arrivals of an open one. What is left of the burst before goes on in this
// one, and counts: the commands under way, those that think, and the arrival that is due.
func (l *load) run() {
	if l.gap > 0 {
		if !l.due {
			l.later()
		}
		return
	}
	for range l.limit - l.now - l.think {
		l.issue()
	}
}

// burst waits for the next burst and runs it.
func (l *load) burst() {
	x, b := l.j.r.exec, l.j.spec.Burst
	x.Call(x.Now()+l.rng.Exp(int64(b.Every)), func() {
		if !l.j.running {
			return
		}
		l.on, l.until = true, x.Now()+int64(b.For)
		l.run()
		x.Call(l.until, func() {
			l.on = false
			l.burst()
		})
	})
}

func (l *load) later() {
	gap := l.gap
	if l.j.spec.Arrival == "poisson" {
		gap = l.rng.Exp(gap)
	}
	l.due, l.at = true, l.j.r.exec.Now()+gap
	l.j.r.exec.Call(l.at, l.next)
}

// change gives the load another rate from now on. The arrival that is due was drawn at the rate before: what is left until then
// changes as the mean does, so that the new rate holds at once, and no random number more is drawn.
func (l *load) change(rate float64, bandwidth, weight, all uint64) {
	was := l.gap
	l.setRate(rate, bandwidth, weight, all)
	switch {
	case (was == 0) != (l.gap == 0):
		l.due = false
		if l.j.running && l.on {
			l.run()
		}
	case l.due && l.gap != was:
		now, left := l.j.r.exec.Now(), uint64(1<<62)
		if hi, lo := bits.Mul64(uint64(l.at-now), uint64(l.gap)); hi < uint64(was) {
			q, _ := bits.Div64(hi, lo, uint64(was))
			left = min(left, q)
		}
		if at := now + int64(left); at != l.at {
			l.at = at
			l.j.r.exec.Call(at, l.next)
		}
	}
}

// arrive is an arrival of an open loop, if a change has not moved it.
func (l *load) arrive() {
	if !l.due || l.at != l.j.r.exec.Now() {
		return
	}
	if l.due = false; !l.j.running || !l.on {
		return
	}
	if l.limit == 0 || l.now < l.limit {
		l.issue()
	}
	l.later()
}

// issue makes the next I/O and sends it.
func (l *load) issue() {
	s := l.j.spec
	c := l.d.get(l.done)
	c.load = l
	size := l.size
	if l.total > 0 {
		at := l.rng.N(l.total)
		for _, x := range l.sizes {
			if at < uint64(x.Weight) {
				size = uint64(x.Size)
				break
			}
			at -= uint64(x.Weight)
		}
	}
	write := l.ppm == 1e6 || l.ppm > 0 && l.rng.Chance(l.ppm)
	var off uint64
	switch {
	case s.Pattern == "sequential":
		if off = l.pos; off+size > l.span {
			off = 0
			l.laps++
		}
		l.pos = off + size
	case !write && l.hot > 0 && l.rng.Chance(l.hot):
		off = l.place(l.hotAt, size)
	default:
		off = l.place(l.span, size)
	}
	c.rw(write, off, size)
	c.issued = l.j.r.exec.Now()
	if c.later = l.laps > 0; c.later && write {
		l.j.lap1.later += size
	}
	l.now++
	if l.k.left == 0 {
		c.send()
	} else {
		l.k.submit(c)
	}
	if s.Timeout > 0 {
		c.expire(int64(s.Timeout), l.j)
	}
}

// ended books an I/O and, in a closed loop, makes the next.
func (l *load) ended(c *command) {
	j := l.j
	now := j.r.exec.Now()
	l.now--
	switch {
	case c.aborted:
		j.aborted++
	case c.failed:
		j.failed++
	default:
		j.ios++
		j.bytes += c.bytes
		wait := now - c.issued
		j.count(c.bytes, wait)
		record(j.latency, wait)
		p := &j.phase[0]
		if l.k.left == 0 {
			p = &j.phase[1]
		}
		p.ios++
		p.bytes += c.bytes
		p.wait += wait
		p.end = j.r.now()
		if j.lap1.latency != nil && !c.later {
			j.bookLap1(wait)
		}
		c.countIO(now)
	}
	if j.total > 0 && j.bytes >= j.total {
		if j.running {
			j.stop()
		}
		return
	}
	if l.gap == 0 && j.running && l.on {
		if t := int64(j.spec.Think); t > 0 {
			l.think++
			j.r.exec.Call(now+t, func() {
				l.think--
				if j.running && l.on && l.gap == 0 {
					l.issue()
				}
			})
			return
		}
		l.issue()
	}
}

// firstLap is what the first lap of a load with several did. The next lap begins while the last I/Os of this one are under
// way, so neither a time nor the state of the disk divides the two.
type firstLap struct {
	latency *hdrhistogram.Histogram // nil if there is only one lap
	wait    int64
	end     int64  // of its last I/O so far, in the run's time
	wire    int64  // bytes of data that the host sent for it until then
	later   uint64 // bytes of writes of later laps, which are sent when one of this lap is
}

func (j *job) bookLap1(wait int64) {
	p := &j.lap1
	record(p.latency, wait)
	p.wait += wait
	p.end = j.r.now()
	p.wire = int64(j.h.wire[1] - j.wireOut - p.later)
}

// value is a figure of the lap by its name behind lap1.
func (p *firstLap) value(what string, began int64) (float64, bool) {
	if p.latency == nil || p.latency.TotalCount() == 0 {
		return 0, false
	}
	seconds := float64(p.end-began) / 1e9
	switch what {
	case "seconds":
		return seconds, true
	case "latency_ms":
		return meanOf(p.wait, uint64(p.latency.TotalCount()))
	case "p99_ms":
		return float64(stats.Percentile(p.latency, 99)) / 1e6, true
	case "wire_mb_s":
		return perSecond(uint64(p.wire), seconds) / mb, p.wire >= 0 // a cache sends later than its guest writes
	}
	return 0, false
}

// expire aborts the command when it is not back after a time, as a host's timeout does;
// what becomes of it is the owner's business.
func (c *command) expire(after int64, j *job) {
	x := j.r.exec
	c.h.serial++
	serial := c.h.serial
	c.serial, c.task.Tag = serial, serial
	x.Call(x.Now()+after, func() {
		if c.serial != serial || c.task.Tag != serial {
			return
		}
		j.r.event("job %s: a command on %s is not back after %s: aborted", j.spec.Name, c.d.v.name, Duration(after))
		c.d.p.nexus.Manage(scsi.AbortTask, c.d.lun, serial, func(scsi.TMFResponse) {})
	})
}
