package backend

import (
	"errors"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestSync: all mdisks that were written to are synced, once, and the user hears when all are.
func TestSync(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	_, n := r.mdisk("n", Limits{})
	r.do(d, true, 0, 512)
	r.step()
	m.delay = func() int64 { return second }
	r.heard()
	r.b.Sync()
	if !r.b.Syncing() || len(r.seen) > 0 {
		t.Errorf("before its end, heard: %q", r.seen)
	}
	r.clock.Run()
	r.b.Sync()
	r.clock.Run()
	if got := r.heard(); !slices.Equal(got, []string{"1: synced", "1: synced"}) || m.syncs != 1 || n.syncs != 0 || r.b.Syncing() {
		t.Errorf("heard: %q, %d and %d syncs", got, m.syncs, n.syncs)
	}
}

// TestRedo: after a sync that failed, what the user says is written again and synced until both
// succeed: after a write, what failed; after a sync, everything anew.
// hears compares what was heard since the last look.
func (r *rig) hears(when string, want ...string) {
	r.t.Helper()
	if got := r.heard(); !slices.Equal(got, want) {
		r.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// TestLateSync: a sync that does not end holds the others up for a second, and none after that, until it
// has ended. Whether it ends well or not, what was written is for the next one, or for a redo.
func TestLateSync(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r := newRig(t)
		a, ma := r.mdisk("a", Limits{})
		b, mb := r.mdisk("b", Limits{})
		r.rewrite = func(*Mdisk) ([]Rewrite, bool) { return []Rewrite{{Mask: 1}}, true }
		both := func() {
			r.do(a, true, 0, 512)
			r.do(b, true, 0, 512)
			r.step()
			r.heard()
		}
		both()
		ma.delay = func() int64 { return 25 * second }
		ma.failSync = func() error {
			if fails {
				return errDisk
			}
			return nil
		}
		r.b.Sync()
		r.clock.RunUntil(second / 2)
		r.hears("before its time")
		if !r.b.Syncing() || !r.b.Busy() {
			t.Error("nothing is under way")
		}
		r.clock.RunUntil(2 * second)
		r.hears("late", "2: late a", "2: synced")
		ma.delay = nil
		both()
		r.b.Sync()
		r.hears("the others", "2: synced")
		if ma.syncs != 1 || mb.syncs != 2 {
			t.Errorf("%d and %d syncs", ma.syncs, mb.syncs)
		}
		r.clock.RunUntil(22 * second)
		r.hears("silent", "21: a is silent", "21: overdue a medium error on write", "22: overdue a medium error on write")
		if r.b.Busy() {
			t.Error("who stops waits for what is silent")
		}
		r.clock.RunUntil(24*second + second/2)
		r.heard()
		r.clock.RunUntil(25 * second)
		want := []string{"25: a works", "25: a is not late"}
		if fails {
			want = append(want, "25: lost a", "25: a fails")
		}
		r.hears("it has ended", want...)
		r.b.Sync()
		r.hears("the next one", "25: synced")
		if fails != (ma.syncs == 1) {
			t.Errorf("%d syncs, and it fails: %v", ma.syncs, fails)
		}
		ma.failSync = nil
		r.clock.RunUntil(40 * second)
		if a.Redoing() || a.sync.late || a.sync.due {
			t.Errorf("it redoes: %v, is late: %v, has to be synced: %v", a.Redoing(), a.sync.late, a.sync.due)
		}
	}
}

func TestRedo(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	e, n := r.mdisk("n", Limits{})
	ready := 0
	data, sums := stamped(7)
	r.rewrite = func(*Mdisk) ([]Rewrite, bool) {
		ready++
		return []Rewrite{{Off: 8192, Mask: 0b11100111, Data: data, Sums: sums}, {Off: 0, Mask: 1}}, ready > 1
	}
	r.do(d, true, 0, 512)
	r.do(e, true, 0, 512)
	r.step()
	fails := []error{errDisk, errDisk}
	m.failSync = func() (err error) {
		if len(fails) > 0 {
			err, fails = fails[0], fails[1:]
		}
		return err
	}
	writes := 0
	m.fail = func(io *block.IO) error {
		if io.Class != block.ClassRebuild || io.Deadline != 0 {
			t.Errorf("a redo writes as %v with deadline %d", io.Class, io.Deadline)
		}
		if writes++; writes == 1 && io.Off != 8192 {
			t.Errorf("the first write is at %d", io.Off)
		}
		if writes == 2 { // the second run of the first page
			return errors.New("second")
		}
		return nil
	}
	m.batches = nil
	r.heard()
	r.b.Sync()
	if !d.Redoing() || e.Redoing() {
		t.Fatal("it does not redo, or the other one does")
	}
	d.Works() // of a write that was under way still
	if since, _ := d.Failing(); since == 0 {
		t.Error("it works while it redoes")
	}
	r.do(e, true, 0, 512)
	r.step()
	r.b.Sync()
	r.clock.Run()
	var got []string
	for _, s := range r.heard() {
		if s != "0: written n+0 <nil>" {
			got = append(got, s)
		}
	}
	// It waits 1 s, finds it not ready, writes, waits 1 s for the failed one, syncs, waits 1 s, and does it all again.
	if want := []string{"0: lost m", "0: m fails", "0: synced", "0: synced", "1: rewrite m", "1: rewrite m", "3: rewrite m", "3: m works", "3: rewritten m"}; !slices.Equal(got, want) {
		t.Errorf("heard: %q", got)
	}
	var offs []uint64
	for _, b := range m.batches {
		for _, x := range b {
			if offs = append(offs, x.off/512); !x.write {
				t.Error("it read")
			}
		}
	}
	// A page is written again as a whole.
	if want := []uint64{16, 21, 0, 16, 21, 16, 21, 0}; !slices.Equal(offs, want) {
		t.Errorf("written are sectors %v, want %v", offs, want)
	}
	if d.Redoing() || m.syncs != 3 || n.syncs != 2 {
		t.Errorf("redoing: %v; %d and %d syncs", d.Redoing(), m.syncs, n.syncs)
	}
	for s := range uint64(8) {
		v, _ := versionOf(m.durable[8192+s*512:])
		if want := uint64(7 * (0b11100111 >> s & 1)); v != want {
			t.Errorf("sector %d is of version %d, not %d", s, v, want)
		}
	}
	if ops, bytes := d.Moved(true, block.OriginRebuild, block.ReasonDestage); ops != 7 || bytes != (4+6+7)*512 {
		t.Errorf("%d operations of %d bytes are counted as rebuilt", ops, bytes)
	}
}

// TestRedoOfADetachedMdisk: when its pool goes, a redo ends without a word, whatever it is doing.
func TestRedoOfADetachedMdisk(t *testing.T) {
	for name, c := range map[string]struct {
		ready bool
		at    int64 // ms after the failed sync
		sync  error // of the sync behind the writes
	}{
		"before the first try": {true, 500, nil},
		"not ready":            {false, 1005, nil},
		"writing":              {true, 1050, nil},
		"syncing":              {true, 1150, nil},
		"syncing in vain":      {true, 1150, errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d, m := r.mdisk("m", Limits{})
			r.rewrite = func(*Mdisk) ([]Rewrite, bool) { return []Rewrite{{Mask: 1}}, c.ready }
			r.do(d, true, 0, 512)
			r.step()
			m.failSync = func() error { return errDisk }
			r.b.Sync()
			m.failSync = func() error { return c.sync }
			m.delay = func() int64 { return second / 10 }
			r.clock.RunUntil(c.at * second / 1000)
			if !d.Redoing() || c.at > 1100 && m.syncs != 2 {
				t.Fatalf("it redoes: %v, %d syncs", d.Redoing(), m.syncs)
			}
			r.b.Detach(d)
			r.heard()
			r.clock.Run()
			if got := r.heard(); len(got) > 0 || d.Redoing() || d.depth != 0 {
				t.Errorf("heard: %q; it redoes: %v, %d operations are left", got, d.Redoing(), d.depth)
			}
		})
	}
}

// TestRedoOfAnMdiskThatFails: a redo begins at once, and is tried less and less often, however long other things have failed
// before: nothing else is written until it ends.
func TestRedoOfAnMdiskThatFails(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	r.rewrite = func(*Mdisk) ([]Rewrite, bool) { return []Rewrite{{Mask: 1}}, true }
	d.Failed(block.ErrFull)
	r.clock.RunUntil(100 * second)
	r.do(d, true, 0, 512)
	r.step()
	fails := 3
	m.failSync = func() error {
		if fails--; fails >= 0 {
			return errDisk
		}
		return nil
	}
	var at []int64
	m.fail = func(*block.IO) error {
		at = append(at, r.clock.Now()/second)
		return nil
	}
	r.b.Sync()
	r.clock.Run()
	if want := []int64{101, 102, 103}; d.Redoing() || !slices.Equal(at, want) {
		t.Errorf("it redoes: %v, and has written at %v s, not at %v", d.Redoing(), at, want)
	}
}

// TestRedoOfNothing: what a failed sync may have lost may be nothing that anybody needs.
func TestRedoOfNothing(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	r.rewrite = func(*Mdisk) ([]Rewrite, bool) { return nil, true }
	r.do(d, true, 0, 512)
	r.step()
	m.failSync = func() error { return errDisk }
	r.b.Sync()
	m.failSync = nil
	r.clock.Run()
	if d.Redoing() || m.syncs != 2 || d.Failures() != 1 {
		t.Errorf("it redoes: %v, %d syncs, %d failures", d.Redoing(), m.syncs, d.Failures())
	}
}

// portionRig has a redo of 2,000 single sectors under way, which began when its sync failed, at second 1.
func portionRig(t *testing.T) (*rig, *Mdisk, *medium) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	data, sums := stamped(7)
	r.rewrite = func(*Mdisk) (todo []Rewrite, ready bool) {
		for i := range uint64(2000) {
			todo = append(todo, Rewrite{Off: i * block.SectorSize, Mask: 1, Data: data, Sums: sums})
		}
		return todo, true
	}
	r.do(d, true, 0, 512)
	r.step()
	m.failSync = func() error { return errDisk }
	r.b.Sync()
	m.failSync = nil
	m.delay = func() int64 { return second / 100 }
	return r, d, m
}

