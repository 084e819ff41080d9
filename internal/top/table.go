package top

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// column is a column of a view: its head on the screen, its name in CSV, and how
// its numbers are shown; text columns have no show.
type column struct {
	head, name string
	show       func(float64) string
	alarm      bool // a number above 0 stands out
}

// cell is text or a number, NaN if it is unknown.
type cell struct {
	text string
	n    float64
}

var unknown = math.NaN()

// table is a view of what happened between two readings.
type table struct {
	columns []column
	rows    [][]cell
}

// reading is what the daemon said at one time. What only some views show is asked for where it is shown.
type reading struct {
	admin.Counters
	running []admin.Offload
	status  admin.Status // of the nodes
	// p99 is that of each volume's reads and writes in its worst second since the reading before, in ns. The history has it
	// of the volumes that did most; of others, and where nothing was read or written, it is unknown.
	p99 map[string]float64
}

// read asks the daemon. The interval is the time since the reading before.
func read(ctx context.Context, array *admin.Client, view string, interval time.Duration) (r reading, err error) {
	if r.Counters, err = array.Counters(ctx); err != nil {
		return r, err
	}
	switch view {
	case "running":
		r.running, err = array.Offloads(ctx)
	case "nodes":
		r.status, err = array.Status(ctx)
	case "volumes":
		var h admin.HistoryRange
		seconds := min(max(int64((interval+time.Second-1)/time.Second), 1), mostSeconds)
		h, err = array.History(ctx, admin.HistoryQuery{Seconds: seconds, Points: int(seconds), Top: mostVolumes})
		r.p99 = worst(h, "latency_p99_ns")
	}
	return r, err
}

// What a history is asked for at most: its own bounds.
const (
	mostSeconds = 1000
	mostVolumes = 64
)

// worst returns each volume's highest value of a figure of the history.
func worst(h admin.HistoryRange, figure string) map[string]float64 {
	out := map[string]float64{}
	for _, o := range h.Objects {
		for _, v := range o.Series[figure] {
			if x := float64(v); o.Kind == "volume" && !math.IsNaN(x) {
				out[o.Name] = max(out[o.Name], x)
			}
		}
	}
	return out
}

// rates returns what makes a rate by second of two values of a counter.
func rates(from, to reading) func(old, now uint64) float64 {
	seconds := float64(to.Time-from.Time) / 1e9
	return func(old, now uint64) float64 {
		if seconds <= 0 || now < old { // another array instead of the old one
			return 0
		}
		return float64(now-old) / seconds
	}
}

// volumesBefore returns the volumes of the earlier reading by name. One that has lost its name to another is not among them:
// the other one counts from 0.
func volumesBefore(from, to admin.Counters) map[string]admin.VolumeCounters {
	before := map[string]admin.VolumeCounters{}
	for _, v := range from.Volumes {
		before[v.Volume] = v
	}
	for _, v := range to.Volumes {
		if before[v.Volume].ID != v.ID {
			delete(before, v.Volume)
		}
	}
	return before
}

// newTable makes a view of two readings. Rates are by second.
func newTable(view string, from, to reading) table {
	rate := rates(from, to)
	switch view {
	case "pools":
		return pools(from.Counters, to.Counters, rate)
	case "hosts":
		return hosts(from.Counters, to.Counters, rate)
	case "offloads":
		return offloads(from.Counters, to.Counters, rate)
	case "running":
		return runningOffloads(to.running)
	case "nodes":
		return nodes(from.status, to.status, rate)
	}
	return volumes(from.Counters, to, rate)
}

func volumes(from admin.Counters, to reading, rate func(old, now uint64) float64) table {
	t := table{columns: []column{
		{"VOLUME", "volume", nil, false}, {"POOL", "pool", nil, false},
		{"CMD/s", "commands_per_second", showCount, false}, {"READ MB/s", "host_read_bytes_per_second", showRate, false},
		{"WRITE MB/s", "host_written_bytes_per_second", showRate, false}, {"UNDERCOVER MB/s", "undercover_bytes_per_second", showRate, true},
		{"DESCRIBED MB/s", "described_bytes_per_second", showRate, false}, {"LAT ms", "mean_latency_ns", showMillis, false}, {"P99 ms", "p99_latency_ns", showMillis, false},
		{"QUEUE", "queue_depth", showCount, false}, {"CACHE", "cache_dirty_bytes", showSize, false}, {"%CAP", "cache_percent_of_cap", showShare, false}}}
	before, caps := volumesBefore(from, to.Counters), map[string]admin.Size{}
	for _, p := range to.Pools {
		caps[p.Pool] = p.CacheLimit
	}
	for _, v := range to.Volumes {
		b, latency, share := before[v.Volume], unknown, 0.0
		if n := v.Timed - b.Timed; v.Timed > b.Timed && v.Busy >= b.Busy {
			latency = float64(v.Busy-b.Busy) / float64(n)
		}
		p99, ok := to.p99[v.Volume]
		if !ok {
			p99 = unknown
		}
		if c := caps[v.Pool]; c > 0 {
			share = 100 * float64(v.Dirty) / float64(c)
		}
		t.rows = append(t.rows, []cell{{text: v.Volume}, {text: v.Pool}, {n: rate(b.Commands, v.Commands)}, {n: rate(uint64(b.Read), uint64(v.Read))},
			{n: rate(uint64(b.Written), uint64(v.Written))}, {n: rate(uint64(b.Undercover), uint64(v.Undercover))}, {n: rate(total(b.Described), total(v.Described))},
			{n: latency}, {n: p99}, {n: float64(v.Queue)}, {n: float64(v.Dirty)}, {n: share}})
	}
	return t
}

