package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/exposition"
)

// promSeries is a series of an answer: labels as "name=value ...", values of every 15 s, NaN where there is none.
type promSeries struct {
	name, labels string
	values       []float64
}

// saveAnswer writes an answer that begins at a sample.
func saveAnswer(t *testing.T, dir, file string, from int, all ...promSeries) {
	t.Helper()
	result := []any{}
	for _, s := range all {
		labels, values := map[string]string{"__name__": s.name}, [][2]any{}
		for l := range strings.FieldsSeq(s.labels) {
			name, value, _ := strings.Cut(l, "=")
			labels[name] = value
		}
		for i, x := range s.values {
			if !math.IsNaN(x) {
				values = append(values, [2]any{1e9 + 15*(from+i), fmt.Sprint(x)})
			}
		}
		result = append(result, map[string]any{"metric": labels, "values": values})
	}
	b, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// promVolume is what a volume needs to be judged.
func promVolume(labels string, host, lower, held []float64) []promSeries {
	return []promSeries{
		{metrics.HostTransferred.Name, labels + " direction=write", host}, {metrics.CacheDestaged.Name, labels + " origin=host", lower},
		{metrics.CacheDirty.Name, labels + " origin=host", held},
	}
}

// steps are n values from one on, each so much more.
func steps(n int, from, by float64) (out []float64) {
	for i := range n {
		out = append(out, from+float64(i)*by)
	}
	return out
}

// The counters of two targets are not those of one, whether they are two arrays or one that is scraped twice.
func TestTargetsOfScrapes(t *testing.T) {
	dir := t.TempDir()
	var all []promSeries
	for _, target := range []string{"instance=a:9100", "instance=b:9100"} {
		all = append(all, promVolume(target+" job=x pool=p volume=v", steps(8, 5e12, 1e9), steps(8, 5e12, 1e9), steps(8, 0, 0))...)
	}
	all = append(all, promSeries{metrics.CacheSize.Name, "instance=c:9100 job=x", steps(8, 1e9, 0)}) // it has no volumes
	saveAnswer(t, dir, "range.json", 0, all...)
	d := load1(t, dir, Options{})
	if found := culprits(detect(d)); len(found) > 0 {
		t.Errorf("%v are accused", found)
	}
	var volumes []string
	for _, v := range d.Volumes {
		volumes = append(volumes, v.Pool+" "+v.Name)
	}
	if want := []string{"a:9100/p a:9100/v", "b:9100/p b:9100/v"}; !slices.Equal(volumes, want) || len(d.Notes) == 0 {
		t.Errorf("there are %q, want %q; notes %q", volumes, want, d.Notes)
	}
	// An array that moves between nodes: what it did before is no growth at the other one.
	nan, moved := math.NaN(), t.TempDir()
	from, to := []float64{4e12, 4e12, 4e12, nan, nan, nan}, []float64{nan, nan, 4e12, 4e12, 4e12, 4e12}
	all = promVolume("instance=a pool=p volume=v", from, from, steps(3, 0, 0))
	saveAnswer(t, moved, "range.json", 0, append(all, promVolume("instance=b pool=p volume=v", to, to, []float64{nan, nan, 0, 0, 0, 0})...)...)
	for _, v := range load1(t, moved, Options{}).Volumes {
		if x := highest(v.Host[write]...); x != 0 {
			t.Errorf("hosts wrote %v B/s to %s", x, v.Name)
		}
	}
}

// Saved answers may overlap, and have operations that are neither reads nor writes.
func TestSavedAnswers(t *testing.T) {
	dir := t.TempDir()
	const v = "pool=p volume=v"
	saveAnswer(t, dir, "1.json", 0, promVolume(v, steps(5, 0, 1e9), steps(5, 0, 1e9), steps(5, 0, 0))...)
	saveAnswer(t, dir, "2.json", 4, promVolume(v, steps(5, 4e9, 1e9), steps(5, 4e9, 1e9), steps(5, 0, 0))...)
	var ops []promSeries
	for i, op := range []string{"read", "write", "unmap", "other"} {
		by := []float64{30, 60, 900, 9000}[i]
		for _, suffix := range []string{"_count", "_sum"} {
			ops = append(ops, promSeries{metrics.HostDuration.Name + suffix, "volume=v op=" + op, steps(9, 0, by)})
		}
	}
	saveAnswer(t, dir, "3.json", 0, ops...)
	d := load1(t, dir, Options{})
	if found := culprits(detect(d)); len(found) > 0 {
		t.Errorf("%v are accused", found)
	}
	x := d.Volumes[0]
	for i := range d.Times {
		if x.Ops[read][i] != 2 || x.Ops[write][i] != 4 || x.Time[read][i] != 2 || math.Abs(x.Lower[i]*15-1e9) > 1 {
			t.Errorf("sample %d: %v reads, %v writes, %v B/s destaged", i, x.Ops[read][i], x.Ops[write][i], x.Lower[i])
		}
	}
}

// A volume that was among the others of top:N and comes back has not written what it holds then, and the others have
// not destaged what they held when it was one of them.
func TestAVolumeThatIsShownAgain(t *testing.T) {
	if otherVolumes != exposition.OtherVolumes {
		t.Errorf("the others are %s", exposition.OtherVolumes)
	}
	dir, nan := t.TempDir(), math.NaN()
	own := []float64{1e9, 1e9, nan, nan, 1e9, 1e9, 1e9}
	held := []float64{0, 0, nan, nan, 1e9, 1e9, 1e9}
	all := promVolume("pool=p volume=v", own, own, held)
	all = append(all, promVolume("pool=p volume=other", steps(7, 0, 0), []float64{0, 0, 0, 5e8, 6e8, 2e9, 2e9}, []float64{0, 0, 0, 3e9, 0, 0, 0})...)
	saveAnswer(t, dir, "range.json", 0, all...)
	d := load1(t, dir, Options{})
	f := detect(d)
	if found := culprits(f); len(found) > 0 {
		t.Errorf("%v are accused", found)
	}
	if !strings.Contains(text(t, f), "note: volume other stands for all") {
		t.Errorf("notes are %v", f.Notes)
	}
	v := d.Volumes[1]
	if v.Name != "v" || !math.IsNaN(v.Host[write][3]) || v.Host[write][4] != 0 || v.Held[3] != 1e9 {
		t.Errorf("%s: hosts wrote %v, it held %v", v.Name, v.Host[write], v.Held)
	}
}

// A volume that was among the others for some scrapes of a sample, and not at its ends, has no growth there either.
func TestAVolumeThatWasNotAlwaysShown(t *testing.T) {
	if got, want := shownQuery(6*time.Minute), "max without (direction) (count_over_time(arraysim_host_transferred_bytes_total[6m]))"; got != want {
		t.Errorf("the query is %s, want %s", got, want)
	}
	for _, hidden := range []bool{true, false} {
		b := newPromRange()
		put := func(name, volume string, values ...model.SampleValue) {
			s := &model.SampleStream{Metric: model.Metric{"pool": "p", "volume": model.LabelValue(volume), "instance": "a"}}
			if name == metrics.HostTransferred.Name {
				s.Metric["direction"] = "write"
			}
			for i, x := range values {
				s.Values = append(s.Values, model.SamplePair{Timestamp: model.Time(1e12 + 360e3*i), Value: x})
			}
			b.matrix(model.Matrix{s}, name)
		}
		for _, volume := range []string{"v", "w"} {
			put(metrics.HostTransferred.Name, volume, 5, 5, 5, 5)
			put(metrics.CacheDestaged.Name, volume, 5, 5, 5, 5)
		}
		put(metrics.CacheDirty.Name, "v", 0, 0, 1e9, 1e9)
		put(metrics.CacheDirty.Name, "w", 0, 0, 0, 0)
		put(shown, "w", 24, 24, 24, 24)
		if hidden {
			put(shown, "v", 24, 24, 11, 24)
		} else {
			put(shown, "v", 24, 24, 24, 24)
		}
		if found := culprits(detect(b.data("url"))); len(found) > 0 == hidden {
			t.Errorf("it was hidden: %v, and %v are accused", hidden, found)
		}
	}
}

// promShown are how many scrapes have shown a volume since the sample before.
func promShown(labels string, values ...float64) promSeries { return promSeries{shown, labels, values} }

// accused is a volume whose lower bytes nobody has sent, in samples that have values, and an honest one.
func accused(target string, has ...bool) []promSeries {
	mask := func(x []float64) []float64 {
		for i := range x {
			if !has[i] {
				x[i] = math.NaN()
			}
		}
		return x
	}
	n := len(has)
	return append(promVolume(target+" pool=p volume=v", mask(steps(n, 0, 0)), mask(steps(n, 0, 3e9)), mask(steps(n, 0, 0))),
		promVolume(target+" pool=p volume=w", mask(steps(n, 0, 1e9)), mask(steps(n, 0, 1e9)), mask(steps(n, 0, 0)))...)
}

// A scrape that failed hides no volume: rates go across it. One that was hidden for a part of it is still unknown.
func TestAScrapeThatFailed(t *testing.T) {
	for _, c := range []struct {
		v       []float64 // scrapes that have shown it
		unknown bool
	}{{[]float64{24, 24, 23, 24, 24, 24}, false}, {[]float64{24, 24, 11, 24, 24, 24}, true}, {[]float64{24, 24, math.NaN(), 24, 24, 24}, true}} {
		dir := t.TempDir()
		all := accused("instance=a", true, true, false, true, true, true)
		all = append(all, promShown("instance=a pool=p volume=v", c.v...), promShown("instance=a pool=p volume=w", 24, 24, 23, 24, 24, 24))
		saveAnswer(t, dir, "range.json", 0, all...)
		d := load1(t, dir, Options{})
		if len(d.Times) != 4 || math.IsNaN(d.Volumes[0].Lower[1]) != c.unknown || math.IsNaN(d.Volumes[1].Lower[1]) {
			t.Errorf("shown in %v: there are %d samples; v destaged %v, w %v", c.v, len(d.Times), d.Volumes[0].Lower, d.Volumes[1].Lower)
		}
		if !c.unknown && d.Volumes[0].Lower[1]*30 != 6e9 {
			t.Errorf("across the gap v destaged %v B/s", d.Volumes[0].Lower[1])
		}
	}
}

// Targets whose answers have other instants do not hide one another's volumes.
func TestTargetsAtOtherInstants(t *testing.T) {
	dir := t.TempDir()
	a, b := make([]bool, 20), make([]bool, 20)
	for i := range a {
		a[i], b[i] = i%2 == 0, i%2 == 1
	}
	saveAnswer(t, dir, "1.json", 0, accused("instance=a", a...)...)
	saveAnswer(t, dir, "2.json", 0, accused("instance=b", b...)...)
	d := load1(t, dir, Options{})
	if found := culprits(detect(d)); len(found) != 2 {
		t.Errorf("%v are accused, want v of both targets", found)
	}
	for _, v := range d.Volumes {
		if math.IsNaN(highest(v.Lower...)) {
			t.Errorf("nothing is known of %s", v.Name)
		}
	}
}

// A label that a Prometheus derives from some volumes or pools makes no further target of them.
func TestLabelsThatOnlySomeSeriesHave(t *testing.T) {
	dir := t.TempDir()
	const target = "instance=a job=x pod=y replica=z site=s "
	all := promVolume(target+"pool=p volume=v team=blue tier=gold", steps(4, 0, 1e9), steps(4, 0, 1e9), steps(4, 0, 0))
	all = append(all, promVolume(target+"pool=q volume=w team=red", steps(4, 0, 1e9), steps(4, 0, 1e9), steps(4, 0, 0))...)
	all = append(all, promSeries{metrics.CacheLimit.Name, target + "pool=p tier=gold", steps(4, 1e9, 0)},
		promSeries{metrics.CacheUsed.Name, target + "pool=p tier=gold", steps(4, 5e8, 0)},
		promSeries{metrics.CacheSize.Name, target, steps(4, 8e9, 0)}, promSeries{"up", "instance=b", steps(9, 1, 0)})
	saveAnswer(t, dir, "range.json", 0, all...)
	d := load1(t, dir, Options{})
	if len(d.Volumes) != 2 || d.Volumes[0].Name != "v" || d.Volumes[1].Name != "w" || len(d.Pools) != 1 || d.Pools[0].Name != "p" {
		t.Errorf("volumes %v, pools %v, notes %q", d.Volumes, d.Pools, d.Notes)
	}
	if d.CacheSize != 8e9 || len(d.Times) != 3 {
		t.Errorf("the cache has %v B; there are %d samples", d.CacheSize, len(d.Times))
	}
	// Labels of all series do make one.
	for _, label := range []string{"instance", "job", "pod", "replica", "site"} {
		dir := t.TempDir()
		saveAnswer(t, dir, "range.json", 0, append(accused(label+"=a", true, true), accused(label+"=b", true, true)...)...)
		if n := len(load1(t, dir, Options{}).Volumes); n != 4 {
			t.Errorf("two targets by %s have %d volumes", label, n)
		}
	}
}

// The size of the cache does not depend on the order of targets of which it is not known.
func TestCacheSizeOfTargets(t *testing.T) {
	for _, c := range []struct{ a, b, want float64 }{{0, 8e9, 8e9}, {8e9, 0, 8e9}, {8e9, 8e9, 8e9}, {4e9, 8e9, 0}, {0, 0, 0}} {
		dir := t.TempDir()
		all := append(accused("instance=a", true, true), accused("instance=b", true, true)...)
		for target, x := range map[string]float64{"instance=a": c.a, "instance=b": c.b} {
			if x > 0 {
				all = append(all, promSeries{metrics.CacheSize.Name, target, steps(2, x, 0)})
			}
		}
		saveAnswer(t, dir, "range.json", 0, all...)
		if got := load1(t, dir, Options{}).CacheSize; got != c.want {
			t.Errorf("sizes %v and %v give %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// A volume that changed its pool between two samples was shown in both.
func TestAVolumeThatChangedItsPool(t *testing.T) {
	dir := t.TempDir()
	nan := math.NaN()
	all := append(accused("instance=a", true, true, true, true), promShown("instance=a pool=p volume=w", 24, 24, 24, 24),
		promShown("instance=a pool=p volume=v", 24, 24, 10, nan), promShown("instance=a pool=q volume=v", nan, nan, 14, 24))
	saveAnswer(t, dir, "range.json", 0, all...)
	if v := load1(t, dir, Options{}).Volumes[0]; math.IsNaN(v.Lower[1]) {
		t.Errorf("%s destaged %v", v.Name, v.Lower)
	}
}

// A volume that was deleted and made again has not done what is left to the end of 32 bits.
func TestOurCountersDoNotWrap(t *testing.T) {
	dir := t.TempDir()
	saveAnswer(t, dir, "range.json", 0, promVolume("pool=p volume=v", []float64{4.2e9, 4.2e9, 0.1e9, 0.1e9}, []float64{3.3e9, 3.3e9, 0.1e9, 0.1e9}, steps(4, 0, 0))...)
	d := load1(t, dir, Options{})
	if found := culprits(detect(d)); len(found) > 0 || !slices.Contains(d.Notes, restarted) {
		t.Errorf("%v are accused; notes %v", found, d.Notes)
	}
}

// A cap that changed in a sample does not make the partition twice as full in all of it.
func TestFullnessOfAPoolThatBeganAnew(t *testing.T) {
	var all []*reading
	for i, seconds := range []float64{100, 140, 20, 60} {
		r := newReading(int64(i) * 1e9)
		p := r.pool("p")
		p.cap, p.seconds, p.full, p.peak = 100, seconds, 0.1, 0.2
		all = append(all, r)
	}
	if p := series("", all, units{bytes: 1, time: 1, endless: true}).Pools[0]; p.Full[0] != 0.4 || !math.IsNaN(p.Full[1]) || p.Full[2] != 0.4 {
		t.Errorf("mean %v", p.Full)
	}
}

// What a volume was before it began anew is nothing to compare with, also where a counter has grown beyond that.
func TestLabelsOfAVolumeThatBeganAnew(t *testing.T) {
	var all []*reading
	for i, bytes := range []float64{100, 5, 6} {
		r := newReading(int64(i) * 1e9)
		v := r.volume("v", "p")
		v.bytes[write] = bytes
		v.labelled = map[string]float64{"host": 10 + 10*float64(i)}
		v.described = map[string]float64{"unmap": 10 + 10*float64(i)}
		all = append(all, r)
	}
	v := series("", all, units{bytes: 1, time: 1, endless: true}).Volumes[0]
	if !math.IsNaN(v.Host[write][0]) || !math.IsNaN(v.Labelled["host"][0]) || v.Labelled["host"][1] != 10 || v.Described["unmap"][0] != 20 {
		t.Errorf("hosts wrote %v; of label host %v, described %v", v.Host[write], v.Labelled, v.Described)
	}
}

func TestFullnessWhenTheCapChanges(t *testing.T) {
	var all []*reading
	for i, limit := range []float64{100, 100, 50, 50} {
		r := newReading(int64(i) * 1e9)
		p := r.pool("p")
		p.cap, p.seconds, p.full, p.peak = limit, 40*float64(i), 40/limit, 40/limit
		all = append(all, r)
	}
	p := series("", all, units{bytes: 1, time: 1}).Pools[0]
	if p.Full[0] != 0.4 || !math.IsNaN(p.Full[1]) || p.Peak[1] != 0.8 || p.Full[2] != 0.8 {
		t.Errorf("mean %v, peak %v", p.Full, p.Peak)
	}
}
