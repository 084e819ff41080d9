package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

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
	metrics.Undercover.Name,
	// The labels of what was scraped stay: see target.
	"sum without (origin) (" + metrics.CacheDirty.Name + ")", "sum without (origin) (" + metrics.CacheDestaged.Name + ")",
	"sum without (mdisk, origin, reason) (" + metrics.BackendBytes.Name + ")",
}

// sumNames are the names of the queries that lose theirs by a sum.
var sumNames = map[string]string{
	promQueries[8]: metrics.CacheDirty.Name, promQueries[9]: metrics.CacheDestaged.Name, promQueries[10]: metrics.BackendBytes.Name,
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

// shown is the name of the answers to shownQuery.
const shown = "shown"

// shownQuery asks how many scrapes have shown a volume since the sample before.
func shownQuery(step time.Duration) string {
	return "max without (direction) (count_over_time(" + metrics.HostTransferred.Name + "[" + model.Duration(step).String() + "]))"
}

type promRange struct {
	all      []promStream // as they came: only all of them together tell their targets
	readings map[int64]*reading
	used     map[*reading]map[string]float64
	shown    map[*reading]map[string]float64      // by volume
	seen     map[model.Fingerprint]map[int64]bool // instants of a series: saved answers may overlap
	targets  map[string]model.Metric
	sizes    map[string]float64 // of the write cache, by target
	notes    []string
}

// promStream is a series under its name, which it may have lost by a function.
type promStream struct {
	name string
	*model.SampleStream
}

func newPromRange() *promRange {
	return &promRange{
		readings: map[int64]*reading{}, used: map[*reading]map[string]float64{}, shown: map[*reading]map[string]float64{},
		seen: map[model.Fingerprint]map[int64]bool{}, targets: map[string]model.Metric{}, sizes: map[string]float64{},
	}
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

// ownLabels are the labels of a counter itself: all others say what was scraped.
var ownLabels = []model.LabelName{model.MetricNameLabel, "pool", "volume", "direction", "op", "origin", "mdisk", "reason"}

// scrapeLabels always say what was scraped, also where a series has lost them.
var scrapeLabels = []model.LabelName{model.InstanceLabel, model.JobLabel, "pod", "replica"}

// taken are the names of the series that value takes in.
var taken = []string{
	shown, metrics.CacheSize.Name, metrics.CacheLimit.Name, metrics.CacheUsed.Name, metrics.CacheUsedSeconds.Name,
	metrics.BackendBytes.Name, metrics.HostTransferred.Name, metrics.HostDuration.Name + "_count",
	metrics.HostDuration.Name + "_sum", metrics.Undercover.Name, metrics.CacheDirty.Name, metrics.CacheDestaged.Name,
}

// targetLabels are the labels that tell targets apart: those that all series have. One that only some have was derived
// from a volume or a pool by the relabeling of a Prometheus.
func (b *promRange) targetLabels() []model.LabelName {
	count := map[model.LabelName]int{}
	for _, s := range b.all {
		for l := range s.Metric {
			count[l]++
		}
	}
	labels := slices.Clone(scrapeLabels)
	for l, n := range count {
		if n == len(b.all) && !slices.Contains(ownLabels, l) && !slices.Contains(scrapeLabels, l) {
			labels = append(labels, l)
		}
	}
	return labels
}

// target is what a series was scraped of, as a key: its labels instance, job and the like. Counters of two targets are
// never added up or taken one for the other. They may be two arrays with volumes of the same names, one
// that is scraped twice, or one that moved from node to node.
func (b *promRange) target(series model.Metric, labels []model.LabelName) string {
	t := model.Metric{}
	for _, l := range labels {
		if x, ok := series[l]; ok {
			t[l] = x
		}
	}
	key := t.String()
	b.targets[key] = t
	return key
}

// matrix takes the series of one answer in; name is theirs when they have none.
func (b *promRange) matrix(series model.Matrix, name string) {
	for _, s := range series {
		n := cmp.Or(string(s.Metric[model.MetricNameLabel]), name)
		if slices.Contains(taken, n) {
			b.all = append(b.all, promStream{n, s})
		}
	}
}

// read makes readings of all series.
func (b *promRange) read() {
	labels := b.targetLabels()
	for _, s := range b.all {
		named := s.Metric.Clone()
		named[model.MetricNameLabel] = model.LabelValue(s.name)
		target, id := b.target(s.Metric, labels), named.Fingerprint()
		if b.seen[id] == nil {
			b.seen[id] = map[int64]bool{}
		}
		for _, p := range s.Values {
			at := p.Timestamp.UnixNano()
			if b.seen[id][at] {
				continue
			}
			b.seen[id][at] = true
			if b.readings[at] == nil {
				b.readings[at] = newReading(at)
				b.used[b.readings[at]], b.shown[b.readings[at]] = map[string]float64{}, map[string]float64{}
			}
			b.value(b.readings[at], s.name, target, s.Metric, float64(p.Value))
		}
	}
}

// value takes one value in. Until all are there, the names of volumes and pools begin with their target.
func (b *promRange) value(r *reading, name, target string, labels model.Metric, x float64) {
	l := func(name model.LabelName) string { return string(labels[name]) }
	dir := slices.Index(directions[:], l("direction")+l("op")) // a series has one of them, or none
	volume, pool := target+"\x00"+l("volume"), target+"\x00"+l("pool")
	switch name {
	case shown:
		b.shown[r][volume] += x // one that changed its pool has two series
	case metrics.CacheSize.Name:
		b.sizes[target] = x
	case metrics.CacheLimit.Name:
		r.pool(pool).cap = x
	case metrics.CacheUsed.Name:
		b.used[r][pool] = x
	case metrics.CacheUsedSeconds.Name:
		r.pool(pool).seconds = x
	case metrics.BackendBytes.Name:
		if dir >= 0 {
			add(&r.pool(pool).back[dir], x)
		}
	case metrics.HostTransferred.Name:
		if dir >= 0 {
			add(&r.volume(volume, pool).bytes[dir], x)
		}
	case metrics.HostDuration.Name + "_count":
		if dir >= 0 {
			add(&r.volume(volume, "").ops[dir], x)
		}
	case metrics.HostDuration.Name + "_sum":
		if dir >= 0 {
			add(&r.volume(volume, "").time[dir], x)
		}
	case metrics.Undercover.Name:
		r.volume(volume, pool).label(l("origin"), x)
	case metrics.CacheDirty.Name:
		add(&r.volume(volume, pool).held, x)
	case metrics.CacheDestaged.Name:
		add(&r.volume(volume, pool).lower, x)
	}
}

// otherVolumes is the volume that stands for all that a scrape does not show one by one (--metrics-volumes).
const otherVolumes = "other"

func (b *promRange) data(source string) *Data {
	b.read()
	var all []*reading
	for _, r := range b.readings {
		for pool, x := range b.used[r] {
			if p := r.pool(pool); p.cap > 0 {
				p.full, p.peak = x/p.cap, x/p.cap
			}
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(x, y *reading) int { return cmp.Compare(x.time, y.time) })
	others := b.others(all)
	// A scrape that failed leaves nothing but the counts of those before it: rates go across it.
	all = slices.DeleteFunc(all, func(r *reading) bool { return len(r.volumes)+len(r.pools) == 0 })
	size := b.rename(all)
	d := series(source, all, units{bytes: 1, time: 1, endless: true})
	d.CacheSize = size
	d.Notes = append(d.Notes, b.notes...)
	if others {
		d.Notes = append(d.Notes, "volume "+otherVolumes+" stands for all that were not shown one by one: it is not judged, nor is any volume in a sample in which it was not always shown")
	}
	return d
}

// targetOf is the target of a volume or a pool by its key.
func targetOf(key string) string {
	t, _, _ := strings.Cut(key, "\x00")
	return t
}

// others takes from readings what volumes that come and go among the others would be accused of: what such a one did
// meanwhile is in their counters, and what it holds is in its own gauge. It returns whether there are others.
func (b *promRange) others(readings []*reading) (there bool) {
	last := map[string]int{}    // reading of a volume
	lastOf := map[string]int{}  // reading of any volume of a target: without one its scrape failed, or it has other instants
	hidden := map[string]bool{} // for some scrapes since the volume's last reading
	for k, r := range readings {
		scrapes := map[string]float64{} // of a target since the reading before
		for key, n := range b.shown[r] {
			scrapes[targetOf(key)] = max(scrapes[targetOf(key)], n)
		}
		for key := range last {
			n, counted := b.shown[r][key]
			if (counted || r.volumes[key] == nil) && n < scrapes[targetOf(key)] {
				hidden[key] = true
			}
		}
		for key, v := range r.volumes {
			at, ok := last[key]
			v.anew = ok && at < lastOf[targetOf(key)] || hidden[key]
			last[key], hidden[key] = k, false
			if _, name, _ := strings.Cut(key, "\x00"); name == otherVolumes {
				there, v.held = true, math.NaN()
			}
		}
		for key := range r.volumes {
			lastOf[targetOf(key)] = k
		}
	}
	return there
}

// rename gives volumes and pools their names, which begin with what distinguishes their targets if there are several,
// and returns the size of the write cache, 0 if it is not one.
func (b *promRange) rename(readings []*reading) (size float64) {
	count := map[string]bool{} // targets that have volumes or pools
	for _, r := range readings {
		for key := range r.volumes {
			count[targetOf(key)] = true
		}
		for key := range r.pools {
			count[targetOf(key)] = true
		}
	}
	keys := slices.Sorted(maps.Keys(count))
	values := map[model.LabelName]map[model.LabelValue]bool{}
	for _, key := range keys {
		for l := range b.targets[key] {
			values[l] = map[model.LabelValue]bool{}
		}
	}
	for l := range values {
		for _, key := range keys {
			values[l][b.targets[key][l]] = true
		}
	}
	prefix := map[string]string{}
	for _, key := range keys {
		var parts []string
		for _, l := range slices.Sorted(maps.Keys(values)) {
			if len(values[l]) > 1 {
				parts = append(parts, string(b.targets[key][l]))
			}
		}
		if len(keys) > 1 {
			prefix[key] = strings.Join(parts, ",") + "/"
		}
		switch x := b.sizes[key]; {
		case x == 0: // not known
		case size == 0 || size == x:
			size = x
		default:
			size = math.NaN()
		}
	}
	name := func(key string) string {
		t, name, _ := strings.Cut(key, "\x00")
		return prefix[t] + name
	}
	for _, r := range readings {
		volumes, pools := map[string]*volumeReading{}, map[string]*poolReading{}
		for key, v := range r.volumes {
			v.pool = name(v.pool)
			volumes[name(key)] = v
		}
		for key, p := range r.pools {
			pools[name(key)] = p
		}
		r.volumes, r.pools = volumes, pools
	}
	if len(keys) > 1 {
		b.notes = append(b.notes, fmt.Sprintf("there are %d targets of scrapes, whose labels begin the names of volumes and pools: two arrays, one that is scraped twice, or one that moved", len(keys)))
	}
	if math.IsNaN(size) {
		return 0
	}
	return size
}
