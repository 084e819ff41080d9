package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/lab/plug"
)

// Throttle says how writes are slowed down when a destaging area fills. With e the
// part of the room above the threshold that is in use,
//
//	injected = SAN x (Gain x e/(1-e) + I)    dI/dt = Integral x e
//
// where SAN is the moving average of the time that a destage takes below. The first
// term goes to infinity where the area is full: it finds the point where writes come
// as fast as they leave, for any number of them outstanding, and a plain proportional
// one does not. At or below the threshold nothing is injected and all state is
// forgotten, so the flash's speed is back at once.
type Throttle struct {
	// Area is the most dirty data, in bytes; 0 is 7/8 of the cache, the most that it
	// can pin. An area below the size of a burst throttles it; above it does not.
	Area uint64
	// Threshold in thousandths of the area, 0 is 700: 30 % of the default 256 MiB is
	// 19,660 writes of 4 KiB, which is 1.8 s of a destager of 11,000 writes a second.
	Threshold int64
	// Gain k in thousandths, 0 is 1000: at half of the room a write takes what the device below takes.
	Gain int64
	// Integral in thousandths a second. 0, the default, makes the occupancy stay where the
	// proportional term found its balance, about 2 % above the threshold; more than 50 makes it swing.
	Integral int64
}

const (
	thousand = 1000
	// micro is the unit of e and of the integral term.
	micro = 1_000_000
	// sanWeight is the weight, in thousandths, of one destage in the moving average: 50
	// destages, a few milliseconds of a busy destager.
	sanWeight = 20
	// What is injected is at most this many times what the device below takes, and never more than maxInjected: with a slow
	// device below, a multiple of its time would be beyond what initiators wait for. Where that does not slow the writers
	// down enough, the area fills, and what does not fit goes past the flash.
	maxInjectedFactor = 100
	maxInjected       = 5_000_000_000
	// maxGain bounds Gain and Integral, so that their products with micro fit. It is a million times the default.
	maxGain = 1_000_000_000
)

type throttle struct {
	Throttle
	area, threshold uint64 // sectors
	san             int64  // nanoseconds
	integral        int64  // in micro
	last            int64  // when the integral was brought up to date, 0: not above the threshold
}

func (t *throttle) set(p Throttle, sectors uint64) {
	if p.Threshold == 0 {
		p.Threshold = 700
	}
	if p.Gain == 0 {
		p.Gain = thousand
	}
	p.Gain, p.Integral = min(p.Gain, maxGain), min(p.Integral, maxGain)
	most := sectors - sectors/8
	t.Throttle = p
	t.area = most
	if p.Area != 0 {
		t.area = min(p.Area>>9, most)
	}
	t.threshold = t.area * uint64(p.Threshold) / thousand
	t.last, t.integral = 0, 0
}

// destaged feeds the moving average.
func (t *throttle) destaged(took int64) {
	if t.san == 0 {
		t.san = took
		return
	}
	t.san += (took - t.san) * sanWeight / thousand
}

// above tells whether so many dirty sectors are above the threshold.
func (t *throttle) above(occupied uint64) bool { return occupied > t.threshold && t.area > t.threshold }

// injected is the latency to add to a write that was just put on flash.
func (d *Disk) injected() int64 {
	t, occupied := &d.throttle, d.occupied()
	wait := d.law.Delay(plug.Area{Now: d.exec.Now(), Dirty: occupied << block.SectorShift, Size: t.area << block.SectorShift,
		Threshold: t.threshold << block.SectorShift, Destage: t.san})
	if !t.above(occupied) {
		return 0
	}
	return min(wait, maxInjected)
}

// Delay is the law of Throttle.
func (t *throttle) Delay(a plug.Area) int64 {
	if a.Dirty <= a.Threshold || a.Size <= a.Threshold {
		t.last, t.integral = 0, 0
		return 0
	}
	e := int64((a.Dirty - a.Threshold) >> block.SectorShift * micro / ((a.Size - a.Threshold) >> block.SectorShift))
	e = min(e, micro-1)
	if rate := t.Integral * e / thousand; t.last != 0 && rate > 0 {
		if most, dt := int64(maxInjectedFactor*micro), a.Now-t.last; dt >= most*1e9/rate {
			t.integral = most // more would not be injected, and would only take longer to forget
		} else {
			t.integral = min(t.integral+rate*dt/1e9, most)
		}
	}
	t.last = max(a.Now, 1)
	factor := min(t.Gain*e*thousand/(micro-e)+t.integral, maxInjectedFactor*micro)
	return a.Destage / thousand * factor / thousand
}
