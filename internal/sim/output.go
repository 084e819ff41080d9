package sim

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/exposition"
)

// snapshot is all counters of all arrays.
type snapshot struct {
	samples []sample
	index   map[string]int // never iterated
}

type sample struct {
	array  string
	family *metrics.Family
	labels []string
	value  float64
	histo  *metrics.Histogram
}

func (x *sample) key() string {
	return x.array + "\x00" + x.family.Name + "\x00" + strings.Join(x.labels, "\x00")
}

// free is the lock of what belongs to the goroutine that asks.
type free struct{}

func (free) Lock()   {}
func (free) Unlock() {}

func (r *Run) snap() snapshot {
	s := snapshot{index: map[string]int{}}
	for _, y := range r.arrays {
		var now metrics.Snapshot
		now.Take(0, free{}, y.target, y.array)
		now.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
			x := sample{array: y.name, family: f, labels: slices.Clone(labels), value: v}
			if h != nil {
				copied := *h
				x.value, x.histo = float64(h.Count), &copied
			}
			s.index[x.key()] = len(s.samples)
			s.samples = append(s.samples, x)
		})
	}
	return s
}

// counted returns the counters now, or at the end of a run that is finished.
func (r *Run) counted() snapshot {
	if r.finished {
		return r.last
	}
	return r.snap()
}

// report is what the array's own check finds.
func (y *system) report() array.Report {
	if y.r.finished {
		return y.check
	}
	return y.array.Check(false)
}

// before returns what a counter was in this snapshot; a gauge has no before.
func (s *snapshot) before(x *sample) float64 {
	if x.family.Kind == metrics.Gauge {
		return 0
	}
	if i, ok := s.index[x.key()]; ok {
		return s.samples[i].value
	}
	return 0
}

// Output is the files of a run, by name.
func (r *Run) Output() map[string][]byte {
	out := map[string][]byte{
		"counters.txt": r.counters(),
		"events.log":   []byte(r.log.String()),
		"volumes.csv":  r.volumesCSV(),
		"pools.csv":    r.poolsCSV(),
		"report.txt":   []byte(r.Report()),
		"result.json":  r.JSON(),
	}
	if len(r.caches) > 0 {
		out["hostcache.csv"] = r.cachesCSV()
	}
	return out
}

// counters prints every counter's increase since the start, and every gauge, in the
// text format of the metrics endpoint, with the array as a label.
func (r *Run) counters() []byte {
	var text exposition.Text
	now := r.counted()
	for i := range now.samples {
		x := &now.samples[i]
		if x.histo == nil {
			text.Add(x.family, x.array, x.labels, x.value-r.base.before(x), nil)
			continue
		}
		h := *x.histo
		if k, ok := r.base.index[x.key()]; ok {
			h = h.Growth(r.base.samples[k].histo)
		}
		text.Add(x.family, x.array, x.labels, 0, &h)
	}
	var b bytes.Buffer
	_, _ = text.WriteTo(&b) // a buffer takes everything
	return b.Bytes()
}

// table is a CSV file in memory: rows of text, numbers and integers.
type table struct {
	b     bytes.Buffer
	w     *csv.Writer
	cells []string
}

func newTable(heads ...string) *table {
	t := &table{}
	t.w = csv.NewWriter(&t.b)
	_ = t.w.Write(heads) // a buffer takes everything
	return t
}

func (t *table) text(cells ...string) { t.cells = append(t.cells, cells...) }

func (t *table) ints(cells ...uint64) {
	for _, n := range cells {
		t.cells = append(t.cells, strconv.FormatUint(n, 10))
	}
}

// seconds writes a time of the run.
func (t *table) seconds(at int64) {
	t.cells = append(t.cells, strconv.FormatFloat(float64(at)/second, 'f', -1, 64))
}

// end ends a row.
func (t *table) end() {
	_ = t.w.Write(t.cells)
	t.cells = t.cells[:0]
}

