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
