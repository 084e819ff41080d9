package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// job is work of a host: a load, or a disk that is zeroed, cloned or unmapped.
type job struct {
	r        *Run
	spec     *JobSpec
	h        *host
	ends     bool // by itself
	running  bool
	over     bool
	began    int64 // in the run's time
	ended    int64
	bytes    uint64 // done
	total    uint64 // to do; 0 if it has no end
	ios      uint64
	failed   uint64
	aborted  uint64
	flying   int
	loads    []*load
	lap1     firstLap
	tx       *transactions
	types    []txTally // of transactions, by type
	computed int64     // processor time of transactions, once the run is finished
	work     func()    // starts it
	after    []*job    // begin when this has ended, and what else they wait for
	awaits   int       // jobs that have not ended, and that this one waits for
	latency  *hdrhistogram.Histogram
	// Guest I/O by phase: [0] while the disk has blocks that were never written, [1] after.
	phase [2]struct {
		ios   uint64
		bytes uint64
		wait  int64
		end   int64
	}
	wireOut  uint64 // bytes of data that the host sent before it began
	atEnd    did    // until it ended
	steps    []Step
	replayed *ReplayOutcome
}

// did is what rates of a job are made of.
type did struct{ ios, bytes, wire uint64 }

// did returns what the job did while it lasted: what was under way when it ended is no part of a rate over its time.
func (j *job) did() did {
	if j.over {
		return j.atEnd
	}
	return did{j.ios, j.bytes, j.h.wire[1] - j.wireOut}
}

// Step is what a job did in a tenth of a second.
type Step struct {
	IOs   uint64
	Bytes uint64
	Wait  int64 // sum of response times, nanoseconds
}

// stepTime is the length of a Step.
const stepTime = second / 10

// newLatencies returns a histogram of times in ns to so many decimal digits. No time is too long for it, and none too short: a
// histogram from a microsecond on has steps of 512 ns up to 65 us.
func newLatencies(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, math.MaxInt64, digits)
}

// record takes a time into a histogram of newLatencies.
func record(h *hdrhistogram.Histogram, wait int64) {
	_ = h.RecordValue(max(wait, 0)) // it refuses what is negative or too long
}

// count books what ended now in the job's steps.
func (j *job) count(bytes uint64, wait int64) {
	at := int((j.r.now() - j.began) / stepTime)
	for len(j.steps) <= at {
		j.steps = append(j.steps, Step{})
	}
	x := &j.steps[at]
	x.IOs++
	x.Bytes += bytes
	x.Wait += wait
}

// Steps returns what a job did over time, in tenths of a second from when it began, in the scenario's time. ok is false
// if there is no such job, or it has not begun.
func (r *Run) Steps(job string) (steps []Step, began int64, ok bool) {
	for _, j := range r.jobs {
		if j.spec.Name == job && j.begun() {
			return j.steps, j.began, true
		}
	}
	return nil, 0, false
}

func (r *Run) volumeNamed(name string) *volume {
	for _, v := range r.volumes {
		if v.name == name {
			return v
		}
	}
	return nil
}

// volumesOf returns the volume of this name, or those of this group.
func (r *Run) volumesOf(name string) []*volume {
	if v := r.volumeNamed(name); v != nil {
		return []*volume{v}
	}
	var out []*volume
	for _, v := range r.volumes {
		if v.group == name {
			out = append(out, v)
		}
	}
	return out
}

