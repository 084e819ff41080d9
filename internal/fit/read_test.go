package fit

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
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

// TestReadFioLoads: the depth is what the engine has, clones are one load, and what is not one is refused.
func TestReadFioLoads(t *testing.T) {
	result := func(jobs ...string) string {
		var all []string
		for i, options := range jobs {
			all = append(all, fmt.Sprintf(`{"jobname": "j%d", "groupid": %d, "job options": {"direct": "1", %s}, "read": {"total_ios": 100, "lat_ns": {"mean": %d000, "stddev": 10, "N": 100}}}`, i, i, options, 100+i))
		}
		return `{"fio version": "fio-3.33", "jobs": [` + strings.Join(all, ", ") + "]}"
	}
	clones := strings.ReplaceAll(result(`"rw": "randread", "numjobs": "2"`, `"rw": "randread", "numjobs": "2"`), `"j1", "groupid": 1`, `"j0", "groupid": 0`)
	for text, outstanding := range map[string]int{
		result(`"rw": "randread", "iodepth": "16", "ioengine": "psync"`):    1,
		result(`"rw": "randread", "iodepth": "16", "ioengine": "io_uring"`): 16,
		clones: 2,
	} {
		obs, err := Read(context.Background(), save(t, "r.json", text), Load{})
		if err != nil || len(obs) != 1 || obs[0].Outstanding != outstanding {
			t.Errorf("%s: %+v, error %v, want %d in flight", text, obs, err, outstanding)
		}
	}
	for options, says := range map[string]string{
		`"iodepth": "0"`:                  "both must be numbers of at least 1",
		`"bsrange": "4k-64k"`:             "a range of sizes is not simulated",
		`"rw": "randrw", "bs": "4k,64k"`:  "reads and writes of one job that differ",
		`"random_distribution": "zipf:1"`: "random_distribution makes a load that is not fitted",
		`"thinktime": "10"`:               "measure with a fixed depth",
		`"direct": "0"`:                   "the page cache is neither simulated nor fitted",
		`"rw": "read:8k"`:                 "sequences with jumps",
	} {
		if obs, err := Read(context.Background(), save(t, "r.json", result(options)), Load{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, error %v, want %q", options, obs, err, says)
		}
	}
	cached := strings.ReplaceAll(result(`"rw": "randread"`), `"direct": "1", `, "")
	if _, err := Read(context.Background(), save(t, "r.json", cached), Load{}); err == nil || !strings.Contains(err.Error(), "it ran without direct=1") {
		t.Errorf("error %v", err)
	}
	beside := strings.ReplaceAll(result(`"rw": "randread"`, `"rw": "write"`), `"groupid": 1`, `"groupid": 0`)
	if _, err := Read(context.Background(), save(t, "r.json", beside), Load{}); err == nil || !strings.Contains(err.Error(), "job j0: it ran beside j1") {
		t.Errorf("error %v", err)
	}
}

func TestReadLog(t *testing.T) {
	name := save(t, "x_lat.1.log", "0, 100000, 0, 4096, 0\n1, 300000, 0, 4096, 8192\n2, 50000, 1, 4096, 0\n3, 900, 2, 4096, 0\n")
	if _, err := Read(context.Background(), name, Load{}); err == nil || !strings.Contains(err.Error(), "add --depth N") {
		t.Errorf("error %v", err)
	}
	obs, err := Read(context.Background(), name, Load{Outstanding: 2})
	if err != nil || len(obs) != 2 {
		t.Fatalf("%v, error %v", obs, err)
	}
	if o := obs[1]; math.Abs(o.Mean-200e-6) > 1e-12 || o.N != 2 || o.IO != 4096 || o.Writes || o.Outstanding != 2 {
		t.Errorf("%+v", o)
	}
	if o := obs[0]; math.Abs(o.Mean-50e-6) > 1e-12 || !o.Writes || math.Abs(o.Write-1.0/3) > 1e-9 {
		t.Errorf("%+v", o)
	}
}

// TestUnknownIsNotZero: esxtop without the sizes of I/Os says nothing of a load, and a log of several sizes nothing of how
// many of each were in flight.
func TestUnknownIsNotZero(t *testing.T) {
	column := func(name string) string { return `,"\\host\Physical Disk SCSI Device(naa.1)\` + name + `"` }
	head := `"(PDH-CSV 4.0) (UTC)(0)"` + column("Reads/sec") + column("Writes/sec") + column("MBytes Written/sec") + column("Average Guest MilliSec/Read") + column("Average Guest MilliSec/Write")
	line := "\n\"01/02/2026 10:00:00\",\"100\",\"0\",\"0\",\"2\",\"0\""
	if obs, err := Read(context.Background(), save(t, "top.csv", head+line), Load{}); err == nil || !strings.Contains(err.Error(), "record all columns") {
		t.Errorf("%+v, error %v", obs, err)
	}
	obs, err := Read(context.Background(), save(t, "top.csv", head+column("MBytes Read/sec")+line+",\"0.78125\""), Load{})
	if err != nil || len(obs) != 1 || obs[0].IO != 8192 || math.Abs(obs[0].Mean-2e-3) > 1e-9 {
		t.Errorf("%+v, error %v", obs, err)
	}
	name := save(t, "x_lat.1.log", "0, 100000, 0, 4096, 0\n1, 300000, 0, 8192, 8192\n")
	if obs, err := Read(context.Background(), name, Load{Outstanding: 2}); err == nil || !strings.Contains(err.Error(), "I/Os of 2 sizes") {
		t.Errorf("%+v, error %v", obs, err)
	}
}

// TestESXTopWithoutLatencies: a line whose rate or latency is no number, or is absent while something was done, is not known,
// and neither is one that takes no time. The others count.
func TestESXTopWithoutLatencies(t *testing.T) {
	column := func(name string) string { return `,"\\host\Physical Disk SCSI Device(naa.1)\` + name + `"` }
	head := `"(PDH-CSV 4.0) (UTC)(0)"` + column("Reads/sec") + column("Writes/sec") + column("MBytes Read/sec") + column("MBytes Written/sec") +
		column("Average Guest MilliSec/Read") + column("Average Guest MilliSec/Write")
	line := func(second int, reads, wait string) string {
		return fmt.Sprintf("\n\"01/02/2026 10:00:%02d\",\"%s\",\"0\",\"0.78125\",\"0\",\"%s\",\"0\"", second, reads, wait)
	}
	for _, bad := range []string{line(4, "100", "inf"), line(4, "100", "+Inf"), line(4, "100", "NaN"), line(4, "100", ""), line(4, "100", "0.00"), line(4, "100", "-1"), line(4, "inf", "9"), line(2, "100", "9")} {
		obs, err := Read(context.Background(), save(t, "top.csv", head+line(0, "100", "2")+line(2, "100", "2")+bad), Load{})
		if err != nil || len(obs) == 0 {
			t.Errorf("%q: %v", bad, err)
		}
		for _, o := range obs {
			if math.Abs(o.Mean-2e-3) > 1e-9 || o.IO != 8192 || o.Writes {
				t.Errorf("%q: %+v", bad, o)
			}
		}
		if obs, err := Read(context.Background(), save(t, "top.csv", head+bad), Load{}); err == nil && !strings.HasSuffix(bad, `"9","0"`) {
			t.Errorf("%q alone: %+v", bad, obs)
		}
	}
}

// TestESXTopRoundsToZero: MBytes of 0 beside I/Os are rounded, and not known. What a nearly idle device has so does not
// cost the interval of the others.
func TestESXTopRoundsToZero(t *testing.T) {
	head := `"(PDH-CSV 4.0) (UTC)(0)"`
	for _, device := range []string{"naa.1", "naa.2"} {
		for _, c := range []string{"Reads/sec", "Writes/sec", "MBytes Read/sec", "MBytes Written/sec", "Average Guest MilliSec/Read", "Average Guest MilliSec/Write"} {
			head += `,"\\\\host\Physical Disk SCSI Device(` + device + `)\` + c + `"`
		}
	}
	line := func(reads, mbytes, wait string) string {
		return fmt.Sprintf("\n\"01/02/2026 10:00:00\",\"1000\",\"0\",\"7.8125\",\"0\",\"2\",\"0\",\"%s\",\"0\",\"%s\",\"0\",\"%s\",\"0\"", reads, mbytes, wait)
	}
	for _, row := range []struct {
		line string
		rate float64 // 0 is unknown
	}{{line("0", "0.00", "0.00"), 1000}, {line("1", "0.00", "2"), 1000}, {line("1", "0.01", "0.00"), 1000}, {line("1", "0.00", "0.00"), 1000},
		{line("500", "0.00", "2"), 0}, {line("500", "3.9", "0.00"), 0}, {line("1", "0.01", ""), 0}, {line("500", "3.90625", "2"), 1500}} {
		obs, err := Read(context.Background(), save(t, "top.csv", head+row.line), Load{})
		if row.rate == 0 {
			if err == nil {
				t.Errorf("%s: %+v", row.line, obs)
			}
			continue
		}
		if err != nil || len(obs) != 1 || obs[0].Rate != row.rate || obs[0].IO != 8192 || math.Abs(obs[0].Mean-2e-3) > 1e-9 {
			t.Errorf("%s: %+v, error %v, want %g/s", row.line, obs, err, row.rate)
		}
	}
}

// TestReadIsDeterministic: a source gives the same observations each time, to the last bit and in the same order.
func TestReadIsDeterministic(t *testing.T) {
	head, line := `"(PDH-CSV 4.0) (UTC)(0)"`, "\n\"01/02/2026 10:00:00\""
	for i := range 9 {
		for _, c := range []string{"Reads/sec", "Writes/sec", "MBytes Read/sec", "MBytes Written/sec", "Average Guest MilliSec/Read", "Average Guest MilliSec/Write"} {
			head += fmt.Sprintf(`,"\\host\Physical Disk SCSI Device(naa.%d)\%s"`, i, c)
		}
		line += fmt.Sprintf(`,"%g","%g","%g","%g","%g","%g"`, 100.1/float64(i+3), 33.3*float64(i+1), 0.1*float64(i+1), 1.7/float64(i+1), 1.1+0.3*float64(i), 2.3/float64(i+1))
	}
	for _, source := range []string{save(t, "top.csv", head+line), save(t, "x_lat.1.log", "0, 100000, 0, 4096\n1, 100000, 1, 4096\n")} {
		first, err := Read(context.Background(), source, Load{Outstanding: 2})
		if err != nil || len(first) != 2 {
			t.Fatalf("%s: %+v, error %v", source, first, err)
		}
		for range 100 {
			again, err := Read(context.Background(), source, Load{Outstanding: 2})
			if err != nil || !slices.Equal(again, first) {
				t.Fatalf("%s: %+v, and then %+v, error %v", source, first, again, err)
			}
		}
	}
}

// TestSettleTwoNumbers: of two whole numbers that are both between two, all four choices are looked at: here the best one is
// neither what rounding gives nor what one number after the other gives.
func TestSettleTwoNumbers(t *testing.T) {
	m := &Model{Profile: "all-flash", Seed: 1}
	params := []Parameter{{Key: "a", kind: count}, {Key: "b", kind: count}}
	o := Observation{Load: Load{IO: 4096, Outstanding: 1}, Mean: 1e-3, Spread: 0.1, N: 10_000}
	for a := int64(1); a <= 6; a++ {
		for b := int64(1); b <= 6; b++ {
			mean := 5e-3
			switch [2]int64{a, b} {
			case [2]int64{2, 3}:
				mean = 2e-3
			case [2]int64{3, 4}:
				mean = 1e-3
			}
			m.memo.Store(fmt.Sprintf("%#v %t %v", o.Load, o.Writes, map[string]any{"a": a, "b": b}), mean)
		}
	}
	f := &fitter{ctx: context.Background(), opt: &Options{Model: m}, params: params, obs: []Observation{o}}
	p, err := f.look([]float64{math.Log(2.3), math.Log(3.2)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.settle(p); err != nil || got[0] != 3 || got[1] != 4 || f.held != nil {
		t.Errorf("%v, error %v", got, err)
	}
	if p, err = f.look([]float64{math.Log(2), math.Log(3)}); err != nil { // whole already
		t.Fatal(err)
	}
	if got, err := f.settle(p); err != nil || got[0] != 2 || got[1] != 3 {
		t.Errorf("%v, error %v", got, err)
	}
}

// TestManyWholeNumbers: each one more doubles the fits, so that a fit of five is refused.
func TestManyWholeNumbers(t *testing.T) {
	whole := []string{"mdisks.default.parallel", "mdisks.hdd.parallel", "mdisks.ssd.parallel", "policy.in_flight", "copy.reads"}
	for n, says := range map[int]string{mostCounts: "0 latencies do not determine 4 parameters", mostCounts + 1: "5 whole numbers are too many to be fitted; leave all but 4 out of --free"} {
		_, err := Run(context.Background(), nil, Options{Model: &Model{Profile: "svc", Seed: 1}, Free: whole[:n]})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%d: error %v, want %q", n, err, says)
		}
	}
}

// TestBetweenWholeNumbers: between the corners of two whole numbers latencies go over without a jump, and are right at every corner.
func TestBetweenWholeNumbers(t *testing.T) {
	m := &Model{Profile: "all-flash", Seed: 1}
	params := []Parameter{{Key: "a", kind: count}, {Key: "b", kind: count}}
	o := &Observation{Load: Load{IO: 4096, Outstanding: 1}}
	corner := func(a, b int64) float64 { return math.Exp(float64(a) + 10*float64(b*b)/float64(a)) }
	for a := range int64(4) {
		for b := range int64(4) {
			m.memo.Store(fmt.Sprintf("%#v %t %v", o.Load, o.Writes, map[string]any{"a": a + 1, "b": b + 1}), corner(a+1, b+1))
		}
	}
	log := func(a, b float64) float64 {
		t.Helper()
		v, _, err := m.Latency(o, params, []float64{a, b})
		if err != nil {
			t.Fatal(err)
		}
		return math.Log(v)
	}
	for a := 1.0; a <= 3; a++ {
		for b := 1.0; b <= 3; b += 0.25 {
			if at, near := log(a, b), log(a+1e-6, b); math.Abs(at-near) > 1e-3 {
				t.Errorf("%g and %g: %.4f, and %.4f right above", a, b, at, near)
			}
			if at, near := log(b, a), log(b, a+1e-6); math.Abs(at-near) > 1e-3 {
				t.Errorf("%g and %g: %.4f, and %.4f right above", b, a, at, near)
			}
		}
	}
	if got, want := log(2, 3), math.Log(corner(2, 3)); math.Abs(got-want) > 1e-9 {
		t.Errorf("at a corner %g, want %g", got, want)
	}
	mean := (math.Log(corner(1, 1)) + math.Log(corner(2, 2))) / 2
	if got := log(1.5, 1.5); math.Abs(got-mean) > 1e-9 {
		t.Errorf("in the middle %g, want %g", got, mean)
	}
}

// TestMirroredVolumes: hosts' writes to a volume in two copies count once.
func TestMirroredVolumes(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		text := fmt.Sprintf(`<diskStatsColl timestamp="2026-01-01 10:0%d:00" sizeUnits="512B"><vdsk idx="0" id="v" ro="%d" wo="%d" rb="%d" wb="%d" rl="%d" wl="%d"><cpy idx="0"/><cpy idx="1"/></vdsk></diskStatsColl>`,
			i, 6000*i, 3000*i, 6000*16*i, 3000*16*i, 12000*i, 3000*i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("Nv_stats_n1_260101_10%02d00", i)), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	obs, err := Read(context.Background(), dir, Load{})
	if err != nil || len(obs) == 0 {
		t.Fatalf("%+v, error %v", obs, err)
	}
	for _, o := range obs {
		if math.Abs(o.Rate-150) > 0.1 || math.Abs(o.Write-1.0/3) > 1e-3 {
			t.Errorf("%s: %.1f/s, %.3f of it writes; hosts did 100 reads and 50 writes", o.Name, o.Rate, o.Write)
		}
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
	io, err := export.NewIOStats(filepath.Join(dir, "iostats"), export.IOStatsOptions{Keep: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	writers := []export.SnapshotWriter{export.NewParquet(&parquet), export.NewESXTop(&top, ""), io}
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
