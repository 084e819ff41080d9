package admin

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/arraysim/arraysim/internal/history"
	"github.com/arraysim/arraysim/internal/metrics"
)

const (
	historyName = "history" // in the data folder
	// historyFlush is how much of the history a killed process may lose.
	historyFlush = 10 * time.Second
	// Kinds of objects in the history.
	kindTotal, kindVolume, kindPool = "total", "volume", "pool"
	timedField                      = 7 // of trafficFields: reads and writes a second
	p99Field                        = "latency_p99_ns"
)

// trafficFields are what the history has of a volume, and of all of them together. Rates are a second, and latencies
// those of reads and writes that move data: an offload takes as long as what it describes.
var trafficFields = []history.Field{
	{Name: "host_read_bytes", Rank: true}, {Name: "host_written_bytes", Rank: true}, {Name: "described_bytes"},
	{Name: "admitted_bytes"}, {Name: "undercover_bytes", Rank: true}, {Name: "commands"}, {Name: "offloads"},
	timedField: {Name: "reads_and_writes"}, {Name: "latency_ns", Rule: history.Weighted, Weight: timedField},
	{Name: p99Field, Rule: history.Worst, Keep: true}, {Name: "cache_dirty_bytes", Rule: history.Max, Rank: true},
}

var poolFields = []history.Field{
	{Name: "cache_used_bytes", Rule: history.Max}, {Name: "cache_limit_bytes", Rule: history.Max}, {Name: "cache_waiting_bytes", Rule: history.Max},
	{Name: "cache_pinned_bytes", Rule: history.Max}, {Name: "offload_inflight_bytes", Rule: history.Max},
	{Name: "backend_read_bytes"}, {Name: "backend_written_bytes"},
}

var historyKinds = []history.Kind{
	{Name: kindTotal, Fields: trafficFields, Always: true},
	{Name: kindPool, Fields: poolFields, Always: true},
	{Name: kindVolume, Fields: trafficFields},
}

// openHistory reads what is kept in the data folder; nothing there ends a start.
func openHistory(data string, notice func(string)) *history.History {
	return history.Open(filepath.Join(data, historyName), historyKinds, notice)
}

// meter turns readings of the counters into samples of the history.
type meter struct {
	last    Counters
	volumes map[string]*metered
	pools   map[string]PoolCounters // of last
	rows    []history.Row
}

// metered is what a meter knows of a volume.
type metered struct {
	id       uint32
	counters VolumeCounters    // of the last reading
	was, now metrics.Histogram // latency of reads and writes
	known    bool              // counters are of this volume, or it began with nothing
	timed    bool              // was is of this volume
}

// step takes a reading, and returns a row for each object with what it did since the one before; none for the first. The
// rows are valid until the next step.
func (m *meter) step(c Counters, s *metrics.Snapshot) []history.Row {
	if m.volumes == nil {
		m.volumes = map[string]*metered{}
	}
	for _, v := range m.volumes {
		v.now = metrics.Histogram{}
	}
	for i := range c.Volumes {
		v := &c.Volumes[i]
		if old := m.volumes[v.Volume]; old == nil || old.id != v.ID {
			// What was made since the last reading began with nothing; what is there at the first one did not.
			m.volumes[v.Volume] = &metered{id: v.ID, known: m.last.Time != 0}
		}
	}
	s.Each(func(f *metrics.Family, labels []string, _ float64, h *metrics.Histogram) {
		if f == metrics.HostDuration && (labels[1] == "read" || labels[1] == "write") {
			if v := m.volumes[labels[0]]; v != nil {
				v.now.Add(h)
			}
		}
	})
	m.rows = m.rows[:0]
	// Whole milliseconds, as the history keeps them: the integral of the rates is then what was counted.
	seconds := float64((c.Time-m.last.Time)/1e6) / 1e3
	if m.last.Time != 0 && seconds > 0 {
		m.traffic(c, seconds)
		for _, p := range c.Pools {
			if old, ok := m.pools[p.Pool]; ok && old.ID == p.ID {
				m.rows = append(m.rows, history.Row{Kind: kindPool, Name: p.Pool, ID: p.ID, Values: poolValues(&old, &p, seconds)})
			}
		}
	}
	m.keep(c)
	return m.rows
}

// keep makes a reading the last one.
func (m *meter) keep(c Counters) {
	m.last, m.pools = c, map[string]PoolCounters{}
	for _, p := range c.Pools {
		m.pools[p.Pool] = p
	}
	live := map[string]bool{}
	for _, v := range c.Volumes {
		live[v.Volume] = true
		k := m.volumes[v.Volume]
		k.counters, k.was, k.known, k.timed = v, k.now, true, true
	}
	for name := range m.volumes {
		if !live[name] {
			delete(m.volumes, name)
		}
	}
}

// traffic appends the rows of the volumes, and of all together.
func (m *meter) traffic(c Counters, seconds float64) {
	total := make([]float64, len(trafficFields))
	var all metrics.Histogram
	for i := range c.Volumes {
		v := &c.Volumes[i]
		k := m.volumes[v.Volume]
		if !k.known {
			continue
		}
		var g metrics.Histogram
		if k.timed {
			g = k.now.Growth(&k.was)
		}
		all.Add(&g)
		values := make([]float32, len(trafficFields))
		for j, x := range []float64{
			grew(k.counters.Read, v.Read), grew(k.counters.Written, v.Written), grew(total64(k.counters.Described), total64(v.Described)),
			grew(total64(k.counters.Admitted), total64(v.Admitted)), grew(k.counters.Undercover, v.Undercover),
			grew(k.counters.Commands, v.Commands), grew(total64(k.counters.Offloads), total64(v.Offloads)),
		} {
			values[j] = float32(x / seconds)
			total[j] += x / seconds
		}
		latency(values, &g, seconds)
		dirty := len(trafficFields) - 1
		values[dirty] = float32(v.Dirty)
		total[dirty] += float64(v.Dirty)
		m.rows = append(m.rows, history.Row{Kind: kindVolume, Name: v.Volume, ID: v.ID, Values: values})
	}
	values := make([]float32, len(trafficFields))
	for i, v := range total {
		values[i] = float32(v)
	}
	latency(values, &all, seconds)
	m.rows = append(m.rows, history.Row{Kind: kindTotal, Values: values})
}

