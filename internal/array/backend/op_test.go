package backend

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// TestLimits: operations start as far apart as the limits say, in their order, and a limit that goes
// away holds up nothing that comes later.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		starts []int64 // in ms, of 64 KiB each
	}{
		"none":      {Limits{}, []int64{0, 0, 0}},
		"bandwidth": {Limits{Bandwidth: 1 << 20}, []int64{62, 125, 187}},
		"iops":      {Limits{IOPS: 100}, []int64{10, 20, 30}},
		"both":      {Limits{Bandwidth: 1 << 20, IOPS: 10}, []int64{100, 200, 300}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d, m := r.mdisk("m", c.limits)
			for i := range uint64(3) {
				r.do(d, i%2 == 0, i<<16, 1<<16)
			}
			r.step()
			d.SetLimits(Limits{})
			r.do(d, false, 3<<16, 512)
			r.step()
			r.clock.Run()
			var got []int64
			for _, b := range m.batches {
				for _, x := range b {
					if x.n == 1<<16 {
						got = append(got, x.at/1e6)
					}
				}
			}
			if !slices.Equal(got, c.starts) {
				t.Errorf("they started after %v ms, not %v", got, c.starts)
			}
			if last := m.batches[len(m.batches)-1]; last[len(last)-1].n != 512 {
				t.Errorf("an operation without limits has passed those that limits delayed: %v", m.batches)
			}
			if len(r.seen) != 4 || d.depth != 0 || d.out != 0 {
				t.Errorf("heard: %q; %d and %d are left", r.seen, d.depth, d.out)
			}
		})
	}
}

// TestBatches: what a step starts goes out at its end, that of one mdisk in a row as one batch; what
// is started while a batch completes goes out in the same step.
func TestBatches(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	e, n := r.mdisk("n", Limits{})
	more := 2
	r.read = func(*Op) {
		if more--; more >= 0 {
			r.do(e, false, 4096, 512)
		}
	}
	r.do(d, true, 0, 512)
	r.do(d, false, 512, 512)
	r.do(e, true, 0, 512)
	r.do(d, true, 1024, 512)
	if len(m.batches)+len(n.batches) > 0 || !r.b.Pending() || r.b.WaitedFor() != 1 {
		t.Fatalf("before the step's end: %v, %v", m.batches, n.batches)
	}
	r.step()
	if len(m.batches) != 2 || len(m.batches[0]) != 2 || len(m.batches[1]) != 1 || len(n.batches) != 3 {
		t.Errorf("batches: %v and %v", m.batches, n.batches)
	}
	if r.b.Pending() || r.b.WaitedFor() != 0 || len(r.seen) != 6 {
		t.Errorf("heard: %q", r.seen)
	}
}

// TestCounters: bytes are booked to their origins, an operation to the one that has most of them;
// what failed, and what a detached mdisk does, is not counted.
func TestCounters(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	write := func() {
		x := d.Op(true, 0, 4096, block.ReasonDestage)
		x.Bytes[block.OriginHost], x.Bytes[block.OriginXCopy] = 1024, 3072
		d.Write(x)
		r.step()
	}
	write()
	m.fail = func(*block.IO) error { return errDisk }
	write()
	m.fail = nil
	r.b.Detach(d)
	write()
	for o, want := range map[block.Origin][2]uint64{block.OriginHost: {0, 1024}, block.OriginXCopy: {1, 3072}, block.OriginCAW: {}} {
		if ops, bytes := d.Moved(true, o, block.ReasonDestage); ops != want[0] || bytes != want[1] {
			t.Errorf("%v: %d operations, %d bytes; want %v", o, ops, bytes, want)
		}
	}
	if ops, bytes := d.Moved(false, block.OriginHost, block.ReasonDestage); ops+bytes != 0 {
		t.Errorf("%d reads of %d bytes", ops, bytes)
	}
	// Another process finds what was counted.
	again := New(r.clock, r.rows, r.b.hooks).NewMdisk(Config{ID: d.id, Pool: d.pool}, m)
	if ops, bytes := again.Moved(true, block.OriginXCopy, block.ReasonDestage); ops != 1 || bytes != 3072 {
		t.Errorf("afterwards %d operations of %d bytes are known", ops, bytes)
	}
	var snap metrics.Snapshot
	snap.Take(0, r.clock, source(func(e metrics.Emitter) { again.Emit(e, "pool") }))
	got := map[string]float64{}
	snap.Each(func(f *metrics.Family, labels []string, v float64, _ *metrics.Histogram) {
		got[f.Name+" "+strings.Join(labels[2:], " ")] = v
	})
	host, xcopy := " write host destage", " write xcopy destage"
	want := map[string]float64{metrics.BackendQueue.Name + " ": 0, metrics.BackendOperations.Name + host: 0, metrics.BackendBytes.Name + host: 1024,
		metrics.BackendOperations.Name + xcopy: 1, metrics.BackendBytes.Name + xcopy: 3072}
	if !maps.Equal(got, want) {
		t.Errorf("emitted are %v, want %v", got, want)
	}
}

