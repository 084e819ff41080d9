package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/store"
)

// A run from when its clock starts to when its books are closed.

// begin starts the clock.
func (r *Run) begin() {
	r.exec.RunUntil((r.exec.Now() + 999_999_999) / 1e9 * 1e9)
	r.start = r.exec.Now()
	for _, y := range r.arrays {
		y.store.SetModel(func(name string) store.Service {
			k, _ := y.p.Kind(y.kinds[name])
			return k.Service()
		})
		if err := y.setPolicy(); err != nil {
			r.problem = err
		}
	}
	r.started = true
	for _, h := range r.hosts {
		h.reset()
	}
	for _, v := range r.volumes {
		v.host = hostSide{}
	}
	r.base = r.snap()
	r.series.begin(r)
	r.beginCaches()
	for _, c := range r.changes {
		r.at(c.at, c.fn)
	}
	for _, j := range r.jobs {
		j.plan()
	}
}

// What may happen at one instant: so many steps if no job comes nearer to its end by them, or else nothing will ever take time.
// That is far more than any array does at once, and some seconds. Whoever may interrupt a run is asked after as many as
// lookAround.
const (
	mostAtOnce = 1 << 24
	lookAround = 1 << 16
)

// progress grows whenever a job that ends comes nearer to its end.
func (r *Run) progress() uint64 {
	sum := uint64(0)
	for _, j := range r.jobs {
		if j.ends && j.running && j.total < 1<<60 { // a job of so many bytes ends by its time alone
			if sum += j.bytes; j.replayed != nil { // a trace ends, whatever becomes of its requests
				sum += j.failed
			}
		}
	}
	return sum
}

// Interrupt has Advance ask, while time stands still, whether to return without having come to its time.
func (r *Run) Interrupt(asked func() bool) { r.interrupted = asked }

// Advance runs until the scenario's time t or the end, and tells whether the run is
// over.
func (r *Run) Advance(t int64) bool {
	if r.s.Until > 0 {
		t = min(t, int64(r.s.Until))
	}
	steps, last, done := 0, r.exec.Now(), r.progress()
	for r.end < 0 && r.exec.StepUntil(r.start+t) {
		if now := r.exec.Now(); now != last {
			steps, last = 0, now
			continue
		}
		if steps++; steps%lookAround != 0 {
			continue
		}
		if r.interrupted != nil && r.interrupted() {
			return false
		}
		if steps == r.most {
			if p := r.progress(); p != done {
				steps, done = 0, p
				continue
			}
			r.fail(fmt.Errorf("time stands still at %s: nothing takes time; give a profile, think, bytes or a rate", Duration(r.now())))
		}
	}
	r.checkPolicies()
	if r.end < 0 {
		r.exec.RunUntil(r.start + t)
		if r.s.Until == 0 || t < int64(r.s.Until) {
			return false
		}
		r.end = t
	}
	return true
}

// Finish closes the books of a run at its present time, and lets go of the arrays: what is
// left answers questions, and takes little memory.
func (r *Run) Finish() {
	if r.finished {
		return
	}
	if r.end < 0 {
		r.end, r.cut = r.now(), true
	}
	r.series.finish(r)
	r.finishCaches()
	r.checkPolicies()
	r.Close()
	r.last = r.snap()
	for _, y := range r.arrays {
		y.check = y.array.Check(false)
		y.array, y.target, y.store, y.naked, y.engine, y.pools = nil, nil, nil, nil, nil, nil
	}
	for _, v := range r.volumes {
		v.vol = nil
	}
	for _, h := range r.hosts {
		h.free = nil
		for _, p := range h.paths {
			p.nexus = nil
		}
	}
	for _, j := range r.jobs {
		j.computed = j.cpuTime()
		j.work, j.loads, j.tx = nil, nil, nil
	}
	r.exec, r.changes, r.series.tickFn = nil, nil, nil
	r.finished = true
}

// Ended tells whether the run came to its end, by itself and without a problem; one that Finish cut off did not.
func (r *Run) Ended() bool { return r.end >= 0 && !r.cut && r.problem == nil }

// Time returns the scenario's time and when it will end, 0 if that is not known.
func (r *Run) Time() (now, until int64) { return r.now(), int64(r.s.Until) }

// Progress returns how far the jobs that end are, in thousandths, and -1 if none does.
func (r *Run) Progress() int {
	sum, n := 0, 0
	for _, j := range r.jobs {
		if j.total > 0 {
			sum += int(j.bytes * 1000 / j.total)
			n++
		}
	}
	if n == 0 {
		return -1
	}
	return min(sum/n, 1000)
}

// jobEnded ends the run when it was the last that it waited for.
func (r *Run) jobEnded() {
	if r.s.Until > 0 {
		return
	}
	for _, j := range r.jobs {
		if j.ends && !j.over {
			return
		}
	}
	r.end = r.now()
}