func (r *Run) newJob(spec JobSpec) (*job, error) {
	j := &job{r: r, spec: &spec, latency: newLatencies(2)}
	for _, h := range r.hosts {
		if h.name == spec.Host {
			j.h = h
		}
	}
	vols := r.volumesOf(spec.Volume)
	switch {
	case j.h == nil:
		return nil, fmt.Errorf("there is no host %q", spec.Host)
	case len(vols) == 0:
		return nil, fmt.Errorf("there is no volume or group %q", spec.Volume)
	case len(vols) > 1 && spec.Kind != "load" && spec.Kind != "vmotion":
		return nil, fmt.Errorf("%s is a group; a %s is of one volume", spec.Volume, spec.Kind)
	}
	d := j.h.device(vols[0])
	size := uint64(spec.Size)
	if size == 0 {
		size = d.v.info.Sectors * 512
	}
	if size > d.v.info.Sectors*512 {
		return nil, fmt.Errorf("%s is more than volume %s has", spec.Size, d.v.name)
	}
	for _, v := range vols {
		if err := j.cacheable(j.h.device(v)); err != nil {
			return nil, err
		}
	}
	switch spec.Kind {
	case "zero", "unmap", "clone":
		if err := spec.checkWork(vols[0]); err != nil {
			return nil, err
		}
	}
	switch spec.Kind {
	case "transactions":
		if err := j.makeTransactions(d); err != nil {
			return nil, err
		}
		j.work = j.tx.begin
	case "trace":
		if err := j.makeReplay(d); err != nil {
			return nil, err
		}
		j.ends = true
	case "load":
		if err := j.makeLoads(vols); err != nil {
			return nil, err
		}
		j.work = j.startLoads
		j.ends = spec.Laps > 0 || spec.Bytes > 0
	case "zero":
		j.ends, j.total = true, size
		j.work = func() { j.zero(d) }
	case "unmap":
		j.ends, j.total = true, size
		j.work = func() { j.unmap(d) }
	case "vmotion":
		if err := j.makeMove(vols); err != nil {
			return nil, err
		}
	case "clone":
		to := r.volumeNamed(spec.To)
		if to == nil {
			return nil, fmt.Errorf("there is no volume %q", spec.To)
		}
		if err := j.cacheable(j.h.device(to)); err != nil {
			return nil, err
		}
		if have := to.info.Sectors * 512; size > have || uint64(spec.Skew) > have-size {
			return nil, fmt.Errorf("volume %s is smaller than the %d MiB of the clone", to.name, size>>20)
		}
		j.ends, j.total = true, size
		j.work = func() { j.clone(d, j.h.device(to)) }
	}
	return j, j.await()
}

// await has the job begin when others have ended.
func (j *job) await() error {
	first := slices.Clone(j.spec.AfterAll)
	if j.spec.After != "" {
		first = append(first, j.spec.After)
	}
	slices.Sort(first)
	for _, name := range slices.Compact(first) {
		i := slices.IndexFunc(j.r.jobs, func(o *job) bool { return o.spec.Name == name })
		if i < 0 {
			return fmt.Errorf("there is no job %q before this one", name)
		}
		j.r.jobs[i].after = append(j.r.jobs[i].after, j)
		j.awaits++
	}
	return nil
}

// plan sets the job's beginning and, for a load, its end.
func (j *job) plan() {
	if j.awaits == 0 {
		j.r.at(int64(j.spec.At), j.start)
	}
}

func (j *job) start() {
	j.running, j.began, j.wireOut = true, j.r.now(), j.h.wire[1]
	j.r.event("job %s begins", j.spec.Name)
	if j.spec.For > 0 {
		j.r.at(j.began+int64(j.spec.For), j.stop)
	}
	j.work()
}

// begun tells whether the job has begun; it may be over, too.
func (j *job) begun() bool { return j.running || j.over }

// stop ends the job; what is under way runs to its end.
func (j *job) stop() {
	if j.over {
		return
	}
	j.atEnd = j.did()
	j.running, j.over, j.ended = false, true, j.r.now()
	j.r.event("job %s ends after %s: %d MiB", j.spec.Name, Duration(j.ended-j.began), j.bytes>>20)
	for _, next := range j.after {
		if next.awaits--; next.awaits == 0 {
			j.r.at(j.ended+int64(next.spec.At), next.start)
		}
	}
	j.r.jobEnded()
}

// seconds is how long the job took, or has taken so far.
func (j *job) seconds() float64 {
	end := j.ended
	if !j.over {
		end = j.r.now()
	}
	return float64(end-j.began) / 1e9
}
