package testkit

import "testing"

// Work that is a lap takes a lap, however fast the machine is: a rate of it does not hold.
func TestPaceOfALap(t *testing.T) {
	const laps = 40
	p := NewPace()
	for range laps {
		p.Begin()
		p.lap()
		p.End()
		p.Lap()
	}
	if got := p.Laps(); got < 0.6*laps || got > 1.6*laps {
		t.Errorf("%d laps took the processor time of %.1f", laps, got)
	}
	if got, want := p.Seconds(), laps*p.LapTime().Seconds(); got < 0.6*want || got > 1.6*want {
		t.Errorf("%d laps took %.3f s, and others %.3f s", laps, got, want)
	}
}

// A Pace without a lap knows nothing.
func TestPaceWithoutLaps(t *testing.T) {
	p := NewPace()
	p.Begin()
	p.End()
	if got := p.Laps(); got != 0 || p.LapTime() != 0 {
		t.Errorf("no lap was run, and it says %g laps of %v", got, p.LapTime())
	}
}

// The ring is one: all of its memory is loaded from.
func TestPaceRing(t *testing.T) {
	p := NewPace()
	at, n := p.ring[0], 1
	for ; at != 0; at = p.ring[at] {
		n++
	}
	if n != paceNodes {
		t.Errorf("the ring has %d nodes", n)
	}
}
