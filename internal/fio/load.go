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
)

// Load is what a job asks of a device, all its clones (numjobs) together.
type Load struct {
	IO          uint64   // bytes of an I/O; the mean, if there are several sizes
	Sizes       []Weight // of bssplit; nil is one size
	Write       float64  // share of writes
	Sequential  bool
	Outstanding int           // I/Os in flight
	Rate        float64       // I/Os a second at equal distances; 0 is as fast as answers come
	Think       time.Duration // between an answer and the next I/O
	// Buffered says that nothing asks for direct=1: fio reads and writes through the page cache then, which the
	// simulator has not.
	Buffered bool
	// Left are options, sorted, that may change the load and that have no counterpart here.
	Left []string
}

// Weight is a size of I/Os with its weight among others.
type Weight struct {
	Size   uint64
	Weight int
}

// harmless are options that do not change what a device sees, or that only say what is printed.
var harmless = []string{"ioengine", "direct", "buffered", "filename", "group_reporting", "randrepeat", "randseed", "allrandrepeat", "norandommap", "gtod_reduce",
	"lat_percentiles", "clat_percentiles", "slat_percentiles", "percentile_list", "write_lat_log", "write_bw_log", "write_iops_log", "write_hist_log", "log_avg_msec", "log_offset",
	"log_unix_epoch", "description", "refill_buffers", "scramble_buffers", "invalidate", "thread", "name", "create_on_open", "unlink", "fallocate", "end_fsync", "disable_lat",
	"disable_clat", "disable_slat", "exitall", "directory", "filename_format", "overwrite", "registerfiles", "fixedbufs", "hipri", "userspace_reap",
	"nrfiles", "openfiles", "cpus_allowed", "cpus_allowed_policy", "numa_cpu_nodes", "numa_mem_policy", "prio", "prioclass", "nice", "status-interval", "eta",
	"bwavgtime", "iopsavgtime", "clocksource", "disk_util", "mem", "iomem", "iomem_align", "ioscheduler", "unified_rw_reporting", "allow_file_create", "create_serialize",
	"create_fsync", "zero_buffers", "buffer_pattern", "buffer_compress_percentage", "dedupe_percentage", "sqthread_poll", "nonvectored", "random_generator", "opendir",
	"gtod_cpu", "write_iolog", "log_max_value", "log_hist_msec", "log_hist_coarseness", "kb_base", "unit_base", "uid", "gid", "error_dump", "exec_prerun", "exec_postrun",
	// Where engines that are devices themselves find theirs: nbd, rbd and rados, io_uring_cmd.
	"uri", "clustername", "rbdname", "pool", "clientname", "cmd_type"}

// shapes are options that LoadOf reads.
var shapes = []string{"rw", "bs", "ba", "bssplit", "iodepth", "numjobs", "rwmixread", "rwmixwrite", "rate_iops", "thinktime",
	"iodepth_batch", "iodepth_batch_complete_min", "iodepth_low"}

// lengths are options that say where on the device, when and for how long.
var lengths = []string{"size", "filesize", "io_size", "runtime", "time_based", "startdelay", "stonewall", "new_group", "loops", "ramp_time"}

// LoadOf makes a load of a job's options, as [Options] has them: each by the first of its names. What cannot be made one is an error that names the option; what can be left
// out at the price of a somewhat other load is in Left.
func LoadOf(o map[string]string) (Load, error) {
	var l Load
	rw, modifier, _ := strings.Cut(cmp.Or(o["rw"], "read"), ":")
	mix, ok := map[string]float64{"read": 0, "randread": 0, "write": 1, "randwrite": 1, "rw": -1, "readwrite": -1, "randrw": -1}[rw]
	if !ok {
		return l, fmt.Errorf("rw=%s is not simulated; it is one of read, write, randread, randwrite, rw, randrw", rw)
	}
	// Behind random ones it is how many I/Os follow each other, behind sequential ones the distance between two.
	if plain := map[bool]string{true: "1", false: "0"}[strings.HasPrefix(rw, "rand")]; modifier != "" && modifier != plain {
		return l, fmt.Errorf("rw=%s:%s: sequences with jumps are not simulated; leave the :%s out", rw, modifier, modifier)
	}
	if mix < 0 {
		mix = 0.5
		for name, reads := range map[string]bool{"rwmixread": true, "rwmixwrite": false} {
			if o[name] == "" {
				continue
			}
			v, err := strconv.ParseFloat(o[name], 64)
			if err != nil || !(v >= 0 && v <= 100) {
				return l, fmt.Errorf("%s=%s is not a percentage", name, o[name])
			}
			if mix = v / 100; reads {
				mix = 1 - mix
			}
		}
	}
	l.Write, l.Sequential = mix, !strings.HasPrefix(rw, "rand")
	if err := errors.Join(l.sizes(o), l.depth(o), l.cached(o)); err != nil {
		return l, err
	}
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(harmless, k) && !slices.Contains(shapes, k) && !slices.Contains(lengths, k) || l.dropped(k, o) {
			l.Left = append(l.Left, k)
		}
	}
	return l, nil
}

// on reports whether a switch is on; one without a value is.
func on(o map[string]string, option string) bool {
	value, has := o[option]
	return has && value != "0"
}