func pools(from, to admin.Counters, rate func(old, now uint64) float64) table {
	t := table{columns: []column{
		{"POOL", "pool", nil, false}, {"CACHE", "cache_used_bytes", showSize, false}, {"CAP", "cache_limit_bytes", showSize, false},
		{"%CAP", "cache_percent_of_cap", showShare, false}, {"WAITING", "cache_waiting_bytes", showSize, false}, {"PINNED", "cache_pinned_bytes", showSize, false},
		{"COPYING", "offload_inflight_bytes", showSize, false}, {"BE READ MB/s", "backend_read_bytes_per_second", showRate, false},
		{"BE WRITE MB/s", "backend_written_bytes_per_second", showRate, false}, {"UNDERCOVER MB/s", "undercover_bytes_per_second", showRate, true}, {"BE QUEUE", "backend_queue_depth", showCount, false}}}
	before, hidden := map[string]admin.PoolCounters{}, map[string]float64{}
	for _, p := range from.Pools {
		before[p.Pool] = p
	}
	old := volumesBefore(from, to)
	for _, v := range to.Volumes {
		hidden[v.Pool] += rate(uint64(old[v.Volume].Undercover), uint64(v.Undercover))
	}
	for _, p := range to.Pools {
		b, share := before[p.Pool], 0.0
		if b.ID != p.ID { // another pool of this name, which counts from 0
			b = admin.PoolCounters{}
		}
		if p.CacheLimit > 0 {
			share = 100 * float64(p.CacheUsed) / float64(p.CacheLimit)
		}
		t.rows = append(t.rows, []cell{{text: p.Pool}, {n: float64(p.CacheUsed)}, {n: float64(p.CacheLimit)}, {n: share}, {n: float64(p.Waiting)}, {n: float64(p.Pinned)},
			{n: float64(total(p.Inflight))}, {n: rate(uint64(b.BackendRead), uint64(p.BackendRead))}, {n: rate(uint64(b.BackendWrite), uint64(p.BackendWrite))},
			{n: hidden[p.Pool]}, {n: float64(p.Queue)}})
	}
	return t
}

func hosts(from, to admin.Counters, rate func(old, now uint64) float64) table {
	t := table{columns: []column{
		{"HOST", "host", nil, false}, {"CMD/s", "commands_per_second", showCount, false}, {"READ/s", "reads_per_second", showCount, false},
		{"WRITE/s", "writes_per_second", showCount, false}, {"OTHER/s", "other_per_second", showCount, false}, {"COMMANDS", "commands", showCount, false}, {"NOT GOOD", "failed", showCount, false}}}
	before := map[string]admin.HostCounters{}
	for _, h := range from.Hosts {
		before[h.Host] = h
	}
	for _, h := range to.Hosts {
		b := before[h.Host]
		all, read, write := rate(total(b.Commands), total(h.Commands)), rate(b.Commands["read"], h.Commands["read"]), rate(b.Commands["write"], h.Commands["write"])
		t.rows = append(t.rows, []cell{{text: h.Host}, {n: all}, {n: read}, {n: write}, {n: max(0, all-read-write)}, {n: float64(total(h.Commands))}, {n: float64(h.Failed)}})
	}
	return t
}

func offloads(from, to admin.Counters, rate func(old, now uint64) float64) table {
	t := table{columns: []column{
		{"VOLUME", "volume", nil, false}, {"POOL", "pool", nil, false}, {"PRIMITIVE", "primitive", nil, false}, {"OPS/s", "operations_per_second", showCount, false},
		{"OPS", "operations", showCount, false}, {"UNDERCOVER MB/s", "undercover_bytes_per_second", showRate, true}, {"IN FLIGHT (POOL)", "pool_inflight_bytes", showSize, false}}}
	before, pools := volumesBefore(from, to), map[string]admin.PoolCounters{}
	for _, p := range to.Pools {
		pools[p.Pool] = p
	}
	for _, v := range to.Volumes {
		b := before[v.Volume]
		for _, prim := range slices.Sorted(maps.Keys(v.Offloads)) {
			t.rows = append(t.rows, []cell{{text: v.Volume}, {text: v.Pool}, {text: prim}, {n: rate(b.Offloads[prim], v.Offloads[prim])}, {n: float64(v.Offloads[prim])},
				{n: rate(uint64(b.Admitted[prim]), uint64(v.Admitted[prim]))}, {n: float64(pools[v.Pool].Inflight[prim])}})
		}
	}
	return t
}

