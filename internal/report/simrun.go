package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// What a simulated run leaves of its volumes and pools without --record; docs/virtual-time.md has
// the columns. A volume without a row at an instant did nothing in that interval and holds nothing.
const (
	simVolumes = "volumes.csv"
	simPools   = "pools.csv"
	simReport  = "report.txt"
)

// ScenarioStart is the time at which scenarios begin in what needs one: that of a run must not
// depend on when it was made.
var ScenarioStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simTable reads a CSV file by the names of its columns.
func simTable(path string, row func(text func(string) string, number func(string) float64)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c := csv.NewReader(f)
	head, err := c.Read()
	if err != nil {
		return fmt.Errorf("%s has no header: %w", filepath.Base(path), err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	for line := 2; ; line++ {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		var bad error
		text := func(name string) string {
			if i, ok := at[name]; ok {
				return rec[i]
			}
			bad = errors.Join(bad, fmt.Errorf("%s has no column %s", filepath.Base(path), name))
			return ""
		}
		number := func(name string) float64 {
			x, err := strconv.ParseFloat(text(name), 64)
			if (err != nil || math.IsInf(x, 0)) && bad == nil {
				bad = fmt.Errorf("%s, line %d: %s is not a number", filepath.Base(path), line, name)
			}
			return x
		}
		if row(text, number); bad != nil {
			return bad
		}
	}
}

// fromSimRun reads the time series of a simulated run from its folder.
func fromSimRun(dir string) (*Data, error) {
	arrays := map[string]bool{}
	times := map[int64]*reading{0: newReading(ScenarioStart.UnixNano())}
	type interval struct{ mean, top, n float64 }
	type key struct {
		at   int64
		name string
	}
	rows := map[key]*volumeReading{} // what happened in an interval
	names := map[string]string{}     // of volumes, and their pools
	err := simTable(filepath.Join(dir, simVolumes), func(text func(string) string, number func(string) float64) {
		at := int64(math.Round(number("seconds") * 1e9))
		if times[at] == nil {
			times[at] = newReading(ScenarioStart.UnixNano() + at)
		}
		arrays[text("array")] = true
		v := newVolumeReading(text("array") + "/" + text("pool"))
		for d, name := range directions {
			v.ops[d], v.bytes[d], v.time[d] = number(name+"s"), number(name+"_bytes"), number(name+"_ns")/1e9
		}
		v.held, v.lower, v.labelled = number("held_bytes"), 0, map[string]float64{}
		for o := range block.NumOrigins {
			x := number("lower_" + o.String() + "_bytes")
			if v.lower += x; o.Undercover() {
				v.labelled[o.String()] = x
			}
		}
		name := text("array") + "/" + text("volume")
		rows[key{at, name}], names[name] = v, v.pool
	})
	if err != nil {
		return nil, err
	}
	if err := idleTimes(dir, times); err != nil {
		return nil, err
	}
	var order []int64
	for at := range times {
		order = append(order, at)
	}
	slices.Sort(order)
	short := func(name string) string {
		if _, after, ok := strings.Cut(name, "/"); ok && len(arrays) < 2 {
			return after
		}
		return name
	}
	sums := map[string]*volumeReading{}
	for _, at := range order {
		for name, pool := range names {
			times[at].volumes[short(name)] = sumOf(sums, name, short(pool), rows[key{at, name}])
		}
	}
	pools := map[key]*interval{}
	err = simTable(filepath.Join(dir, simPools), func(text func(string) string, number func(string) float64) {
		i, _ := slices.BinarySearch(order, int64(math.Round(number("seconds")*1e9)))
		if i == len(order) {
			return // of an interval in which no volume did anything
		}
		name := short(text("array") + "/" + text("pool"))
		x := pools[key{order[i], name}]
		if x == nil {
			x = &interval{}
			pools[key{order[i], name}] = x
		}
		limit := number("limit_bytes")
		x.mean, x.top, x.n = x.mean+number("used_mean_bytes")/limit, max(x.top, number("used_max_bytes")/limit), x.n+1
		p := times[order[i]].pool(name)
		p.cap, p.full, p.peak = limit, x.mean/x.n, x.top
	})
	if err != nil {
		return nil, err
	}
	var all []*reading
	for _, at := range order {
		all = append(all, times[at])
	}
	d := series(dir, all, units{bytes: 1, time: 1, endless: true})
	d.Exact = true
	return d, nil
}

// idleTimes adds the ends of the intervals in which no volume did anything: those have no rows, but the pools have one
// for each second. How long an interval is, no file says. What all ends of intervals are multiples of
// is that or longer; the last end is none, because it may be that of the run.
func idleTimes(dir string, times map[int64]*reading) error {
	var seconds []int64
	end, step := int64(0), int64(0)
	err := simTable(filepath.Join(dir, simPools), func(_ func(string) string, number func(string) float64) {
		at := int64(math.Round(number("seconds") * 1e9))
		seconds, end = append(seconds, at), max(end, at)
	})
	if err != nil {
		return err
	}
	for at := range times {
		if at >= end {
			continue
		}
		for at > 0 { // the greatest common divisor of all
			step, at = at, step%at
		}
	}
	for _, at := range seconds {
		if step > 0 && at%step == 0 && times[at] == nil {
			times[at] = newReading(ScenarioStart.UnixNano() + at)
		}
	}
	return nil
}

// sumOf adds to the sums of a volume what it did in an interval, nothing where x is nil, and
// returns how they stand.
func sumOf(sums map[string]*volumeReading, name, pool string, x *volumeReading) *volumeReading {
	was := sums[name]
	now := newVolumeReading(pool)
	now.lower, now.held, now.labelled = 0, 0, map[string]float64{}
	now.ops, now.bytes, now.time = [2]float64{}, [2]float64{}, [2]float64{}
	for _, part := range [...]*volumeReading{was, x} {
		if part == nil {
			continue
		}
		for d := range 2 {
			now.ops[d], now.bytes[d], now.time[d] = now.ops[d]+part.ops[d], now.bytes[d]+part.bytes[d], now.time[d]+part.time[d]
		}
		now.lower += part.lower
		for o, n := range part.labelled {
			now.labelled[o] += n
		}
	}
	if x != nil {
		now.held = x.held
	}
	sums[name] = now
	return now
}