type source func(metrics.Emitter)

func (s source) Emit(e metrics.Emitter) { s(e) }

// TestAttach: mdisks are synced pool by pool, and in the order of their making in a pool.
func TestAttach(t *testing.T) {
	r := newRig(t)
	var want []*Mdisk
	for _, pool := range []uint16{0, 2, 5, 2, 0} {
		d := r.b.NewMdisk(Config{Pool: pool}, newMedium(r.clock, 0))
		r.b.Attach(d)
		want = append(want, d)
	}
	at := func(i ...int) (out []*Mdisk) {
		for _, n := range i {
			out = append(out, want[n])
		}
		return out
	}
	if !slices.Equal(r.b.mdisks, at(0, 4, 1, 3, 2)) {
		t.Error("the order is another")
	}
	before := r.b.mdisks
	r.b.Detach(want[1])
	if !slices.Equal(r.b.mdisks, at(0, 4, 3, 2)) || !want[1].Detached() || before[2] != want[1] {
		t.Error("what is left is another, or who walks over the list misses one")
	}
}

// TestOperationsAreReused: after the first, an operation costs no allocation, whatever its end.
func TestOperationsAreReused(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	limited, _ := r.mdisk("n", Limits{IOPS: 1000})
	for _, x := range []*Mdisk{d, limited} {
		x.medium = quiet{} // the fake one writes everything down
	}
	nothing := func(*Op) {}
	r.b.hooks.Read, r.b.hooks.Written, r.b.hooks.Watch = nothing, nothing, func() {}
	buf := make([]byte, 4096)
	turn := func() {
		for i := range uint64(8) {
			for _, x := range []*Mdisk{d, limited} {
				w := x.Op(i%2 == 0, i*512, 512, block.ReasonStage)
				w.IO.Vec = append(w.IO.Vec, buf[:512])
				w.IO.Sums = append(w.IO.Sums, 1)
				w.Bytes[block.OriginHost] = 512
				if i%2 == 0 {
					x.Write(w)
				} else {
					x.Read(w)
				}
			}
		}
		r.step()
		r.clock.RunUntil(r.clock.Now() + second)
	}
	turn()
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("16 operations allocate %v times", n)
	}
	if len(m.batches) > 0 {
		t.Error("the fake medium was used")
	}
	for x := r.b.free; x != nil; x = x.next {
		if x.Ctx != nil || x.done != nil || x.waited || len(x.IO.Vec)+len(x.IO.Sums) > 0 || x.IO.Err != nil {
			t.Errorf("a free operation has %+v", x)
		}
	}
}

// quiet is a medium that completes everything inside Submit and notes nothing.
type quiet struct{}

func (quiet) Size() uint64     { return 1 << 20 }
func (quiet) Sync(func(error)) {}
func (quiet) Submit(ios []*block.IO) {
	for _, io := range ios {
		io.Done(io)
	}
}

// TestErrorsReachTheirOperation: an error is that of its operation, and of no later one.
func TestErrorsReachTheirOperation(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	m.fail = func(io *block.IO) error {
		if io.Off == 512 {
			return errors.New("here")
		}
		return nil
	}
	for i := range uint64(3) {
		r.do(d, true, i*512, 512)
		r.step()
	}
	if want := []string{"0: written m+0 <nil>", "0: written m+512 here", "0: written m+1024 <nil>"}; !slices.Equal(r.heard(), want) {
		t.Errorf("heard: %q", r.seen)
	}
}

// TestClasses: a medium hears what each operation is for, and until when somebody waits for it, counted from when it got it.
func TestClasses(t *testing.T) {
	want := map[block.Reason]block.Class{block.ReasonStage: block.ClassHost, block.ReasonRMW: block.ClassHost, block.ReasonWriteThrough: block.ClassHost,
		block.ReasonCopyRead: block.ClassCopy, block.ReasonDestage: block.ClassDestage, block.ReasonFlush: block.ClassDestage, block.ReasonScrub: block.ClassScrub}
	r := newRig(t)
	d, m := r.mdisk("m", Limits{IOPS: 1})
	var got []*block.IO
	m.fail = func(io *block.IO) error {
		seen := *io
		got = append(got, &seen)
		return nil
	}
	for why := range block.NumReasons {
		x := d.Op(why != block.ReasonStage, 0, 512, why)
		x.IO.Vec = append(x.IO.Vec, make([]byte, 512))
		d.start(x, func(*Op) {})
	}
	r.clock.Run()
	if len(got) != len(want) || len(got) != int(block.NumReasons) {
		t.Fatalf("%d operations were done", len(got))
	}
	for i, io := range got {
		why, deadline := block.Reason(i), int64(0)
		if want[why] <= block.ClassCopy {
			deadline = int64(i+1)*second + Patience
		}
		if io.Class != want[why] || io.Deadline != deadline {
			t.Errorf("%v: class %v, deadline %d; want %v, %d", why, io.Class, io.Deadline, want[why], deadline)
		}
	}
}
