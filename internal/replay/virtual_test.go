package replay

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/trace"
)

const cachedHost = `
name: cached
profile: all-flash
arrays:
  - name: a
    cache: 64MiB
    pools: [{name: p, mdisks: [{size: 100GiB}]}]
    volumes: [{name: plain, pool: p, size: 1GiB, filled: 1GiB}, {name: v, pool: p, size: 1GiB, filled: 1GiB}]
hosts: [{name: h, flash: {kind: sata}, cache: [{volume: v, policy: write_through, size: 256MiB, block: 4KiB, eviction: lru}]}]
jobs: [{name: other, volume: plain, rate: 10, io: 4KiB}]
`

// TestVirtual replays a trace through a cache, by its timing and as fast as possible: twice the same, all of it.
func TestVirtual(t *testing.T) {
	list := random(t, 1000)
	for i := range list {
		list[i].Time *= 1000 // a millisecond apart
	}
	reads, last := int64(0), list[len(list)-1].Time
	for _, r := range list {
		if r.Op == trace.Read {
			reads++
		}
	}
	for _, speed := range []float64{0, 0.5, 2} {
		cfg := VirtualConfig{Scenario: []byte(cachedHost), Speed: speed}
		out, run, err := Virtual(context.Background(), &records{list: list}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if out.Reads.Count != reads || out.Reads.Count+out.Writes.Count != int64(len(list)) || out.Errors != 0 || out.Folded != 0 {
			t.Errorf("speed %v: %+v; %d of %d are reads", speed, out, reads, len(list))
		}
		if speed > 0 && float64(out.Elapsed) < float64(last)/speed {
			t.Errorf("speed %v: it ends after %s; the last request is due at %d ns", speed, out.Elapsed, last)
		}
		if hits, err := run.Value("cache.v.hit_percent", 0, 0); err != nil || hits <= 0 || hits >= 100 {
			t.Errorf("speed %v: %v %% hits, %v", speed, hits, err)
		}
		if !strings.Contains(run.CacheReport(), "h/v") {
			t.Errorf("the report has no cache: %q", run.CacheReport())
		}
		again, _, err := Virtual(context.Background(), &records{list: list}, cfg)
		if err != nil || again.Elapsed != out.Elapsed || again.Reads.Histogram.Mean() != out.Reads.Histogram.Mean() {
			t.Errorf("speed %v: another run gives %+v, %v", speed, again, err)
		}
	}
	one, _, err := Virtual(context.Background(), &records{list: list}, VirtualConfig{Profile: "svc", VolumeSize: 64 << 20, Depth: 1, ReadOnly: true})
	if err != nil || one.Writes.Count != 0 || one.SkippedWrites != int64(len(list))-reads || one.Reads.Count != reads || one.Size != 64<<20 {
		t.Errorf("read only, depth 1: %+v, %v", one, err)
	}
}

// TestVirtualLongLatencies: a request that takes more than an hour is recorded, by the replay and by its job.
func TestVirtualLongLatencies(t *testing.T) {
	cfg := VirtualConfig{Profile: "all-flash", VolumeSize: 1 << 30, Depth: 1, Speed: 1}
	list := []trace.Record{{Time: 4000e9, Length: 4096}, {Length: 4096}} // the second was due when the replay began
	out, run, err := Virtual(context.Background(), &records{list: list}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	longest, err := run.Value("job.trace.max_ms", 0, 0)
	if h := out.Reads.Histogram; err != nil || h.TotalCount() != out.Reads.Count || h.Max() < 3990e9 || longest < 3990e3 {
		t.Errorf("%d latencies of %d requests, the longest %s; %g ms of the job, %v", h.TotalCount(), out.Reads.Count, time.Duration(h.Max()), longest, err)
	}
}

// TestVirtualFolds moves what lies beyond the volume into it.
func TestVirtualFolds(t *testing.T) {
	list := []trace.Record{{Offset: 1 << 40, Length: 4096}, {Offset: 100, Length: 1}, {Offset: 0, Length: 8 << 20, Op: trace.Write}}
	out, _, err := Virtual(context.Background(), &records{list: list}, VirtualConfig{Profile: "none", VolumeSize: 4 << 20})
	if err != nil || out.Folded != 2 || out.Reads.Count != 2 || out.Reads.Bytes != 4096+512 || out.Writes.Bytes != 4<<20 || out.Errors != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// broken is a trace that ends with an error.
type broken struct{ records }

func (b *broken) Next(rec *trace.Record) error {
	err := b.records.Next(rec)
	if errors.Is(err, io.EOF) {
		return errors.New("line 7 is torn")
	}
	return err
}

func TestVirtualErrors(t *testing.T) {
	ctx := context.Background()
	for want, cfg := range map[string]VirtualConfig{
		"no profile":    {Profile: "abacus"},
		"unknown field": {Scenario: []byte("naem: x")},
		"no volume":     {Scenario: []byte(cachedHost), Volume: "x"},
		"plain value":   {Scenario: []byte(cachedHost), Set: [][2]string{{"name.x", "1"}}},
		"depth is -1":   {Profile: "none", VolumeSize: 1 << 26, Depth: -1},
	} {
		_, _, err := Virtual(ctx, &records{}, cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v; it should say %q", err, want)
		}
	}
	if _, _, err := Virtual(ctx, &records{objects: true}, VirtualConfig{Profile: "none", VolumeSize: 1 << 26}); err == nil || !strings.Contains(err.Error(), "objects") {
		t.Errorf("objects: %v", err)
	}
	if _, _, err := Virtual(ctx, &broken{records{list: []trace.Record{{Length: 512}}}}, VirtualConfig{Profile: "none", VolumeSize: 1 << 26}); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("a trace that cannot be read: %v", err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	list := []trace.Record{{Length: 512}, {Length: 512, Time: 100e9}}
	out, _, err := Virtual(stopped, &records{list: list}, VirtualConfig{Profile: "none", VolumeSize: 1 << 26, Speed: 1})
	if err != nil || out.Reads.Count != 1 {
		t.Errorf("interrupted: %+v, %v", out, err)
	}
}
