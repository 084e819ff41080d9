package fio

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Array is what jobs run against in the simulator.
type Array struct {
	Profile string
	Mdisks  int
	// IOs bounds the I/Os of each job; 0 is no bound.
	IOs int64
}

// Bytes returns after how many bytes IOs ends a job whose I/Os have so many.
func (a Array) Bytes(io uint64) uint64 {
	if a.IOs <= 0 {
		return math.MaxUint64
	}
	hi, bytes := bits.Mul64(uint64(a.IOs), max(io, 512))
	if hi != 0 {
		return math.MaxUint64
	}
	return bytes
}

// Scenario makes a scenario of the simulator, as YAML, of jobs: each is a job of a host of its own, which has the
// job's name, on one volume. notes are options that the simulator has no counterpart of.
func Scenario(jobs []Job, a Array) (text []byte, notes []string, err error) {
	s := builder{a: a, unknown: map[string]bool{}}
	for i := range jobs {
		if err := s.add(&jobs[i]); err != nil {
			return nil, nil, fmt.Errorf("job %s: %w", jobs[i].Name, err)
		}
	}
	volume := max(s.largest, 1<<20)
	text, err = yaml.Marshal(map[string]any{
		"name": "fio",
		"arrays": []any{map[string]any{"name": "array", "profile": a.Profile,
			"pools":   []any{map[string]any{"name": "pool", "mdisks": []any{map[string]any{"count": max(a.Mdisks, 1), "size": 2*volume + 8<<30}}}},
			"volumes": []any{map[string]any{"name": "lun", "pool": "pool", "size": volume, "filled": min(volume, 1<<30)}}}},
		"hosts": s.hosts,
		"jobs":  s.jobs,
	})
	for _, o := range slices.Sorted(maps.Keys(s.unknown)) {
		notes = append(notes, "the simulator has no counterpart of "+o+", which is left out")
	}
	if len(s.buffered) > 0 {
		notes = append(notes, "without direct=1 fio runs "+strings.Join(s.buffered, ", ")+" through the page cache, which the simulator does not have; add direct=1 to measure the same")
	}
	if len(s.unsized) > 0 {
		notes = append(notes, "the size of the device is unknown; 1 GiB is assumed for that of "+strings.Join(s.unsized, ", ")+"; give bytes, such as size=4g")
	}
	if volume > 1<<30 {
		notes = append(notes, "only the first GiB of the volume has contents when the jobs begin, and they stay in it")
	}
	return text, notes, err
}

type builder struct {
	a        Array
	hosts    []any
	jobs     []any
	unknown  map[string]bool
	largest  uint64
	before   []string // what the jobs behind the last stonewall wait for
	since    []string // jobs since that
	buffered []string // jobs through the page cache
	unsized  []string // jobs that end at the end of a device of unknown size
}

// add makes a host and a job of a section.
func (s *builder) add(j *Job) error {
	o := j.Options
	if _, twice := s.named(j.Name); twice {
		return errors.New("there are two jobs of this name; rename one")
	}
	l, err := LoadOf(o)
	if err != nil {
		return err
	}
	for _, k := range l.Left {
		s.unknown[k] = true
	}
	if l.Buffered {
		s.buffered = append(s.buffered, j.Name)
	}
	job := map[string]any{"name": j.Name, "host": j.Name, "volume": "lun", "write": l.Write, "pattern": "random", "io": l.IO, "outstanding": l.Outstanding}
	if l.Sequential {
		job["pattern"] = "sequential"
	}
	if l.Sizes != nil {
		delete(job, "io")
		var list []any
		for _, w := range l.Sizes {
			list = append(list, map[string]any{"size": w.Size, "weight": w.Weight})
		}
		job["sizes"] = list
	}
	if l.Rate > 0 {
		job["rate"], job["arrival"] = l.Rate, "constant"
	}
	if l.Think > 0 {
		job["think"] = l.Think.String()
	}
	if err := s.length(j, job, l.IO); err != nil {
		return err
	}
	s.hosts = append(s.hosts, map[string]any{"name": j.Name})
	s.jobs = append(s.jobs, job)
	return nil
}

