package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// HostCacheFile is the name of the time series of host caches in a run's folder.
const HostCacheFile = "hostcache.csv"

// HostCache is the time series of one cached disk: what its components did in each interval.
// Index 0 of a pair is reads, 1 is writes.
type HostCache struct {
	Name  string
	Times []float64 // seconds: the ends of the intervals
	// What the client sees, the host's own flash, peers' flash, and the LUN did.
	Effective, Local, Network, Datastore [2]FlowSeries
	Destages                             FlowSeries // writes of the destager, which are in Datastore too
	Throttled                            []float64  // writes with injected latency
	Dirty, DirtyMax, Area                []float64  // bytes, of the destaging area
}

// FlowSeries are I/Os, bytes and the sum of latencies in nanoseconds of each interval.
type FlowSeries struct{ IOs, Bytes, Nanos []float64 }

// LoadHostCaches reads the host caches of a run from its folder, or from the file itself, in the order of
// their first lines.
func LoadHostCaches(path string) ([]*HostCache, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, HostCacheFile)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("host caches: %w: %w; give the folder that sim --out wrote for a scenario with caches", ErrNoCounters, err)
	} else if err != nil {
		return nil, fmt.Errorf("host caches: %w", err)
	}
	defer f.Close()
	out, err := readHostCaches(f)
	if err != nil {
		return nil, fmt.Errorf("host caches: %s: %w", path, err)
	}
	return out, nil
}

func readHostCaches(in io.Reader) ([]*HostCache, error) {
	r := csv.NewReader(in)
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("it has no header: %w", err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	var out []*HostCache
	byName := map[string]*HostCache{}
	for line := 2; ; line++ {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var bad error
		text := func(col string) string {
			i, ok := at[col]
			if !ok {
				bad = fmt.Errorf("it has no column %s", col)
				return "0"
			}
			return row[i]
		}
		number := func(col string) float64 {
			v, err := strconv.ParseFloat(text(col), 64)
			if (err != nil || math.IsNaN(v) || math.IsInf(v, 0)) && bad == nil {
				bad = fmt.Errorf("line %d: %s is %q, which is not a number", line, col, text(col))
			}
			return v
		}
		name := text("host") + "/" + text("disk")
		c := byName[name]
		if c == nil {
			c = &HostCache{Name: name}
			byName[name] = c
			out = append(out, c)
		}
		flow := func(s *FlowSeries, what string) {
			s.IOs = append(s.IOs, number(what+"_ios"))
			s.Bytes = append(s.Bytes, number(what+"_bytes"))
			s.Nanos = append(s.Nanos, number(what+"_ns"))
		}
		for i, kind := range [2]string{"read", "write"} {
			flow(&c.Effective[i], "effective_"+kind)
			flow(&c.Local[i], "local_"+kind)
			flow(&c.Network[i], "network_"+kind)
			flow(&c.Datastore[i], "datastore_"+kind)
		}
		flow(&c.Destages, "destage")
		c.Times = append(c.Times, number("seconds"))
		c.Throttled = append(c.Throttled, number("throttled_writes"))
		c.Dirty = append(c.Dirty, number("dirty_bytes"))
		c.DirtyMax = append(c.DirtyMax, number("dirty_max_bytes"))
		c.Area = append(c.Area, number("area_bytes"))
		if bad != nil {
			return nil, bad
		}
	}
}

// span is how long interval i is, in seconds.
func (c *HostCache) span(i int) float64 {
	if i == 0 {
		return c.Times[0]
	}
	return c.Times[i] - c.Times[i-1]
}

// view makes a line of some flows together: I/Os a second, bytes a second or mean latency in ms.
func (c *HostCache) view(unit string, flows ...FlowSeries) []value {
	out := make([]value, len(c.Times))
	for i := range out {
		ios, bytes, nanos := 0.0, 0.0, 0.0
		for _, f := range flows {
			ios, bytes, nanos = ios+f.IOs[i], bytes+f.Bytes[i], nanos+f.Nanos[i]
		}
		switch x := math.NaN(); {
		case unit == "1/s":
			out[i] = value(ios / c.span(i))
		case unit == "MB/s":
			out[i] = value(bytes / c.span(i) * toMB)
		case ios > 0:
			out[i] = value(nanos / ios / 1e6)
		default:
			out[i] = value(x)
		}
	}
	return out
}

// HostCachePictures draws caches as their makers' consoles do: for each disk I/Os, latency and throughput
// by component and by reads and writes, and the destaging area; for all of them the performance map.
func HostCachePictures(caches []*HostCache) []*Picture {
	var out []*Picture
	for k, c := range caches {
		x := make([]float64, len(c.Times))
		for i, t := range c.Times {
			x[i] = t * 1e3
		}
		id := func(s string) string {
			if len(caches) > 1 {
				return fmt.Sprintf("disk%d-%s", k+1, s)
			}
			return s
		}
		for _, u := range [...]struct{ id, title, unit, text string }{
			{"iops", "I/Os", "1/s", "What the host does, and who answers: its own flash, a peer's, or the datastore, which the destager writes to as well."},
			{"latency", "Latency", "ms", "The mean of what the host waits for, and of what each component takes. Each takes other I/Os: large writes and small reads are mixed in these means."},
			{"throughput", "Throughput", "MB/s", "The same in bytes: it is high where I/Os are large, not where they are many."},
		} {
			p := &Picture{ID: id(u.id), Kind: "lines", Title: c.Name + ": " + u.title + " by component", Text: u.text, X: x, Y: []axis{{Name: u.title, Unit: u.unit}}}
			for _, l := range [...]struct {
				name string
				f    [2]FlowSeries
			}{{"total (effective)", c.Effective}, {"local flash", c.Local}, {"network flash", c.Network}, {"datastore", c.Datastore}} {
				if slices.Max(l.f[0].IOs) > 0 || slices.Max(l.f[1].IOs) > 0 {
					p.Lines = append(p.Lines, line{Name: l.name, Values: c.view(u.unit, l.f[0], l.f[1])})
				}
			}
			q := &Picture{ID: id(u.id + "-readwrite"), Kind: "lines", Title: c.Name + ": " + u.title + ", reads and writes", X: x,
				Text: "What the host sees, reads and writes apart.", Y: p.Y,
				Lines: []line{{Name: "total (effective)", Values: c.view(u.unit, c.Effective[0], c.Effective[1])}, {Name: "reads", Values: c.view(u.unit, c.Effective[0])},
					{Name: "writes", Values: c.view(u.unit, c.Effective[1])}}}
			out = append(out, p, q)
		}
		if slices.Max(c.DirtyMax) == 0 {
			continue
		}
		p := &Picture{ID: id("area"), Kind: "lines", Title: c.Name + ": destaging area and writes that were slowed down", X: x,
			Text: "What is on flash and not at the datastore yet. Where the area fills, writes are slowed down to what the datastore takes.", Y: []axis{{"dirty, of the area", "%", 100}, {Name: "throttled writes", Unit: "1/s"}},
			Lines: []line{{Name: "destaging area", Area: true}, {Name: "throttled", Axis: 1, Dash: true}}}
		for i := range x {
			p.Lines[0].Values = append(p.Lines[0].Values, value(c.Dirty[i]/max(c.Area[i], 1)*100))
			p.Lines[1].Values = append(p.Lines[1].Values, value(c.Throttled[i]/c.span(i)))
		}
		out = append(out, p)
	}
	if len(caches) > 1 {
		out = append(out, mapPicture(PerformanceMap(caches, 0, math.Inf(1))))
	}
	return out
}