// deviceEngines are engines that have no page cache in between, whatever direct says.
var deviceEngines = []string{"libiscsi", "sg", "nbd", "rbd", "rados", "io_uring_cmd", "xnvme", "libblkio", "spdk", "null"}

// cached refuses what asks for the page cache, and notes what gets it without asking.
func (l *Load) cached(o map[string]string) error {
	engine, _, _ := strings.Cut(o["ioengine"], ":")
	_, direct := o["direct"]
	_, buffered := o["buffered"]
	switch {
	case direct && !on(o, "direct"):
		return fmt.Errorf("direct=%s: the page cache is neither simulated nor fitted; measure with direct=1", o["direct"])
	case buffered && on(o, "buffered"):
		return fmt.Errorf("buffered=%s: the page cache is neither simulated nor fitted; measure with direct=1", o["buffered"])
	}
	l.Buffered = !direct && !buffered && !slices.Contains(deviceEngines, engine)
	return nil
}

// dropped reports whether an option that is known has a value without a counterpart.
func (l *Load) dropped(option string, o map[string]string) bool {
	switch value := o[option]; option {
	case "ba":
		n, err := ParseSize(value)
		return err != nil || l.Sizes != nil || n != l.IO
	case "iodepth_batch", "iodepth_batch_complete_min":
		return value != "0" && value != "1"
	case "iodepth_low":
		return value != "0" && value != cmp.Or(o["iodepth"], "1")
	}
	return false
}

// direction returns the part of a value that counts for the load: fio takes "reads,writes,trims". Two parts that differ
// are an error in a mixed load.
func (l *Load) direction(option, value string) (string, error) {
	parts := strings.Split(value, ",")
	if len(parts) == 1 {
		return value, nil
	}
	switch {
	case l.Write == 0:
		return parts[0], nil
	case l.Write == 1 || parts[0] == parts[1]:
		return parts[1], nil
	}
	return "", fmt.Errorf("%s=%s: reads and writes of one job that differ are not simulated; make two jobs of them", option, value)
}

// sizes sets the size of I/Os.
func (l *Load) sizes(o map[string]string) error {
	if o["bsrange"] != "" {
		return fmt.Errorf("bsrange=%s: a range of sizes is not simulated; give bs, or bssplit", o["bsrange"])
	}
	if o["bssplit"] == "" {
		text, err := l.direction("bs", cmp.Or(o["bs"], "4k"))
		if err != nil {
			return err
		}
		if l.IO, err = ParseSize(cmp.Or(text, "4k")); err == nil && l.IO == 0 {
			err = errors.New("bs=0 is not a valid size of an I/O")
		}
		return err
	}
	split, err := l.direction("bssplit", o["bssplit"])
	if err != nil {
		return err
	}
	sum, all, weights := 0.0, 0.0, 0
	for part := range strings.SplitSeq(split, ":") {
		size, percent, _ := strings.Cut(part, "/")
		n, err := ParseSize(size)
		weight, err2 := strconv.ParseFloat(percent, 64)
		if err != nil || err2 != nil || n == 0 || !(weight >= 0 && weight <= 100) {
			return fmt.Errorf("bssplit=%s: write sizes with percentages, such as 4k/60:64k/40", split)
		}
		l.Sizes = append(l.Sizes, Weight{n, int(weight * 100)})
		weights += int(weight * 100)
		sum += float64(n) * weight
		all += weight
	}
	if weights == 0 {
		return fmt.Errorf("bssplit=%s: no size has a hundredth of a percent or more; give percentages such as 4k/60:64k/40", split)
	}
	l.IO = uint64(sum / all)
	return nil
}

// clonesOf returns how many clones (numjobs) a job has; 0 is a value that is not one.
func clonesOf(o map[string]string) int {
	n, err := strconv.Atoi(cmp.Or(o["numjobs"], "1"))
	if err != nil || n < 1 || n > 1<<20 {
		return 0
	}
	return n
}

// depth sets how many I/Os are in flight, or arrive.
func (l *Load) depth(o map[string]string) error {
	clones := clonesOf(o)
	depth, err := strconv.Atoi(cmp.Or(o["iodepth"], "1"))
	if err != nil || clones < 1 || depth < 1 || depth > 1<<20 {
		return fmt.Errorf("iodepth=%s and numjobs=%s: both must be numbers of at least 1", cmp.Or(o["iodepth"], "1"), cmp.Or(o["numjobs"], "1"))
	}
	switch strings.Split(o["ioengine"], ":")[0] {
	case "sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "":
		depth = 1 // these have one I/O in flight, whatever iodepth says
	}
	l.Outstanding = clones * depth
	if text := o["rate_iops"]; text != "" {
		if l.Write > 0 && l.Write < 1 {
			return fmt.Errorf("rate_iops=%s bounds reads and writes of a mixed job separately, which is not simulated; make two jobs of them", text)
		}
		part, err := l.direction("rate_iops", text)
		rate, err2 := strconv.ParseFloat(part, 64)
		if err != nil || err2 != nil || !(rate > 0) {
			return fmt.Errorf("rate_iops=%s is not a number of I/Os a second", text)
		}
		l.Rate = rate * float64(clones)
	}
	if text := o["thinktime"]; text != "" {
		ns, err := ParseTime(text, 1e3)
		if err != nil {
			return fmt.Errorf("thinktime: %w", err)
		}
		l.Think = time.Duration(ns)
	}
	return nil
}