func (s *builder) named(name string) (any, bool) {
	for _, h := range s.hosts {
		if h.(map[string]any)["name"] == name {
			return h, true
		}
	}
	return nil, false
}

// endless is a length in bytes that no job reaches.
const endless = 1 << 62

// length sets the part of the volume, and when the job begins and ends.
func (s *builder) length(j *Job, job map[string]any, io uint64) error {
	o := j.Options
	size, _, err := sizeOf(o)
	if err != nil {
		return err
	}
	s.largest = max(s.largest, size)
	job["span"] = min(size, 1<<30)
	timed := on(o, "time_based")
	if timed && o["runtime"] == "" {
		return errors.New("time_based needs a runtime")
	}
	runtime := int64(0)
	if text := o["runtime"]; text != "" {
		if runtime, err = ParseTime(text, 1e9); err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
		job["for"] = time.Duration(runtime).String()
	}
	bytes, sized, err := lengthOf(o)
	if err != nil {
		return err
	}
	// Each clone has the length, and the simulated job is all of them.
	if clones := uint64(max(clonesOf(o), 1)); timed || bytes > endless/clones {
		bytes = endless
	} else {
		bytes *= clones
	}
	if text := o["ramp_time"]; text != "" && text != "0" {
		s.unknown["ramp_time"] = true // its I/Os would be in the figures
	}
	if most := s.a.Bytes(io); !sized && !timed && bytes < most {
		s.unsized = append(s.unsized, j.Name)
	}
	job["bytes"] = min(bytes, s.a.Bytes(io))
	if on(o, "stonewall") && len(s.since) > 0 {
		s.before, s.since = s.since, nil
	}
	s.since = append(s.since, j.Name)
	if len(s.before) > 0 {
		job["after_all"] = s.before
	}
	if text := o["startdelay"]; text != "" {
		ns, err := ParseTime(text, 1e9)
		if err != nil {
			return fmt.Errorf("startdelay: %w", err)
		}
		job["at"] = time.Duration(ns).String()
	}
	return nil
}

// lengthOf returns after how many bytes each clone of a job ends that no time ends before; sized is false if that is the
// end of a device of unknown size.
func lengthOf(o Options) (bytes uint64, sized bool, err error) {
	size, sized, err := sizeOf(o)
	if err != nil {
		return 0, false, err
	}
	bytes = size
	part, percent := strings.CutSuffix(o["io_size"], "%")
	switch text := o["io_size"]; {
	case text == "" || text == "100%":
	case percent && sized: // it multiplies size
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || n == 0 || n > 100 {
			return 0, false, fmt.Errorf("io_size=%s is not a percentage from 1 to 100", text)
		}
		bytes = uint64(float64(size) * float64(n) / 100)
	default:
		if bytes, err = bytesOf("io_size", text); err != nil {
			return 0, false, err
		}
		sized = true
	}
	if text := o["loops"]; text != "" && text != "1" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == 0 || bytes > endless/n {
			return 0, false, fmt.Errorf("loops=%s is not a number of at least 1", text)
		}
		bytes *= n
	}
	return bytes, sized, nil
}

// sizeOf returns the part of the volume that a job uses. A job that uses all of its device gets 1 GiB, and sized is false.
func sizeOf(o Options) (bytes uint64, sized bool, err error) {
	for _, option := range []string{"size", "filesize"} {
		if text := o[option]; text != "" && text != "100%" {
			bytes, err = bytesOf(option, text)
			return bytes, true, err
		}
	}
	return 1 << 30, false, nil
}

// bytesOf reads a length. One in percents is of a device whose size nobody knows here.
func bytesOf(option, text string) (uint64, error) {
	if strings.HasSuffix(text, "%") || strings.HasSuffix(text, "z") {
		return 0, fmt.Errorf("%s=%s: the simulated LUN is as large as its jobs say, so a part of it is unknown; give bytes, such as %s=1g", option, text, option)
	}
	n, err := ParseSize(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", option, err)
	}
	return n, nil
}