func (t *table) bytes() []byte {
	t.w.Flush()
	return t.b.Bytes()
}

// volumesCSV is the time series by volume: upper writes, cache held, lower writes by
// origin. Rows without anything are left out.
func (r *Run) volumesCSV() []byte {
	heads := []string{"seconds", "array", "pool", "volume", "reads", "writes", "read_bytes", "write_bytes", "read_ns", "write_ns", "held_bytes"}
	for o := range block.NumOrigins {
		heads = append(heads, "lower_"+o.String()+"_bytes")
	}
	t := newTable(heads...)
	s := &r.series
	n := 0
	if len(s.volumes) > 0 {
		n = len(s.volumes[0])
	}
	for k := range n {
		for i, v := range r.volumes {
			x := &s.volumes[i][k]
			if *x == (volumeSample{}) {
				continue
			}
			t.seconds(min(int64(k+1)*s.interval, r.end))
			t.text(v.sys.name, v.info.Pool, v.name)
			h := &x.host
			t.ints(h.ops[0], h.ops[1], h.bytes[0], h.bytes[1], uint64(h.wait[0]), uint64(h.wait[1]), x.held)
			t.ints(x.lower[:]...)
			t.end()
		}
	}
	return t.bytes()
}

func (r *Run) poolsCSV() []byte {
	t := newTable("seconds", "array", "pool", "used_bytes", "used_mean_bytes", "used_max_bytes", "limit_bytes", "host_ios", "host_writes", "write_ns")
	for i := range r.series.pools {
		p := &r.series.pools[i]
		for k, x := range p.samples {
			t.seconds(int64(k+1) * second)
			t.text(p.sys.name, p.name)
			t.ints(x.used, x.mean, x.top, x.limit, x.ios, x.writes, uint64(x.wait))
			t.end()
		}
	}
	return t.bytes()
}

// Result is a run in figures. One that the run does not have is nil, such as the latency of a job without an I/O.
type Result struct {
	Scenario string              `json:"scenario"`
	Seed     uint64              `json:"seed"`
	Seconds  float64             `json:"seconds"`
	Jobs     []map[string]any    `json:"jobs"`
	Arrays   []map[string]any    `json:"arrays"`
	Figures  map[string]*float64 `json:"figures"`
}

// known returns a figure, nil if it is not known.
func known(v float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	return &v
}

// cell prints a figure in a column, with so many digits behind the point, or "-" if it is not known.
func cell(width, digits int, v float64, ok bool) string {
	if !ok {
		return fmt.Sprintf(" %*s", width, "-")
	}
	return fmt.Sprintf(" %*.*f", width, digits, v)
}

var jobFigures = []string{"seconds", "gb_s", "iops", "latency_ms", "p50_ms", "p99_ms", "max_ms", "failed", "aborted", "wire_mb_s"}

// Result returns the run's main figures.
func (r *Run) Result() Result {
	res := Result{Scenario: r.s.Name, Seed: r.s.Seed, Seconds: float64(r.end) / second, Figures: map[string]*float64{}}
	for _, j := range r.jobs {
		m := map[string]any{"name": j.spec.Name, "kind": j.spec.Kind, "bytes": j.bytes, "ended": j.over}
		for _, f := range jobFigures {
			v := known(j.value(f))
			m[f] = v
			res.Figures["job."+j.spec.Name+"."+f] = v
		}
		res.Jobs = append(res.Jobs, m)
	}
	for i := range r.series.pools {
		p := &r.series.pools[i]
		for _, f := range []string{"fullness_mean", "fullness_max", "write_ms", "write_peak_ms", "tower_seconds", "iops"} {
			res.Figures["pool."+p.name+"."+f] = known(r.poolValue(p, f, 0, r.end))
		}
	}
	for _, y := range r.arrays {
		c := y.report()
		res.Arrays = append(res.Arrays, map[string]any{"name": y.name, "profile": y.p.Name, "problems": c.Problems, "conserved_bytes": c.Conserved})
	}
	return res
}

