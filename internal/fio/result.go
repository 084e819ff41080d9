// Package fio reads what fio, the flexible I/O tester, reads and writes: its job files, its results
// as JSON (--output-format=json), and its latency logs (--write_lat_log).
//
// Names, units and defaults are those of fio's HOWTO.
package fio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/arraysim/arraysim/internal/size"
)

// Result is a run of fio.
type Result struct {
	Version string      `json:"fio version"`
	Global  Options     `json:"global options"`
	Jobs    []JobResult `json:"jobs"`
}

// JobResult is what fio says of a job, or of a group if it reported groups.
type JobResult struct {
	Name     string    `json:"jobname"`
	Group    int       `json:"groupid"` // of a report; new_group and stonewall begin another
	Options  Options   `json:"job options"`
	Error    int       `json:"error"`
	ThreadMS float64   `json:"job_runtime"` // of all threads that the entry sums up; 0 is unknown
	Elapsed  float64   `json:"elapsed"`     // seconds since fio began, rounded up; 0 is unknown
	Read     Direction `json:"read"`
	Write    Direction `json:"write"`
}

// Direction is the reads or the writes of a job. Without any, Count is 0 and all else means nothing.
type Direction struct {
	Count     int64   `json:"total_ios"`
	Bytes     int64   `json:"io_bytes"`
	IOPS      float64 `json:"iops"`
	RuntimeMS float64 `json:"runtime"`
	// Latency is from the submission on (lat), Completion from when the kernel has it (clat): both in
	// nanoseconds. Percentiles are those of the second, unless fio was asked for the first's.
	Latency    Spread `json:"lat_ns"`
	Completion Spread `json:"clat_ns"`
}

// Spread describes latencies, in nanoseconds.
type Spread struct {
	Min         float64            `json:"min"`
	Max         float64            `json:"max"`
	Mean        float64            `json:"mean"`
	Deviation   float64            `json:"stddev"`
	N           int64              `json:"N"`
	Percentiles map[string]float64 `json:"percentile"`
}

// ParseResult reads fio's JSON. Notes that fio prints before and behind it are skipped.
func ParseResult(text []byte) (*Result, error) {
	start := bytes.IndexByte(text, '{')
	if start < 0 {
		return nil, errors.New("this is not a result of fio; run fio with --output-format=json")
	}
	r := &Result{}
	if err := json.NewDecoder(bytes.NewReader(text[start:])).Decode(r); err != nil {
		return nil, fmt.Errorf("this is not a result of fio (--output-format=json): %w", err)
	}
	if r.Version == "" || len(r.Jobs) == 0 {
		return nil, errors.New("this JSON is not a result of fio: it has no version or no jobs")
	}
	return r, nil
}

// ReadResult reads a file of fio's JSON.
func ReadResult(name string) (*Result, error) {
	b, err := size.ReadFile(name, size.MaxResult)
	if err != nil {
		return nil, err
	}
	r, err := ParseResult(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// Quantiles returns the percentiles that fio gives, sorted, with their latencies in nanoseconds.
func (s *Spread) Quantiles() (percent, ns []float64) {
	for k := range s.Percentiles {
		if p, err := strconv.ParseFloat(k, 64); err == nil {
			percent = append(percent, p)
		}
	}
	slices.Sort(percent)
	for _, p := range percent {
		for k, v := range s.Percentiles {
			if x, err := strconv.ParseFloat(k, 64); err == nil && x == p {
				ns = append(ns, v)
			}
		}
	}
	return percent, ns
}

// Describe returns mean, standard deviation and number of latencies.
func Describe(ns []float64) Spread {
	s := Spread{N: int64(len(ns)), Min: math.Inf(1), Max: math.Inf(-1)}
	for _, v := range ns {
		s.Mean += v / float64(len(ns))
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	for _, v := range ns {
		s.Deviation += (v - s.Mean) * (v - s.Mean) / float64(max(len(ns)-1, 1))
	}
	s.Deviation = math.Sqrt(s.Deviation)
	return s
}
