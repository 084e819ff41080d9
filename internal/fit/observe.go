// Package fit finds the parameters of a profile by measurements of an array: latencies under known
// loads, from fio or from counters. The model is the simulator itself, so that what is fitted is what
// `sim` and `serve` use.
//
// A fit says of each parameter how well the data determine it, which parameters they cannot tell
// apart, and how far the fitted profile is from data that were held out.
package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/fio"
	"github.com/arraysim/arraysim/internal/report"
)

// Load is a workload of one kind: so many I/Os in flight, or so many a second that arrive at random.
type Load struct {
	IO          uint64  // bytes of an I/O
	Write       float64 // share of writes
	Sequential  bool
	Outstanding int     // a closed loop
	Rate        float64 // I/Os a second, if it is an open one
}

func (l Load) String() string {
	pattern, what := "random", fmt.Sprintf("%d in flight", l.Outstanding)
	if l.Sequential {
		pattern = "sequential"
	}
	if l.Rate > 0 {
		what = fmt.Sprintf("%.0f/s", l.Rate)
	}
	return fmt.Sprintf("%s %.4g KiB, %.0f %% writes, %s", pattern, float64(l.IO)/1024, 100*l.Write, what)
}

// Observation is the mean latency of the reads or of the writes under a load.
type Observation struct {
	Load
	Name   string
	Writes bool    // whose latency it is
	Mean   float64 // seconds
	Spread float64 // standard deviation of single latencies over their mean; 0 is unknown
	N      int64   // I/Os
}

