package fio

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	// IOs bounds the I/Os of a job that says no size to end after; 0 is no bound.
	IOs int64
	// One is whether the jobs run one after the other, whatever they say.
	One bool
}

// harmless are options that do not change what an array sees, or that only say what is printed.
var harmless = []string{"ioengine", "direct", "buffered", "filename", "group_reporting", "randrepeat", "randseed", "allrandrepeat", "norandommap", "gtod_reduce",
	"lat_percentiles", "clat_percentiles", "slat_percentiles", "percentile_list", "write_lat_log", "write_bw_log", "write_iops_log", "write_hist_log", "log_avg_msec", "log_offset",
	"log_unix_epoch", "description", "refill_buffers", "scramble_buffers", "invalidate", "thread", "name", "create_on_open", "unlink", "fallocate", "end_fsync", "disable_lat",
	"disable_clat", "disable_slat", "exitall", "wait_for_previous", "stonewall", "directory", "filename_format", "overwrite", "registerfiles", "fixedbufs", "hipri", "userspace_reap",
	"iodepth_batch", "iodepth_low", "iodepth_batch_complete", "nrfiles", "openfiles", "cpus_allowed", "numa_cpu_nodes", "prio", "nice", "status-interval", "eta", "loops"}

// known are options that the scenario has.
var known = []string{"rw", "readwrite", "bs", "blocksize", "ba", "blockalign", "bssplit", "iodepth", "numjobs", "size", "filesize", "io_size", "runtime", "timeout", "time_based",
	"rwmixread", "rwmixwrite", "rate_iops", "thinktime", "startdelay", "ramp_time", "new_group"}

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
	previous string // the job that a stonewall waits for
	longest  int64
	last     string
}

// add makes a host and a job of a section.
func (s *builder) add(j *Job) error {
	o := j.Options
	if _, twice := s.named(j.Name); twice {
		return errors.New("there are two jobs of this name; give one another name")
	}
	for k := range o {
		if !slices.Contains(harmless, k) && !slices.Contains(known, k) {
			s.unknown[k] = true
		}
	}
	job := map[string]any{"name": j.Name, "host": j.Name, "volume": "lun"}
	rw := cmp.Or(o["rw"], o["readwrite"], "read")
	mix, ok := map[string]float64{"read": 0, "randread": 0, "write": 1, "randwrite": 1, "rw": -1, "readwrite": -1, "randrw": -1}[strings.SplitN(rw, ":", 2)[0]]
	if !ok {
		return fmt.Errorf("rw=%s is not simulated; it is one of read, write, randread, randwrite, rw, randrw", rw)
	}
	if mix < 0 {
		mix = 0.5
		if v, err := strconv.ParseFloat(o["rwmixread"], 64); err == nil {
			mix = 1 - v/100
		} else if v, err := strconv.ParseFloat(o["rwmixwrite"], 64); err == nil {
			mix = v / 100
		}
	}
	job["write"] = mix
	if job["pattern"] = "sequential"; strings.HasPrefix(rw, "rand") {
		job["pattern"] = "random"
	}
	io, err := s.sizes(o, job)
	if err != nil {
		return err
	}
	if err := s.depth(o, job); err != nil {
		return err
	}
	if err := s.length(j, job, io); err != nil {
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

// sizes sets the size of I/Os and returns the mean.
func (s *builder) sizes(o map[string]string, job map[string]any) (uint64, error) {
	if split := o["bssplit"]; split != "" {
		var list []any
		sum, all := 0.0, 0.0
		for part := range strings.SplitSeq(strings.Split(split, ",")[0], ":") {
			size, percent, _ := strings.Cut(part, "/")
			n, err := ParseSize(size)
			weight, err2 := strconv.ParseFloat(percent, 64)
			if err != nil || err2 != nil {
				return 0, fmt.Errorf("bssplit=%s: write sizes with percents, such as 4k/60:64k/40", split)
			}
			list = append(list, map[string]any{"size": n, "weight": int(weight * 100)})
			sum += float64(n) * weight
			all += weight
		}
		job["sizes"] = list
		return uint64(sum / max(all, 1)), nil
	}
	n, err := ParseSize(strings.Split(cmp.Or(o["bs"], o["blocksize"], "4k"), ",")[0])
	job["io"] = n
	return n, err
}

// depth sets how many I/Os are in flight, or arrive.
func (s *builder) depth(o map[string]string, job map[string]any) error {
	clones, err := strconv.Atoi(cmp.Or(o["numjobs"], "1"))
	depth, err2 := strconv.Atoi(cmp.Or(o["iodepth"], "1"))
	if err != nil || err2 != nil || clones < 1 || depth < 1 || clones > 1<<20 || depth > 1<<20 {
		return fmt.Errorf("iodepth=%s and numjobs=%s: both are numbers from 1 on", o["iodepth"], o["numjobs"])
	}
	switch strings.Split(o["ioengine"], ":")[0] {
	case "sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "":
		depth = 1 // these have one I/O in flight, whatever iodepth says
	}
	job["outstanding"] = clones * depth
	if text := o["rate_iops"]; text != "" {
		rate, err := strconv.ParseFloat(strings.Split(text, ",")[0], 64)
		if err != nil {
			return fmt.Errorf("rate_iops=%s is not a number", text)
		}
		job["rate"], job["arrival"] = rate*float64(clones), "constant"
	}
	if text := o["thinktime"]; text != "" {
		ns, err := ParseTime(text, 1e3)
		if err != nil {
			return fmt.Errorf("thinktime: %w", err)
		}
		job["think"] = time.Duration(ns).String()
	}
	return nil
}

// length sets the part of the volume, and when the job begins and ends.
func (s *builder) length(j *Job, job map[string]any, io uint64) error {
	o := j.Options
	size := uint64(1 << 30)
	if text := cmp.Or(o["size"], o["filesize"]); text != "" && !strings.HasSuffix(text, "%") {
		var err error
		if size, err = ParseSize(text); err != nil {
			return err
		}
	}
	s.largest = max(s.largest, size)
	job["span"] = min(size, 1<<30)
	_, timed := o["time_based"]
	if timed = timed && o["time_based"] != "0"; timed && o["runtime"] == "" && o["timeout"] == "" {
		return errors.New("time_based needs a runtime")
	}
	runtime := int64(0)
	if text := cmp.Or(o["runtime"], o["timeout"]); text != "" {
		var err error
		if runtime, err = ParseTime(text, 1e9); err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
		job["for"] = time.Duration(runtime).String()
	}
	bytes := size
	if text := o["io_size"]; text != "" {
		var err error
		if bytes, err = ParseSize(text); err != nil {
			return err
		}
	}
	if timed {
		bytes = 1 << 62
	}
	if s.a.IOs > 0 {
		bytes = min(bytes, uint64(s.a.IOs)*max(io, 512))
	}
	job["bytes"] = bytes
	_, wall := o["stonewall"]
	_, wait := o["wait_for_previous"]
	if (wall || wait || s.a.One) && s.last != "" {
		s.previous, s.longest = s.last, 0
	}
	if s.previous != "" {
		job["after"] = s.previous
	}
	if text := o["startdelay"]; text != "" {
		ns, err := ParseTime(text, 1e9)
		if err != nil {
			return fmt.Errorf("startdelay: %w", err)
		}
		job["at"] = time.Duration(ns).String()
	}
	// A stonewall waits for the longest job of the group before it.
	if s.last == "" || s.last == s.previous || runtime >= s.longest {
		s.last, s.longest = j.Name, runtime
	}
	return nil
}
