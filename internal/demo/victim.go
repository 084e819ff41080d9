package demo

import (
	"context"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/arraysim/arraysim/internal/stats"
)

const (
	victimWrite = 4 << 10
	// victimEvery is the time between the beginnings of two writes, if the first has ended by then.
	victimEvery = 10 * time.Millisecond
	// Latencies are recorded from a microsecond to an hour, to three digits.
	shortestLatency, longestLatency, latencyDigits = int64(time.Microsecond), int64(time.Hour), 3
)

// Latency is what writes took, as their host measured. Those of a phase count what was due every 10 ms, whether it
// could be sent or not.
type Latency struct {
	Writes int           `json:"writes"`
	Mean   time.Duration `json:"mean_ns"`
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
	Worst  time.Duration `json:"worst_ns"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return Latency{Writes: int(h.TotalCount()), Mean: time.Duration(h.Mean()), Median: time.Duration(stats.Percentile(h, 50)),
		P99: time.Duration(stats.Percentile(h, 99)), Worst: time.Duration(h.Max())}
}

// victim writes 4 KiB at a time to its own volume, one after the other and at most a hundred a second, as the
// log of a database does. It never writes where data is still dirty: that would need no room in the cache.
type victim struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex
	inPhase  *hdrhistogram.Histogram // guarded by mu
	inSample *hdrhistogram.Histogram // guarded by mu
	sent     time.Time               // guarded by mu: when the write under way began; zero without one
	err      error                   // guarded by mu
}

func (d *demo) startVictim(ctx context.Context) (*victim, error) {
	h, err := d.login(ctx, "victim", 0, d.layout.luns[2])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &victim{cancel: cancel, ended: make(chan struct{}), inPhase: newHistogram(), inSample: newHistogram()}
	go v.write(ctx, h)
	return v, nil
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(shortestLatency, longestLatency, latencyDigits)
}

func (v *victim) write(ctx context.Context, h *host) {
	defer close(v.ended)
	defer h.close()
	data := make([]byte, victimWrite)
	t := time.NewTicker(victimEvery)
	defer t.Stop()
	for at := uint64(0); ; at = (at + victimWrite) % victimSize {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		begin := time.Now()
		v.mu.Lock()
		v.sent = begin
		v.mu.Unlock()
		err := h.write(at, data)
		v.mu.Lock()
		v.sent = time.Time{}
		if err == nil {
			took := min(int64(time.Since(begin)), longestLatency)
			// Few writes end while each waits for half a second, so a median of those that ended would be of
			// the others: one that waited stands for those that were due meanwhile (coordinated omission).
			_ = v.inPhase.RecordCorrectedValue(took, int64(victimEvery)) // it is in the range
			_ = v.inSample.RecordValue(took)
		}
		v.err = err
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// phase returns the latencies since it was called last.
func (v *victim) phase() Latency { return v.take(&v.inPhase) }

// sample returns the latencies since it was called last. When no write has ended since then, it is the age of
// the one that waits.
func (v *victim) sample() Latency {
	l := v.take(&v.inSample)
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.Writes == 0 && !v.sent.IsZero() {
		age := time.Since(v.sent)
		return Latency{Mean: age, Median: age, P99: age, Worst: age}
	}
	return l
}

func (v *victim) take(h **hdrhistogram.Histogram) Latency {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := latencyOf(*h)
	(*h).Reset()
	return l
}

// stop ends the victim, which may be called again, and returns what went wrong.
func (v *victim) stop() error {
	v.cancel()
	<-v.ended
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}
