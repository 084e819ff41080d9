package demo

import (
	"context"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// Sample is what happened in a short time.
type Sample struct {
	Phase Phase
	// Since is the end of the sample, from the beginning of the demonstration; Seconds is its length.
	Since   time.Duration
	Seconds float64
	// Done of Total bytes of the phase; both are 0 where there is no telling.
	Done, Total admin.Size
	// Volumes in the order golden, clone, victim.
	Volumes [3]VolumeSample
	// Used is what the shared pool holds of the write cache, Limit its cap.
	Used, Limit admin.Size
	// Latency of the victim's writes; without Writes, how old the one is that waits.
	Latency Latency
}

// VolumeSample is what happened to a volume: Written is what hosts sent, Undercover what they did not.
type VolumeSample struct {
	Name                       string
	Written, Undercover, Dirty admin.Size
}

// Rate returns bytes of the sample in MB a second.
func (s *Sample) Rate(n admin.Size) float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return float64(n) / s.Seconds / 1e6
}

// sampler reads counters from time to time.
type sampler struct {
	array *admin.Client
	show  func(Sample)
	every time.Duration
	began time.Time
	total admin.Size
	look  chan chan struct{} // asks for a sample now; closed behind it
	ended chan struct{}      // closed when nothing is sampled any more

	mu     sync.Mutex
	phase  Phase          // guarded by mu
	done   admin.Size     // guarded by mu: in the phase
	victim *victim        // guarded by mu; nil before it writes
	last   admin.Counters // the sampling goroutine's
	share  float64        // guarded by mu: the largest that the clone held
}

func newSampler(opt Options, began time.Time, first admin.Counters) *sampler {
	s := &sampler{array: opt.Array, show: opt.Show, every: opt.Every, began: began, phase: Filling, last: first,
		look: make(chan chan struct{}), ended: make(chan struct{})}
	if s.show == nil {
		s.show = func(Sample) {}
	}
	return s
}

// enter begins a phase, behind a sample of the one before: none is of two phases, and each has one.
func (s *sampler) enter(p Phase) {
	looked := make(chan struct{})
	select {
	case s.look <- looked:
		<-looked
	case <-s.ended:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.done = p, 0
}

func (s *sampler) add(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += admin.Size(n)
}

func (s *sampler) watch(v *victim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.victim = v
}

func (s *sampler) peak() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.share
}

// start samples until the function that it returns is called, or ctx ends. The function may be called again.
func (s *sampler) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(s.ended)
		t := time.NewTicker(s.every)
		defer t.Stop()
		for {
			var looked chan struct{}
			select {
			case <-ctx.Done():
				return
			case looked = <-s.look:
				t.Reset(s.every)
			case <-t.C:
			}
			if now, err := s.array.Counters(ctx); err == nil { // else the demonstration itself finds out what is wrong
				s.show(s.step(now))
			}
			if looked != nil {
				close(looked)
			}
		}
	}()
	return func() { cancel(); <-s.ended }
}

// step returns what happened since the last reading.
func (s *sampler) step(now admin.Counters) Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Sample{Phase: s.phase, Since: time.Since(s.began), Seconds: float64(now.Time-s.last.Time) / 1e9}
	if s.phase == Filling || s.phase == Cloning {
		out.Done, out.Total = s.done, s.total
	}
	old, vols := volumes(s.last), volumes(now)
	for i, name := range []string{Golden, Clone, Victim} {
		a, b := old[name], vols[name]
		out.Volumes[i] = VolumeSample{Name: name, Written: b.Written - a.Written, Undercover: b.Undercover - a.Undercover, Dirty: b.Dirty}
	}
	for _, p := range now.Pools {
		if p.Pool == SharedPool {
			out.Used, out.Limit = p.CacheUsed, p.CacheLimit
		}
	}
	if out.Limit > 0 {
		s.share = max(s.share, float64(out.Volumes[1].Dirty)/float64(out.Limit))
	}
	if s.victim != nil {
		out.Latency = s.victim.sample()
	}
	s.last = now
	return out
}