// TestRedoInPortions: however much a redo has to write, it hands over a part of it at a time, and all of it
// in the end, also where some of it fails.
func TestRedoInPortions(t *testing.T) {
	r, d, m := portionRig(t)
	tries, most := 0, 0
	m.fail = func(io *block.IO) error {
		most = max(most, d.depth)
		if tries++; tries%100 == 0 {
			return errDisk
		}
		return nil
	}
	r.clock.RunUntil(20 * second)
	if most != redoPages {
		t.Errorf("%d writes are under way at a time, not %d", most, redoPages)
	}
	if want := 2000 + 20; d.Redoing() || tries != want || m.syncs != 2 {
		t.Errorf("it redoes: %v, %d writes, not %d, %d syncs", d.Redoing(), tries, want, m.syncs)
	}
	for s := range 2000 {
		if v, _ := versionOf(m.durable[s*block.SectorSize:]); v != 7 {
			t.Fatalf("sector %d is of version %d", s, v)
		}
	}
}

// TestRedoThatEndsEarly: a redo whose mdisk goes with its pool, or whose array stops, hands over no more.
// What it has ends, and the array can wait for that.
func TestRedoThatEndsEarly(t *testing.T) {
	for name, end := range map[string]func(r *rig, d *Mdisk){
		"detached": func(r *rig, d *Mdisk) { r.b.Detach(d) },
		"stopped":  func(r *rig, d *Mdisk) { r.b.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			r, d, m := portionRig(t)
			r.clock.RunUntil(second + second/200)
			if d.depth != redoPages || !r.b.Busy() {
				t.Fatalf("%d writes are under way", d.depth)
			}
			m.batches = nil
			end(r, d)
			r.clock.RunUntil(60 * second)
			if len(m.batches) != 0 || d.depth != 0 || r.b.Busy() {
				t.Errorf("%d batches came behind; %d writes are under way; busy: %v", len(m.batches), d.depth, r.b.Busy())
			}
		})
	}
}

