package fit

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/sim"
)

func save(t *testing.T, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestReadFio: what fio 3.33 said of a disk, with its load off the options of the job and of the global section.
func TestReadFio(t *testing.T) {
	obs, err := Read(context.Background(), "../../testdata/fio/disk.json", Load{})
	if err != nil {
		t.Fatal(err)
	}
	if len(obs) != 12 {
		t.Fatalf("%d observations", len(obs))
	}
	o := obs[5]
	if o.Name != "read-32k-4" || o.IO != 32<<10 || o.Outstanding != 4 || o.Write != 0 || o.Sequential || o.Writes || o.N == 0 || o.Spread == 0 || o.Mean < 10e-6 || o.Mean > 10 {
		t.Errorf("%+v", o)
	}
}

func TestReadLog(t *testing.T) {
	name := save(t, "x_lat.1.log", "0, 100000, 0, 4096, 0\n1, 300000, 0, 4096, 8192\n2, 50000, 1, 8192, 0\n3, 900, 2, 4096, 0\n")
	if _, err := Read(context.Background(), name, Load{}); err == nil || !strings.Contains(err.Error(), "add --depth N") {
		t.Errorf("error %v", err)
	}
	obs, err := Read(context.Background(), name, Load{Outstanding: 2})
	if err != nil || len(obs) != 2 {
		t.Fatalf("%v, error %v", obs, err)
	}
	if o := obs[0]; math.Abs(o.Mean-200e-6) > 1e-12 || o.N != 2 || o.IO != 4096 || o.Writes || o.Outstanding != 2 {
		t.Errorf("%+v", o)
	}
	if o := obs[1]; math.Abs(o.Mean-50e-6) > 1e-12 || !o.Writes || o.Write != 1 {
		t.Errorf("%+v", o)
	}
}

// TestReadCounters: a simulated run that was recorded as Parquet, iostats XML and esxtop CSV gives the same loads
// and latencies, which are those that its hosts had.
func TestReadCounters(t *testing.T) {
	s, err := sim.Parse([]byte(`
name: x
until: 40s
arrays:
  - name: a
    profile: svc
    cache: 256MiB
    pools: [{name: p, mdisks: [{count: 4, size: 4GiB}]}]
    volumes: [{name: v, pool: p, size: 1GiB, filled: 1GiB}]
hosts: [{name: h}]
jobs: [{name: load, volume: v, rate: 200, io: 8KiB, write: 0.25}]
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.New(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var parquet, top bytes.Buffer
	io, err := metrics.NewIOStats(filepath.Join(dir, "iostats"), metrics.IOStatsOptions{Keep: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	writers := []metrics.SnapshotWriter{metrics.NewParquet(&parquet), metrics.NewESXTop(&top, ""), io}
	var snap metrics.Snapshot
	r.Every(5e9, func(now int64) {
		snap.Take(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()+now, nobody{}, r)
		for _, w := range writers {
			if err := w.Write(&snap); err != nil {
				t.Error(err)
			}
		}
	})
	for now := int64(0); !r.Advance(now); now += 1e9 {
	}
	r.Finish()
	for _, w := range writers {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	table, batch := filepath.Join(dir, "counters.parquet"), filepath.Join(dir, "esxtop.csv")
	if err := os.WriteFile(table, parquet.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(batch, top.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	ops, wait, _ := r.Responses("v")
	for _, source := range []string{table, batch, filepath.Join(dir, "iostats")} {
		obs, err := Read(context.Background(), source, Load{})
		if err != nil {
			t.Fatal(err)
		}
		var n [2]int64
		var sum [2]float64
		for _, o := range obs {
			if o.IO != 8<<10 || o.Rate < 150 || o.Rate > 250 || o.Write < 0.15 || o.Write > 0.35 {
				t.Errorf("%s: %+v", source, o)
			}
			d := 0
			if o.Writes {
				d = 1
			}
			n[d] += o.N
			sum[d] += o.Mean * float64(o.N)
		}
		for d := range n {
			got, want := sum[d]/float64(n[d]), float64(wait[d])/float64(ops[d])/1e9
			// The array's own clock leaves the link out, and the files round.
			if math.Abs(got/want-1) > 0.12 || n[d] < int64(ops[d])*8/10 {
				t.Errorf("%s: %d of %d, mean %.3g s, want %.3g s", filepath.Base(source), n[d], ops[d], got, want)
			}
		}
	}
}

type nobody struct{}

func (nobody) Lock()   {}
func (nobody) Unlock() {}

// TestNotDetermined: with one size and one request in flight the link, the disks' bandwidth and the front end are one
// sum. The fit says so, and does not make intervals up.
func TestNotDetermined(t *testing.T) {
	m := &Model{Profile: "all-flash", Seed: 3, Work: 1}
	var obs []Observation
	for i := range 8 {
		o := Observation{Load: Load{IO: 64 << 10, Outstanding: 1}, Spread: 0.2, N: 5000, Mean: 2e-3 * (1 + 0.001*float64(i%3))}
		obs = append(obs, o)
	}
	f, err := Run(context.Background(), obs, Options{Model: m, Free: []string{"cache.read", "link.bandwidth", "mdisks.default.base"}})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, c := range f.Confused {
		for _, k := range c {
			named[k] = true
		}
	}
	if len(f.Confused) < 2 || len(named) != 3 {
		t.Errorf("the data determine one of three, and %v cannot be told apart", f.Confused)
	}
	for _, e := range f.Estimates {
		if e.Known() && e.High/e.Low < 1.5 {
			t.Errorf("%s is known to be %g to %g", e.Key, e.Low, e.High)
		}
	}
	if _, err := Run(context.Background(), obs[:3], Options{Model: m, Free: []string{"cache.read", "link.bandwidth", "mdisks.default.base"}}); err == nil || !strings.Contains(err.Error(), "3 latencies do not determine 3 parameters") {
		t.Errorf("error %v", err)
	}
}
