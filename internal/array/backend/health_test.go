package backend

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestFailuresBackOff: the longer an mdisk fails, the less often it is tried; its user hears of the
// first failure, and when it works again.
func TestFailuresBackOff(t *testing.T) {
	r := newRig(t)
	d, _ := r.mdisk("m", Limits{})
	r.clock.RunUntil(second)
	for _, c := range []struct{ after, wait int64 }{{0, 1}, {1, 1}, {3, 2}, {4, 4}, {22, 15}, {30, 30}, {100, 30}} {
		r.clock.RunUntil(r.clock.Now() + c.after*second)
		if got := d.Failed(errDisk); got != c.wait*second {
			t.Errorf("after %d s more it waits %d ms, not %d s", c.after, got/1e6, c.wait)
		}
	}
	if since, err := d.Failing(); since != second || err != errDisk || d.Failures() != 7 {
		t.Errorf("it fails since %d with %v, %d times", since, err, d.Failures())
	}
	d.Works()
	d.Works()
	if since, err := d.Failing(); since != 0 || err != nil {
		t.Errorf("it still fails since %d with %v", since, err)
	}
	var turned []string
	for _, s := range r.heard() {
		if strings.HasSuffix(s, "m fails") || strings.HasSuffix(s, "m works") {
			turned = append(turned, s)
		}
	}
	if want := []string{"1: m fails", "161: m works"}; !slices.Equal(turned, want) {
		t.Errorf("heard: %q", turned)
	}
}

// TestOverdue: who waits for an mdisk that is silent, away or fails hears that when it has lasted as
// long as anybody waits, and what is wrong.
func TestOverdue(t *testing.T) {
	for name, c := range map[string]struct {
		begin         func(*rig, *Mdisk, *medium)
		before, after []string // what is heard by then
		absent        bool
	}{
		"well": {func(*rig, *Mdisk, *medium) {}, nil, nil, false},
		"silent": {func(r *rig, d *Mdisk, m *medium) {
			m.silent = true
			r.do(d, true, 0, 512)
			r.step()
		}, nil, []string{"m is silent", "overdue m medium error on write"}, true},
		"away":    {func(_ *rig, d *Mdisk, _ *medium) { d.SetOffline(true) }, nil, []string{"overdue m offline"}, true},
		"failing": {func(_ *rig, d *Mdisk, _ *medium) { d.Failed(errDisk) }, []string{"m fails"}, []string{"overdue m medium error on write"}, true},
		"full": {func(_ *rig, d *Mdisk, _ *medium) { d.Failed(fmt.Errorf("mdisk: %w", block.ErrFull)) },
			[]string{"m fails"}, []string{"overdue m no space"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d, m := r.mdisk("m", Limits{})
			r.watching = true // it looks when the test says so
			c.begin(r, d, m)
			hear := func(at int64, want []string, absent bool) {
				t.Helper()
				r.clock.RunUntil(at)
				wrong, gone := r.b.Look(at)
				var got []string
				for _, s := range r.heard() {
					got = append(got, s[len(fmt.Sprint(at/second))+2:])
				}
				if !slices.Equal(got, want) || gone != absent || absent && !wrong {
					t.Errorf("at %d s: heard %q, want %q; trouble %v, absent %v", at/second, got, want, wrong, gone)
				}
			}
			r.clock.RunUntil(0)
			hear(1, c.before, false)
			hear(Patience-1, nil, false)
			hear(Patience+1, c.after, c.absent)
			hear(Patience+RetryTime, c.after[max(0, len(c.after)-1):], c.absent) // it has turned once
			r.b.Detach(d)
			hear(Patience+2*RetryTime, nil, false)
		})
	}
}

// TestDetachWhileLooking: who hears of one mdisk may take the pool of another out.
func TestDetachWhileLooking(t *testing.T) {
	r := newRig(t)
	d, _ := r.mdisk("m", Limits{})
	e, _ := r.mdisk("n", Limits{})
	d.SetOffline(true)
	e.SetOffline(true)
	var heard []*Mdisk
	r.b.hooks.Overdue = func(x *Mdisk, _ block.Status) {
		heard = append(heard, x)
		r.b.Detach(e)
	}
	r.clock.RunUntil(Patience)
	if r.b.Look(Patience); !slices.Equal(heard, []*Mdisk{d}) {
		t.Errorf("heard of %d mdisks", len(heard))
	}
}