// latency sets the three figures of it; without reads and writes two of them are unknown.
func latency(values []float32, g *metrics.Histogram, seconds float64) {
	mean, high := math.NaN(), math.NaN()
	if g.Count > 0 {
		mean = float64(g.Sum) / float64(g.Count)
	}
	if ns, ok := g.Quantile(0.99); ok {
		high = float64(ns)
	}
	values[timedField] = float32(float64(g.Count) / seconds)
	values[timedField+1], values[timedField+2] = float32(mean), float32(high)
}

func poolValues(old, p *PoolCounters, seconds float64) []float32 {
	return []float32{float32(p.CacheUsed), float32(p.CacheLimit), float32(p.Waiting), float32(p.Pinned), float32(total64(p.Inflight)),
		float32(grew(old.BackendRead, p.BackendRead) / seconds), float32(grew(old.BackendWrite, p.BackendWrite) / seconds)}
}

// grew is by how much a counter grew; one that shrank is of an array that began anew.
func grew[N Size | uint64](old, now N) float64 { return float64(now - min(old, now)) }

func total64[N Size | uint64](m map[string]N) (sum N) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// HistoryRange is a part of the history.
type HistoryRange struct {
	Step    int64           `json:"step_ms"`
	Times   []int64         `json:"times_ms" nullable:"false" doc:"The ends of the steps, in milliseconds since 1970."`
	Objects []HistoryObject `json:"objects" nullable:"false" doc:"All volumes together, the pools, and the most active volumes."`
}

// HistoryObject is what one object did.
type HistoryObject struct {
	Kind   string            `json:"kind" enum:"total,volume,pool"`
	Name   string            `json:"name,omitempty"`
	ID     *uint32           `json:"id,omitempty" doc:"The number of the newest volume or pool of this name. Files of earlier versions do not have it."`
	Series map[string]Values `json:"series" doc:"By figure: a value for each step. Rates are means, levels the highest of the step, a p99 that of its worst second. null is unknown: the daemon was down, the object did not exist, or, for latencies, nothing was read or written."`
}

// Values are a series; NaN, null in JSON, is an unknown one.
type Values []float32

// MarshalJSON writes four digits or so of each value.
func (v Values) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 8*len(v)+2)
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		switch f := float64(x); {
		case x != x || math.IsInf(f, 0):
			b = append(b, "null"...)
		case f >= 1000 || f == math.Trunc(f):
			b = strconv.AppendFloat(b, math.Round(f), 'f', -1, 64)
		default:
			b = strconv.AppendFloat(b, f, 'g', 4, 64)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Values) UnmarshalJSON(b []byte) error {
	var list []*float32
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&list); err != nil {
		return err
	}
	*v = make(Values, len(list))
	for i, x := range list {
		(*v)[i] = float32(math.NaN())
		if x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}

// Schema describes the values to huma.
func (Values) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeNumber, Nullable: true}}
}

// HistoryQuery asks for a part of the history.
type HistoryQuery struct {
	Seconds int64  `query:"seconds" default:"300" minimum:"1" maximum:"691200" doc:"The length of the range."`
	To      int64  `query:"to_ms" minimum:"0" doc:"Its end, in milliseconds since 1970; 0 or none is now."`
	Points  int    `query:"points" default:"300" minimum:"1" maximum:"1000" doc:"The most steps to return. A step is at least a second, and five minutes for data older than an hour."`
	Volume  string `query:"volume" doc:"Only this volume; a name that the history does not have gives no objects."`
	Top     int    `query:"top" default:"8" minimum:"0" maximum:"64" doc:"How many volumes: those that read, wrote or held most."`
	Slowest int    `query:"slowest" default:"0" minimum:"0" maximum:"64" doc:"In addition, this many volumes with the highest p99 of the range, and this many with the highest at its end."`
}

func (d *daemon) historyRange(in *HistoryQuery) (HistoryRange, error) {
	to := time.UnixMilli(in.To)
	if in.To == 0 {
		to = d.history.Last()
	}
	q := history.Query{From: to.Add(-time.Duration(in.Seconds) * time.Second), To: to, Points: in.Points, Top: in.Top, Highest: p99Field, Also: in.Slowest}
	if in.Volume != "" {
		q.Kind, q.Name = kindVolume, in.Volume
	}
	out := HistoryRange{Times: []int64{}, Objects: []HistoryObject{}}
	if to.IsZero() || to.Before(time.Unix(0, 0)) {
		return out, nil
	}
	r := d.history.Query(q)
	out.Step = r.Step.Milliseconds()
	for _, t := range r.Times {
		out.Times = append(out.Times, t.UnixMilli())
	}
	for _, o := range r.Objects {
		x := HistoryObject{Kind: o.Kind, Name: o.Name, Series: map[string]Values{}}
		if o.Named && o.Kind != kindTotal {
			x.ID = &o.ID
		}
		for i, f := range o.Fields {
			x.Series[f.Name] = o.Series[i]
		}
		out.Objects = append(out.Objects, x)
	}
	return out, nil
}