// JSON returns Result as JSON.
func (r *Run) JSON() []byte {
	b, err := json.MarshalIndent(r.Result(), "", "  ")
	if err != nil {
		panic("sim: internal error: " + err.Error())
	}
	return append(b, '\n')
}

// Report returns the run as a text for people.
func (r *Run) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of simulated time, seed %d\n", r.s.Name, Duration(r.end), r.s.Seed)
	if len(r.jobs) > 0 {
		fmt.Fprintf(&b, "\n%-16s %-6s %10s %10s %10s %10s %10s %10s %8s\n", "job", "kind", "seconds", "GB/s", "I/O/s", "mean ms", "p99 ms", "wire MiB/s", "failed")
	}
	for _, j := range r.jobs {
		v := func(digits int, name string) string { x, ok := j.value(name); return cell(10, digits, x, ok) }
		fmt.Fprintf(&b, "%-16s %-6s%s%s%s%s%s%s %8d\n", j.spec.Name, j.spec.Kind,
			v(1, "seconds"), v(3, "gb_s"), v(0, "iops"), v(3, "latency_ms"), v(3, "p99_ms"), v(2, "wire_mb_s"), j.failed+j.aborted)
	}
	fmt.Fprintf(&b, "\n%-16s %9s %9s %9s %11s %11s %8s\n", "pool", "mean %", "max %", "I/O/s", "write ms", "peak ms", "tower s")
	for i := range r.series.pools {
		p := &r.series.pools[i]
		v := func(width, digits int, name string) string {
			x, ok := r.poolValue(p, name, 0, r.end)
			return cell(width, digits, x, ok)
		}
		fmt.Fprintf(&b, "%-16s%s%s%s%s%s%s\n", p.sys.name+"/"+p.name, v(9, 1, "fullness_mean"), v(9, 1, "fullness_max"), v(9, 0, "iops"),
			v(11, 3, "write_ms"), v(11, 1, "write_peak_ms"), v(8, 0, "tower_seconds"))
	}
	r.reportCaches(&b)
	r.reportOffload(&b)
	r.reportUndercover(&b)
	for _, y := range r.arrays {
		c := y.report()
		if len(c.Problems) == 0 {
			fmt.Fprintf(&b, "array %s: conserved to the byte (%d MiB on either side)\n", y.name, c.Conserved>>20)
		}
		for _, p := range c.Problems {
			fmt.Fprintf(&b, "array %s: PROBLEM: %s\n", y.name, p)
		}
	}
	return b.String()
}

// reportOffload prints esxtop's VAAI columns of the devices that have any.
func (r *Run) reportOffload(b *strings.Builder) {
	head := false
	for _, h := range r.hosts {
		for _, d := range h.devices {
			if d.top == (esxtop{}) {
				continue
			}
			cols := d.top.columns()
			if !head {
				head = true
				fmt.Fprintf(b, "\n%-10s %-12s", "host", "device")
				for _, c := range cols {
					fmt.Fprintf(b, " %8s", c.name)
				}
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "%-10s %-12s", h.name, d.v.name)
			for _, c := range cols {
				fmt.Fprintf(b, " %8d", c.n)
			}
			b.WriteByte('\n')
		}
	}
}

// reportUndercover prints the volumes that were written below what hosts see.
func (r *Run) reportUndercover(b *strings.Builder) {
	head := false
	for i, v := range r.volumes {
		n := r.undercover(i)
		if n == 0 {
			continue
		}
		if !head {
			head = true
			fmt.Fprintf(b, "\n%-16s %14s %14s\n", "undercover", "host writes MiB", "lower MiB")
		}
		fmt.Fprintf(b, "%-16s %14.1f %14.1f\n", v.name, float64(v.host.bytes[1])/mb, float64(n)/mb)
	}
	b.WriteByte('\n')
}