// Read reads observations from a file or folder: fio's JSON, a latency log of fio (with the load by a
// JSON file beside it, or load), batch output of esxtop, our counters as Parquet or CSV, a folder of
// iostats XML.
func Read(ctx context.Context, source string, load Load) ([]Observation, error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	var out []Observation
	switch head := beginning(source); {
	case info.IsDir():
		out, err = fromCounters(ctx, source, load)
	case strings.HasSuffix(source, ".log"):
		out, err = fromLog(source, load)
	case strings.Contains(head, `"fio version"`):
		out, err = fromFio(source)
	case strings.HasPrefix(head, `"(PDH-CSV`):
		out, err = fromESXTop(source, load)
	default:
		out, err = fromCounters(ctx, source, load)
	}
	if err == nil && len(out) == 0 {
		err = errors.New("there is no latency of reads or writes in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return out, nil
}

func beginning(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, _ := f.Read(b)
	return string(b[:n])
}

func fromFio(name string) ([]Observation, error) {
	r, err := fio.ReadResult(name)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	jobs, err := r.Ran()
	if err != nil {
		return nil, err
	}
	var out []Observation
	for i := range jobs {
		j := &jobs[i]
		l, err := loadOf(j)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", j.Name, err)
		}
		for _, d := range []struct {
			write bool
			d     *fio.Direction
		}{{false, &j.Read}, {true, &j.Write}} {
			if d.d.Count == 0 {
				continue
			}
			s := d.d.Latency
			if s.N == 0 || s.Mean <= 0 {
				return nil, fmt.Errorf("job %s has I/Os and no latency; measure without disable_lat", j.Name)
			}
			out = append(out, Observation{Load: l, Name: j.Name, Writes: d.write, Mean: s.Mean / 1e9, Spread: s.Deviation / s.Mean, N: s.N})
		}
	}
	return out, nil
}

// loadOf makes a load of a job that a fit has a model of.
func loadOf(j *fio.Ran) (Load, error) {
	l, err := fio.LoadOf(j.Options)
	switch {
	case err != nil:
	case len(j.Beside) > 0:
		err = fmt.Errorf("it ran beside %s, and whose latency is whose is unknown; put a stonewall between them", strings.Join(j.Beside, ", "))
	case l.Sizes != nil:
		err = errors.New("bssplit makes a load that is not fitted; measure with one block size")
	case l.Rate > 0 || l.Think > 0:
		err = errors.New("rate_iops and thinktime make a load that is not fitted; measure with a fixed depth")
	case l.Buffered:
		err = errors.New("it ran without direct=1, and so its latencies are those of the page cache; measure with direct=1")
	case len(l.Left) > 0:
		err = fmt.Errorf("%s makes a load that is not fitted; measure without it", strings.Join(l.Left, ", "))
	}
	return Load{IO: l.IO, Write: l.Write, Sequential: l.Sequential, Outstanding: l.Outstanding}, err
}

// fromLog makes an observation of each direction in a latency log of one block size.
func fromLog(name string, load Load) ([]Observation, error) {
	if load.Outstanding == 0 {
		return nil, errors.New("a latency log does not say how many I/Os were in flight; add --depth N")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := fio.ReadLog(f)
	if err != nil {
		return nil, err
	}
	type key struct {
		write bool
		bytes uint64
	}
	by := map[key][]float64{}
	for _, e := range entries {
		by[key{e.Write, e.Bytes}] = append(by[key{e.Write, e.Bytes}], e.LatencyNS)
	}
	sizes := map[uint64]bool{}
	for k := range by {
		sizes[k.bytes] = true
	}
	if len(sizes) > 1 {
		return nil, fmt.Errorf("it has I/Os of %d sizes, and it is unknown how many of each were in flight; measure with one block size", len(sizes))
	}
	var out []Observation
	for k, ns := range by {
		s := fio.Describe(ns)
		if s.Mean <= 0 {
			return nil, errors.New("its latencies are 0: it does not say how long I/Os took")
		}
		l := load
		l.IO, l.Write = k.bytes, float64(len(by[key{true, k.bytes}]))/float64(len(by[key{true, k.bytes}])+len(by[key{false, k.bytes}]))
		out = append(out, Observation{Load: l, Name: filepath.Base(name), Writes: k.write, Mean: s.Mean / 1e9, Spread: s.Deviation / s.Mean, N: s.N})
	}
	slices.SortFunc(out, func(a, b Observation) int {
		return cmp.Or(cmp.Compare(a.IO, b.IO), cmp.Compare(a.Mean, b.Mean), cmp.Compare(boolean(a.Writes), boolean(b.Writes)))
	})
	return out, nil
}

// reading is what counters say of an interval.
type reading struct {
	ops, bytes, wait [2]float64 // a second: reads, writes
	seconds          float64
}

// bins is how many loads are made of a file of counters: each costs a simulation.
const bins = 12

// observe sorts intervals by their rate, and takes those of a bin together. What arrives is taken for an
// open load.
func observe(source string, all []reading, load Load) []Observation {
	all = slices.DeleteFunc(all, func(r reading) bool {
		n, all := r.ops[0]+r.ops[1], r.wait[0]+r.wait[1]+r.bytes[0]+r.bytes[1]
		return !(n > 0) || !(r.seconds > 0) || math.IsInf(n, 0) || math.IsNaN(all) || math.IsInf(all, 0)
	})
	rate := func(r reading) float64 { return r.ops[0] + r.ops[1] }
	slices.SortStableFunc(all, func(a, b reading) int { return cmp.Compare(rate(a), rate(b)) })
	var out []Observation
	n := min(bins, len(all))
	for b := range n {
		part := all[b*len(all)/n : (b+1)*len(all)/n]
		var sum reading
		for _, r := range part {
			for d := range 2 {
				sum.ops[d] += r.ops[d] * r.seconds
				sum.bytes[d] += r.bytes[d] * r.seconds
				sum.wait[d] += r.wait[d] * r.seconds
			}
			sum.seconds += r.seconds
		}
		ops := sum.ops[0] + sum.ops[1]
		l := load
		l.Rate, l.Outstanding, l.Write = ops/sum.seconds, 0, sum.ops[1]/ops
		l.IO = max(512, uint64(math.Round((sum.bytes[0]+sum.bytes[1])/ops/512))*512)
		for d, name := range []string{"reads", "writes"} {
			if sum.ops[d] < 10 || sum.wait[d] <= 0 {
				continue
			}
			out = append(out, Observation{Load: l, Name: fmt.Sprintf("%s, bin %d of %d, %s", filepath.Base(source), b+1, n, name), Writes: d == 1,
				Mean: sum.wait[d] / sum.ops[d], N: int64(sum.ops[d])})
		}
	}
	return out
}

// fromCounters reads what the package report reads, iostats XML and our Parquet among it. All volumes of a
// file are taken for one.
func fromCounters(ctx context.Context, source string, load Load) ([]Observation, error) {
	d, err := report.Load(ctx, source, report.Options{})
	if err != nil {
		return nil, err
	}
	all := make([]reading, len(d.Times))
	last := d.Start
	for i, t := range d.Times {
		all[i].seconds = float64(t-last) / 1e9
		last = t
		for _, v := range d.Volumes {
			if v.Repeats {
				continue
			}
			for k := range 2 {
				all[i].ops[k] += zeroIfIdle(v.Ops[k][i], v.Ops[k][i])
				all[i].bytes[k] += zeroIfIdle(v.Host[k][i], v.Ops[k][i])
				all[i].wait[k] += zeroIfIdle(v.Time[k][i], v.Ops[k][i])
			}
		}
	}
	return observe(source, all, load), nil
}

// zeroIfIdle is x, or 0 where nothing was done: the response time of no I/O adds nothing to a sum.
func zeroIfIdle(x, ops float64) float64 {
	if ops == 0 {
		return 0
	}
	return x
}

var esxtopColumn = regexp.MustCompile(`Physical Disk SCSI Device\(([^)]*)\)\\(.*)$`)
