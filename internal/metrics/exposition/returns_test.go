package exposition

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/testkit"
)

// some are the volumes that there are at present, by name.
type some map[int]*struct {
	bytes float64
	hist  metrics.Histogram
}

func (s some) Emit(e metrics.Emitter) {
	for i := range names { // in an order that is always the same
		v := s[i]
		if v == nil {
			continue
		}
		e.Value(metrics.HostTransferred, v.bytes, names[i], "p", "write")
		e.Histogram(metrics.HostDuration, &v.hist, names[i], "write")
	}
}

// reader adds up what Prometheus sees to grow: a series that is less than when it was shown last has
// begun anew.
type reader struct {
	last  map[string]float64
	grown float64
	anew  map[string]bool // in the last scrape
}

func (r *reader) read(series string, v float64) {
	was := r.last[series]
	if v < was {
		r.anew[series], was = true, 0
	}
	r.grown += v - was
	r.last[series] = v
}

// Whoever is folded and shown again, and whoever is deleted and created again, the series together
// have grown by what was done, at every scrape, and none goes back but one that began anew.
func TestVolumesThatReturn(t *testing.T) {
	seed := testkit.Seed(t)
	for n := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, n))
		restarts := n%2 == 1
		vols := some{}
		x := NewExporter(&sync.Mutex{}, "v", vols)
		x.LimitVolumes(1 + r.IntN(5))
		bytes, commands := &reader{last: map[string]float64{}}, &reader{last: map[string]float64{}}
		written, done := 0.0, 0.0
		returned, shownAt := 0, map[string]int{}
		for round := range 200 {
			busy := r.IntN(12)
			for range r.IntN(20) {
				i := r.IntN(12)
				if r.IntN(2) == 0 {
					i = busy
				}
				if vols[i] == nil {
					vols[i] = &struct {
						bytes float64
						hist  metrics.Histogram
					}{}
				}
				b := float64(r.IntN(1e6))
				vols[i].bytes += b
				vols[i].hist.Observe(int64(r.IntN(1e9)))
				written, done = written+b, done+1
			}
			families, end, err := x.Gather()
			if err != nil {
				t.Fatal(err)
			}
			bytes.anew, commands.anew = map[string]bool{}, map[string]bool{}
			for _, f := range families {
				for _, m := range f.Metric {
					name := ""
					for _, l := range m.Label {
						if l.GetName() == "volume" {
							name = l.GetValue()
						}
					}
					switch f.GetName() {
					case metrics.HostTransferred.Name:
						bytes.read(name, m.Counter.GetValue())
						if at, ok := shownAt[name]; ok && at < round-1 {
							returned++
						}
						shownAt[name] = round
					case metrics.HostDuration.Name:
						commands.read(name, float64(m.Histogram.GetSampleCount()))
						if sum := m.Histogram.Bucket[len(m.Histogram.Bucket)-1].GetCumulativeCount(); sum > m.Histogram.GetSampleCount() {
							t.Fatalf("round %d: the buckets of %s have %d of %d", round, name, sum, m.Histogram.GetSampleCount())
						}
					}
				}
			}
			end()
			if bytes.grown != written || commands.grown != done {
				t.Fatalf("run %d, round %d: the series grew by %.0f B and %.0f commands, of %.0f and %.0f", n, round,
					bytes.grown, commands.grown, written, done)
			}
			for name := range bytes.anew {
				if !restarts || name == OtherVolumes {
					t.Fatalf("run %d, round %d: the counter of %s goes back", n, round, name)
				}
			}
			// One that has its name next has less in its first round, or nobody could see that it is another.
			if i := r.IntN(12); restarts && r.IntN(5) == 0 && vols[i] != nil && vols[i].bytes > 20e6 && vols[i].hist.Count > 20 {
				delete(vols, i)
			}
		}
		if returned == 0 {
			t.Errorf("run %d: no volume was shown again", n)
		}
	}
}

// passing is a volume that is another one at each scrape.
type passing struct{ n int }

func (p *passing) Emit(e metrics.Emitter) {
	p.n++
	e.Value(metrics.HostTransferred, 1, fmt.Sprint("v", p.n), "p", "write")
	e.Value(metrics.HostTransferred, float64(p.n), "stays", "p", "write")
}

// TestVolumesThatAreGoneAreForgotten: they are in no scrape, and what is kept of them is bounded.
func TestVolumesThatAreGoneAreForgotten(t *testing.T) {
	const scrapes = 5 * keepGone
	x := NewExporter(&sync.Mutex{}, "v", &passing{})
	x.LimitVolumes(3)
	for range scrapes {
		families, end, err := x.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == metrics.HostTransferred.Name && len(f.Metric) > 2 {
				t.Fatalf("%d volumes are shown, and there are 2", len(f.Metric))
			}
		}
		end()
	}
	f := x.fold
	if len(f.last) > keepGone+2 || len(f.keys) > keepGone+2 || len(f.left) > keepGone || len(f.gone) > keepGone {
		t.Errorf("after %d volumes, %d counters of %d are kept, and %d of %d departures", scrapes, len(f.last), len(f.keys), len(f.left), len(f.gone))
	}
	if f.last[string(f.keyOf(metrics.HostTransferred, []string{"stays", "p", "write"}, -1))] == nil {
		t.Error("a volume that is there was forgotten")
	}
}