// TestSilence: a medium is silent while it ends nothing of what it has; what it ends inside Submit
// says nothing of the disk.
func TestSilence(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	m.silent = true
	r.do(d, true, 0, 512)
	r.step()
	r.clock.RunUntil(Patience - 1)
	m.silent = false
	r.do(d, true, 512, 512)
	r.step()
	r.clock.RunUntil(Patience)
	if got := d.Silent(Patience); got != Patience {
		t.Errorf("after it ended something from memory it is silent for %d ns", got)
	}
	m.silent = true
	r.do(d, true, 1024, 512)
	r.step()
	m.held[0].Done(m.held[0])
	if got := d.Silent(2*Patience - 1); got != 0 {
		t.Errorf("after it ended something it is silent for %d ns", got)
	}
	if got := d.Silent(2 * Patience); got != Patience {
		t.Errorf("then it is silent for %d ns", got)
	}
	m.held[1].Done(m.held[1])
	if got := d.Silent(5 * Patience); got != 0 {
		t.Errorf("without work it is silent for %d ns", got)
	}
	r.clock.RunUntil(5 * Patience)
	r.do(d, true, 0, 512)
	r.step()
	if got := d.Silent(6*Patience - 1); got != 0 {
		t.Errorf("with work that is new it is silent for %d ns", got)
	}
}

// TestSilentWrites: that a medium is silent is told though nobody waits for what it has, once, and when
// it is over.
func TestSilentWrites(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	m.silent = true
	r.do(d, true, 0, 512)
	r.step()
	r.clock.RunUntil(25*second - 1)
	var got []string
	for _, s := range r.heard() {
		if !strings.Contains(s, "overdue") {
			got = append(got, s)
		}
	}
	m.answer()
	r.clock.RunUntil(60 * second)
	if got = append(got, r.heard()...); !slices.Equal(got, []string{"20: m is silent", "24: m works", "24: written m+0 <nil>"}) {
		t.Errorf("heard: %q", got)
	}
}

// TestAbandonedReads: reads of a silent medium are given up, in the order of their start, when they
// have waited long enough; those that nobody wants any more sooner. What the medium answers to them
// is only counted, and leaves their buffers alone.
func TestAbandonedReads(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	m.silent = true
	buf := make([]byte, 5*512)
	read := func(i uint64) *Op {
		x := d.Op(false, i*512, 512, block.ReasonStage)
		x.Ctx, x.Bytes[block.OriginHost] = i, 512
		x.IO.Vec = append(x.IO.Vec, buf[i*512:][:512])
		d.Read(x)
		r.step()
		return x
	}
	copy(m.content, "contents")
	read(0)
	r.unwanted[read(1)] = true
	for i := range uint64(3) { // in the place of the one that leaves comes the last one
		r.clock.RunUntil(int64(i+1) * second / 4)
		read(2 + i)
	}
	r.do(d, true, 8192, 512)
	r.step()
	heard := func(until int64, want ...string) {
		t.Helper()
		r.clock.RunUntil(until)
		got := slices.DeleteFunc(r.heard(), func(s string) bool { return strings.Contains(s, "overdue") })
		if !slices.Equal(got, want) {
			t.Fatalf("heard: %q, want %q", got, want)
		}
	}
	heard(12*second, "5: abandoned m+512 1")
	heard(30*second, "20: m is silent", "20: abandoned m+0 0", "21: abandoned m+1024 2", "21: abandoned m+1536 3", "21: abandoned m+2048 4")
	if d.depth != 6 || d.Failures() != 5 || r.b.WaitedFor() != 0 {
		t.Errorf("%d operations are under way, %d are waited for, %d failed", d.depth, r.b.WaitedFor(), d.Failures())
	}
	m.answer()
	if got := r.heard(); !slices.Equal(got, []string{"30: m works", "30: written m+8192 <nil>"}) || d.depth != 0 {
		t.Errorf("heard: %q, %d are under way", got, d.depth)
	}
	if ops, _ := d.Moved(false, block.OriginHost, block.ReasonStage); ops != 5 {
		t.Errorf("%d reads are counted", ops)
	}
	if !slices.Equal(buf, make([]byte, len(buf))) {
		t.Error("a read that was given up moved data")
	}
}

// TestReadsThatCannotBeAbandoned: a medium that keeps its buffers keeps who reads waiting; so does one
// that has ended something meanwhile, and a read that the limits hold back.
func TestReadsThatCannotBeAbandoned(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	d.medium = deaf{m}
	slow, sm := r.mdisk("slow", Limits{Bandwidth: 16})
	busy, bm := r.mdisk("busy", Limits{})
	m.silent, sm.silent, bm.silent = true, true, true
	for _, x := range []*Mdisk{d, slow, slow, busy} {
		r.do(x, false, 0, 512)
	}
	for range 8 {
		r.do(busy, true, 0, 512)
	}
	r.step()
	for i := range 8 { // one every 8 s
		r.clock.RunUntil(int64(i+1) * 8 * second)
		io := bm.held[1+i]
		io.Done(io)
	}
	for _, s := range r.heard() {
		if strings.Contains(s, "abandoned") && s != "52: abandoned slow+0 <nil>" {
			t.Error(s)
		}
	}
	if r.b.WaitedFor() != 3 {
		t.Errorf("%d reads are waited for", r.b.WaitedFor())
	}
}
