package sim

import "github.com/arraysim/arraysim/internal/metrics"

// Emit emits the counters of all arrays as they stand: a Run is a [metrics.Source].
func (r *Run) Emit(e metrics.Emitter) {
	for _, y := range r.arrays {
		y.target.Emit(e)
		y.array.Emit(e)
	}
}

// Every calls fn at 0, interval, twice the interval and so on of the scenario's time. It
// is called before the run advances; fn must not advance it.
func (r *Run) Every(interval int64, fn func(now int64)) {
	next := int64(0)
	var tick func()
	tick = func() {
		fn(r.now())
		next += interval
		r.at(next, tick)
	}
	r.at(0, tick)
}

// Responses returns how many reads and writes hosts had answered by a volume since the start, and the sum of
// their response times in nanoseconds; ok is false if there is no such volume.
func (r *Run) Responses(volume string) (ops [2]uint64, wait [2]int64, ok bool) {
	v := r.volumeNamed(volume)
	if v == nil {
		return ops, wait, false
	}
	return v.host.ops, v.host.wait, true
}

// IO is a read or write that an array has answered, as its host saw it. Times are the scenario's, in
// nanoseconds, offset and length bytes of the volume.
type IO struct {
	Issued, Done int64
	Write        bool
	Offset       uint64
	Bytes        uint64
	Volume, Host string
}

// Watch calls fn for each I/O that ends well, in the order of their ends. It is called before the run
// advances; fn must not advance it.
func (r *Run) Watch(fn func(IO)) { r.watch = fn }
