package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/common/model"

	"github.com/arraysim/arraysim/internal/metrics"
)

// Ranges of a Prometheus: the answers of /api/v1/query_range, asked for by its client (promclient.go)
// or saved in files by somebody.

type promAnswer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Result model.Matrix `json:"result"`
	} `json:"data"`
}

// promQueries ask for what findings need, and for what the origin label says beside them.
var promQueries = []string{
	metrics.CacheSize.Name, metrics.CacheLimit.Name, metrics.CacheUsed.Name, metrics.CacheUsedSeconds.Name,
	metrics.HostTransferred.Name,
	metrics.HostDuration.Name + `_count{op=~"read|write"}`, metrics.HostDuration.Name + `_sum{op=~"read|write"}`,
	"sum by (pool, volume) (" + metrics.CacheDirty.Name + ")", "sum by (pool, volume) (" + metrics.CacheDestaged.Name + ")",
	"sum by (pool, direction) (" + metrics.BackendBytes.Name + ")",
	"sum by (pool, volume, origin) (" + metrics.Undercover.Name + ")",
}

// sumNames are the names of the queries that lose theirs by a sum.
var sumNames = map[string]string{
	promQueries[7]: metrics.CacheDirty.Name, promQueries[8]: metrics.CacheDestaged.Name, promQueries[9]: metrics.BackendBytes.Name,
	promQueries[10]: metrics.Undercover.Name,
}

func fromPrometheusFile(source string, f io.Reader) (*Data, error) {
	b := newPromRange()
	if err := b.answer(f, ""); err != nil {
		return nil, err
	}
	return b.data(source), nil
}

// isPrometheusAnswer tells whether a file is one: a folder may have other JSON beside it.
func isPrometheusAnswer(path string) bool {
	text, err := os.ReadFile(path)
	var a promAnswer
	return err == nil && json.Unmarshal(text, &a) == nil && (a.Status == "success" || a.Status == "error")
}

func fromPrometheusFiles(source string, files []string) (*Data, error) {
	b := newPromRange()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = b.answer(f, "")
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b.data(source), nil
}

type promRange struct {
	readings map[int64]*reading
	used     map[*reading]map[string]float64
	size     float64
	notes    []string
}

func newPromRange() *promRange {
	return &promRange{readings: map[int64]*reading{}, used: map[*reading]map[string]float64{}}
}

// answer takes one answer in; name is that of its series when they have none.
func (b *promRange) answer(r io.Reader, name string) error {
	var a promAnswer
	if err := json.NewDecoder(r).Decode(&a); err != nil {
		return fmt.Errorf("this is not an answer of Prometheus: %w", err)
	}
	switch a.Status {
	case "success":
	case "error":
		return fmt.Errorf("the Prometheus refuses: %s", a.Error)
	default:
		return errors.New("this is not an answer of Prometheus: it has no status")
	}
	b.matrix(a.Data.Result, name)
	return nil
}

// matrix takes the series of one answer in; name is theirs when they have none.
func (b *promRange) matrix(series model.Matrix, name string) {
	for _, s := range series {
		n := string(s.Metric[model.MetricNameLabel])
		if n == "" {
			n = name
		}
		for _, p := range s.Values {
			at := p.Timestamp.UnixNano()
			if b.readings[at] == nil {
				b.readings[at] = newReading(at)
				b.used[b.readings[at]] = map[string]float64{}
			}
			b.value(b.readings[at], n, s.Metric, float64(p.Value))
		}
	}
}

func (b *promRange) value(r *reading, name string, labels model.Metric, x float64) {
	l := func(name model.LabelName) string { return string(labels[name]) }
	dir := read
	if l("direction") == "write" || l("op") == "write" {
		dir = write
	}
	switch name {
	case metrics.CacheSize.Name:
		b.size = x
	case metrics.CacheLimit.Name:
		r.pool(l("pool")).cap = x
	case metrics.CacheUsed.Name:
		b.used[r][l("pool")] = x
	case metrics.CacheUsedSeconds.Name:
		r.pool(l("pool")).seconds = x
	case metrics.BackendBytes.Name:
		add(&r.pool(l("pool")).back[dir], x)
	case metrics.HostTransferred.Name:
		r.volume(l("volume"), l("pool")).bytes[dir] = x
	case metrics.HostDuration.Name + "_count":
		r.volume(l("volume"), "").ops[dir] = x
	case metrics.HostDuration.Name + "_sum":
		r.volume(l("volume"), "").time[dir] = x
	case metrics.Undercover.Name:
		r.volume(l("volume"), l("pool")).label(l("origin"), x)
	case metrics.CacheDirty.Name:
		add(&r.volume(l("volume"), l("pool")).held, x)
	case metrics.CacheDestaged.Name:
		add(&r.volume(l("volume"), l("pool")).lower, x)
	}
}

func (b *promRange) data(source string) *Data {
	var all []*reading
	for _, r := range b.readings {
		for pool, x := range b.used[r] {
			if p := r.pool(pool); p.cap > 0 {
				p.full, p.peak = x/p.cap, x/p.cap
			}
		}
		all = append(all, r)
	}
	d := series(source, all, units{bytes: 1, time: 1, endless: true})
	d.CacheSize = b.size
	d.Notes = append(d.Notes, b.notes...)
	return d
}
