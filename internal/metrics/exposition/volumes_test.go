package exposition

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// crowd is an array of many volumes.
type crowd struct {
	written []float64
	hist    []metrics.Histogram
}

func newCrowd(n int) *crowd {
	c := &crowd{written: make([]float64, n), hist: make([]metrics.Histogram, n)}
	for i := range n {
		c.write(i, 1e6)
	}
	return c
}

func (c *crowd) write(i int, bytes float64) {
	c.written[i] += bytes
	c.hist[i].Observe(int64(1e5 + i))
}

func (c *crowd) Emit(e metrics.Emitter) {
	for i, w := range c.written {
		v := names[i]
		e.Value(metrics.HostTransferred, 0, v, "p", "read")
		e.Value(metrics.HostTransferred, w, v, "p", "write")
		e.Value(metrics.HostQueueDepth, 1, v)
		for _, op := range []string{"read", "write", "other"} {
			e.Histogram(metrics.HostDuration, &c.hist[i], v, op)
		}
		for _, o := range []string{"host", "xcopy"} {
			e.Value(metrics.CacheAdmitted, w, "p", v, o, "fast")
			e.Value(metrics.CacheRecovered, 0, "p", v, o)
			e.Value(metrics.CacheDirty, 0, "p", v, o)
			e.Value(metrics.CacheOverwritten, 0, "p", v, o)
			e.Value(metrics.CacheDiscarded, 0, "p", v, o)
			e.Value(metrics.CacheDestaged, w, "p", v, o)
		}
		e.Value(metrics.CacheDirtySeconds, w, "p", v)
		e.Value(metrics.VolumeSize, 1e9, v, "p")
		for _, st := range []string{"mapped", "zero", "anchored", "unmapped"} {
			e.Value(metrics.VolumeState, 1e9, v, "p", st)
		}
	}
}

var names = func() []string {
	out := make([]string, 1000)
	for i := range out {
		out[i] = fmt.Sprintf("volume-%03d", i)
	}
	return out
}()

func TestParseVolumes(t *testing.T) {
	for text, want := range map[string]int{"all": 0, "top:1": 1, "top:50": 50} {
		if n, err := ParseVolumes(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "top", "top:", "top:0", "top:-1", "50", "top:x"} {
		if _, err := ParseVolumes(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// Whoever is shown, the growth of all series together is what was written.
func TestOthersAddUp(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("ARRAYSIM_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c := newCrowd(100)
	x := NewExporter(&sync.Mutex{}, "v", c)
	x.LimitVolumes(10)
	last := map[string]float64{}
	shown := map[string]bool{}
	for round := range 50 {
		wrote := 0.0
		for range 30 {
			i := r.IntN(100)
			x := float64(r.IntN(1e6))
			if r.IntN(10) == 0 {
				x *= 100
			}
			wrote += x
			c.write(i, x)
		}
		now, grown, volumes := map[string]float64{}, 0.0, map[string]bool{}
		families, done, err := x.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				label := map[string]string{}
				for _, l := range m.Label {
					label[l.GetName()] = l.GetValue()
				}
				if f.GetName() != metrics.HostTransferred.Name || label["direction"] != "write" {
					continue
				}
				v, name := m.Counter.GetValue(), label["volume"]
				volumes[name] = true
				now[name] += v
				if was, ok := last[name]; ok {
					if v < was {
						t.Fatalf("round %d: the counter of %s goes back from %v to %v", round, name, was, v)
					}
					grown += v - was
				}
			}
		}
		done()
		if len(volumes) != 11 || !volumes[OtherVolumes] {
			t.Fatalf("round %d: %d volumes are shown", round, len(volumes))
		}
		if round > 0 && grown != wrote {
			t.Fatalf("round %d: the series grew by %v, and %v was written", round, grown, wrote)
		}
		for name := range volumes {
			shown[name] = true
		}
		last = now
	}
	if len(shown) < 20 {
		t.Errorf("only %d volumes were ever shown: nothing came or went", len(shown))
	}
}

// A scrape of 1,000 volumes, the 50 busiest one by one.
func BenchmarkScrape1000Volumes(b *testing.B) {
	for _, limit := range []int{50, 0} {
		b.Run(map[int]string{50: "top:50", 0: "all"}[limit], func(b *testing.B) {
			c := newCrowd(1000)
			x := NewExporter(&sync.Mutex{}, "v", c)
			x.LimitVolumes(limit)
			h, err := x.Handler()
			if err != nil {
				b.Fatal(err)
			}
			req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.write(i%1000, 1e6)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if n, _ := io.Copy(io.Discard, w.Body); n < 1000 {
					b.Fatal("nothing was scraped")
				}
			}
		})
	}
}

// heldClock measures how long it is held.
type heldClock struct {
	since time.Time
	sum   time.Duration
}

func (c *heldClock) Lock()   { c.since = time.Now() }
func (c *heldClock) Unlock() { c.sum += time.Since(c.since) }

// What of a scrape happens while the executor is held.
func BenchmarkSnapshot1000Volumes(b *testing.B) {
	c := newCrowd(1000)
	var s metrics.Snapshot
	var held heldClock
	for b.Loop() {
		s.Take(0, &held, c)
	}
	b.ReportMetric(float64(held.sum.Nanoseconds())/float64(b.N), "held-ns/op")
}