// TestStopForgetsWhatLimitsHold: an array that stops does not wait for what a slow mdisk is not even given.
func TestStopForgetsWhatLimitsHold(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{IOPS: 1})
	m.delay = func() int64 { return second / 2 }
	for range 100 {
		r.do(d, true, 0, 512)
	}
	r.clock.RunUntil(3*second + second/4)
	if r.b.Stop(); !r.b.Busy() {
		t.Error("nothing is under way")
	}
	r.clock.RunUntil(4 * second)
	if r.b.Busy() {
		t.Error("it waits for its limits")
	}
	given := len(m.batches)
	r.clock.RunUntil(200 * second)
	if n := len(m.batches) - given; n != 0 {
		t.Errorf("%d batches came behind", n)
	}
}

// TestNobodyWaitsForASilentMdisk: what stops does not wait for an mdisk that does not answer, longer than
// anybody waits.
func TestNobodyWaitsForASilentMdisk(t *testing.T) {
	r := newRig(t)
	d, m := r.mdisk("m", Limits{})
	m.silent = true
	r.do(d, true, 0, 512)
	r.step()
	r.b.Stop()
	r.clock.RunUntil(Patience - 1)
	if !r.b.Busy() {
		t.Error("it counts as silent at once")
	}
	r.clock.RunUntil(Patience)
	if r.b.Busy() {
		t.Error("it is waited for for ever")
	}
}