// nodes shows the nodes of the array, and who has it.
func nodes(from, to admin.Status, rate func(old, now uint64) float64) table {
	t := table{columns: []column{
		{"NODE", "node", nil, false}, {"ID", "id", showCount, false}, {"STATE", "state", nil, false}, {"STANDS BY", "stands_by", nil, false},
		{"EPOCH", "epoch", showCount, false}, {"LEASE ms", "lease_age_ns", showMillis, false}, {"SESSIONS", "sessions", showCount, false},
		{"FORWARDED/s", "forwarded_per_second", showCount, false}, {"FORWARDED", "forwarded", showCount, false}}}
	before := map[int]uint64{}
	for _, n := range from.Nodes {
		before[n.ID] = n.Commands
	}
	for _, n := range to.Nodes {
		epoch, lease, stands := unknown, unknown, "no"
		if o := to.Ownership; n.State == admin.NodeOwner && o != nil {
			if o.Epoch != nil {
				epoch = float64(*o.Epoch)
			}
			if o.LeaseAge != nil {
				lease = *o.LeaseAge * 1e9
			}
		}
		switch {
		case n.State == admin.NodeOwner:
			stands = "-"
		case n.StandsBy:
			stands = "yes"
		}
		was, ok := before[n.ID]
		if !ok {
			was = n.Commands
		}
		t.rows = append(t.rows, []cell{{text: n.Name}, {n: float64(n.ID)}, {text: n.State}, {text: stands}, {n: epoch}, {n: lease}, {n: float64(n.Sessions)},
			{n: rate(was, n.Commands)}, {n: float64(n.Commands)}})
	}
	return t
}

// runningOffloads shows each offload that is in flight.
func runningOffloads(list []admin.Offload) table {
	t := table{columns: []column{
		{"VOLUME", "volume", nil, false}, {"HOST", "host", nil, false}, {"PRIMITIVE", "primitive", nil, false},
		{"DONE", "done_bytes", showSize, false}, {"TOTAL", "total_bytes", showSize, false}, {"FOR ms", "age_ns", showMillis, false}}}
	for _, o := range list {
		t.rows = append(t.rows, []cell{{text: o.Volume}, {text: o.Initiator}, {text: o.Primitive}, {n: float64(o.Done)}, {n: float64(o.Total)}, {n: float64(o.Age)}})
	}
	return t
}

func total[N ~uint64](m map[string]N) uint64 {
	n := uint64(0)
	for _, v := range m {
		n += uint64(v)
	}
	return n
}

// sort orders the rows by a column, text upwards, numbers downwards, or the other way
// round. Equal ones are in the order of their names.
func (t *table) sort(column int, reverse bool) {
	number := t.columns[column].show != nil
	slices.SortStableFunc(t.rows, func(a, b []cell) int {
		d := strings.Compare(a[column].text, b[column].text)
		if number {
			d = cmp.Compare(b[column].n, a[column].n)
		}
		if reverse {
			d = -d
		}
		if d == 0 {
			d = strings.Compare(a[0].text, b[0].text)
		}
		return d
	})
}

// keep leaves only the rows in whose texts the filter occurs.
func (t *table) keep(filter string) {
	filter = strings.ToLower(filter)
	t.rows = slices.DeleteFunc(t.rows, func(r []cell) bool {
		for i, c := range r {
			if t.columns[i].show == nil && strings.Contains(strings.ToLower(c.text), filter) {
				return false
			}
		}
		return true
	})
}

// heads writes the line of column names for a CSV file.
func (t *table) heads(w *csv.Writer) error {
	line := []string{"time"}
	for _, c := range t.columns {
		line = append(line, c.name)
	}
	return w.Write(line)
}

// lines writes the rows for a CSV file.
func (t *table) lines(w *csv.Writer, now time.Time) error {
	for _, r := range t.rows {
		line := []string{now.UTC().Format(time.RFC3339Nano)}
		for i, c := range r {
			switch {
			case t.columns[i].show == nil:
				line = append(line, c.text)
			case math.IsNaN(c.n):
				line = append(line, "")
			default:
				line = append(line, strconv.FormatFloat(c.n, 'f', -1, 64))
			}
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

func showCount(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

func showRate(n float64) string {
	if n > 0 && n < 50e3 {
		return "<0.1"
	}
	return strconv.FormatFloat(n/1e6, 'f', 1, 64)
}

func showMillis(ns float64) string { return fmt.Sprintf("%.2f", ns/1e6) }

func showSize(n float64) string { return admin.Size(n).Human() }
