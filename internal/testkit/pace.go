package testkit

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// A machine that others share changes its speed from one second to the next, by as much as two, and that
// is in a process's processor time: a neighbour of the same core takes its execution units and its caches.
// A rate says little there. A Pace states work in laps of a loop that never changes and that runs in
// turns with the work: both slow down together.

// Sizes of a lap: dependent loads from as much memory as a core's first cache has. Of loops that
// multiply, or that load from 32 KiB to 16 MiB, this one follows the simulator best (docs/performance.md).
// A thousand laps are a second of an Intel Xeon (Cascade Lake) at 2.5 GHz that nobody disturbs.
const (
	paceNodes = 32 << 10 / 4 // of a ring, in random order
	paceSteps = 570_000      // from node to node
)

// Pace measures the processor time of work, and of laps between its slices. It belongs to one goroutine.
type Pace struct {
	ring []uint32
	at   uint32

	work, laps time.Duration
	began      time.Duration // of the slice
	ran        int
}

// NewPace makes the ring.
func NewPace() *Pace {
	p := &Pace{ring: make([]uint32, paceNodes)}
	order := rand.New(rand.NewPCG(1, 2)).Perm(paceNodes)
	for i, n := range order {
		p.ring[n] = uint32(order[(i+1)%paceNodes])
	}
	return p
}

// Begin begins a slice of the work.
func (p *Pace) Begin() { p.began = processorTime() }

// End ends a slice. A slice is to take several milliseconds: it begins with the caches that a lap leaves.
func (p *Pace) End() { p.work += processorTime() - p.began }

// Lap runs a lap.
func (p *Pace) Lap() {
	now := processorTime()
	p.lap()
	p.laps += processorTime() - now
	p.ran++
}

func (p *Pace) lap() {
	at := p.at
	for range paceSteps {
		at = p.ring[at]
	}
	p.at = at // else the compiler leaves the loads out
}

// Seconds is the processor time that the work has taken.
func (p *Pace) Seconds() float64 { return max(p.work, time.Microsecond).Seconds() }

// Laps is the processor time that the work has taken, in laps; 0 if none was run.
func (p *Pace) Laps() float64 {
	if p.ran == 0 || p.laps == 0 {
		return 0
	}
	return p.work.Seconds() / (p.laps.Seconds() / float64(p.ran))
}

// LapTime is the processor time of a lap.
func (p *Pace) LapTime() time.Duration { return p.laps / time.Duration(max(p.ran, 1)) }

// processorTime is what all threads of the process have used.
func processorTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // it cannot fail
	return time.Duration(t.Nano())
}
