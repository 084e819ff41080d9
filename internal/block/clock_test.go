package block

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/testkit"
)

// machine is a kernel's clock and a processor's counter that a test moves.
type machine struct {
	ns    int64
	tick  uint64
	rate  float64 // ticks a ns
	looks int
	late  int64 // ns that go by inside each look
}

func (m *machine) ticker() *ticker {
	return &ticker{dear: true, counter: func() uint64 { return m.tick }, kernel: func() int64 {
		m.looks++
		m.pass(m.late / 2)
		now := m.ns
		m.pass(m.late - m.late/2)
		return now
	}}
}

func (m *machine) pass(ns int64) {
	m.ns += ns
	m.tick += uint64(float64(ns) * m.rate)
}

// settle has a clock get to know the counter's rate.
func (m *machine) settle(clock *ticker) {
	for range 3 {
		clock.read()
		m.pass(rateLeast)
	}
	m.looks = 0
}

// TestTickerAsksRarely: of many readings few are the kernel's, and all are right.
func TestTickerAsksRarely(t *testing.T) {
	m := &machine{rate: 2.6, tick: 12345}
	clock := m.ticker()
	m.settle(clock)
	for range 10_000 {
		m.pass(10_000)
		if off := clock.read() - m.ns; off < -1000 || off > 1000 {
			t.Fatalf("at %d ns the clock is off by %d", m.ns, off)
		}
	}
	if m.looks > 10_000/90 {
		t.Errorf("the kernel was asked %d times in 100 ms", m.looks)
	}
}

// TestTickerTrustsNoCounter: whatever the counter does, and however long looks take, the clock does
// not go back, and is off by a few ms at the most.
func TestTickerTrustsNoCounter(t *testing.T) {
	seed := testkit.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		m := &machine{rate: 2.6, tick: r.Uint64()}
		clock := m.ticker()
		const slack = 10 * lookEvery
		last := int64(0)
		for i := range 2000 {
			m.pass(r.Int64N(200_000))
			m.late = 0
			switch r.IntN(100) {
			case 0:
				m.tick = r.Uint64() // another machine, or another processor
			case 1:
				m.tick += uint64(r.Int64N(1 << 40))
			case 2:
				m.rate = 2 + 3*r.Float64()
			case 3:
				m.pass(r.Int64N(10_000_000_000))
			case 4:
				m.late = r.Int64N(50_000_000)
			}
			before := m.ns
			now := clock.read()
			if now < last {
				t.Fatalf("seed %d: reading %d: the clock goes back from %d to %d", seed, i, last, now)
			}
			last = now
			if early, late := before-now, now-m.ns; max(early, late) > slack {
				t.Fatalf("seed %d: reading %d: %d ns, but it is %d to %d", seed, i, now, before, m.ns)
			}
		}
	}
}

// TestClockOfLive: where the clock is dear, an executor that is entered often reads it rarely.
func TestClockOfLive(t *testing.T) {
	m := &machine{rate: 3}
	m.pass(1)
	x := NewLive()
	defer x.Stop()
	x.Lock()
	x.clock = m.ticker()
	m.settle(x.clock)
	x.Unlock()
	for range 5000 {
		x.Lock()
		m.pass(2000) // the executor's goroutine may ask, too
		x.Now()
		x.Unlock()
	}
	if m.looks > 20 {
		t.Errorf("the kernel's clock was read %d times for 5000 steps in 10 ms", m.looks)
	}
}

// TestTicks: the counter of this machine, if it has one that is steady, goes on.
func TestTicks(t *testing.T) {
	if !ticksSteady() {
		t.Skip("no steady counter")
	}
	clock := newTicker()
	clock.dear = true
	for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
		before := clock.kernel()
		now := clock.read()
		if after := clock.kernel(); now < before-lookEvery || now > after+lookEvery {
			t.Fatalf("%d ns, but it is %d to %d", now, before, after)
		}
	}
}
