package admin

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
)

var errRefused = errors.New("the disk takes nothing")

// refusingStore has a meta store that refuses batches, behind some that pass.
type refusingStore struct {
	block.Store
	pass, refuse atomic.Int32
}

type refusingMeta struct {
	block.MetaStore
	s *refusingStore
}

func (s *refusingStore) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return refusingMeta{m, s}, err
}

func (m refusingMeta) Commit(batch []block.KV, done func(error)) {
	if m.s.pass.Add(-1) < 0 && m.s.refuse.Add(-1) >= 0 {
		done(errRefused)
		return
	}
	m.MetaStore.Commit(batch, done)
}

// refusedDaemon is a daemon without doors over such a store, with the volumes a and b.
func refusedDaemon(t *testing.T) (*daemon, *refusingStore) {
	t.Helper()
	return daemonWith(t, scsi.Options{})
}

// daemonWith is refusedDaemon with a target of these options.
func daemonWith(t *testing.T, opt scsi.Options) (*daemon, *refusingStore) {
	t.Helper()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	s := &refusingStore{Store: store.NewMemory(exec, store.MemoryOptions{})}
	d := newDaemon(nil, Environment{Log: slog.New(slog.DiscardHandler)})
	exec.Lock()
	a, err := array.Open(array.Options{Exec: exec, Store: s, CacheBytes: 4 << 20})
	exec.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	opt.Name, opt.Exec = "iqn.x:y", exec
	g := &ioGroup{log: d.log, closing: d.closing, exec: exec, array: a, target: scsi.NewTarget(opt)}
	if g.exports, err = newExports(a, g.target); err != nil {
		t.Fatal(err)
	}
	d.groups, d.data = append(d.groups, g), &folder{memory: true}
	if _, err := d.addPool(NewPool{Name: "p", Mdisks: []NewMdisk{{Name: "m", Size: 1 << 30}}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := d.addVolume(NewVolume{Name: name, Pool: "p", Size: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	return d, s
}

// kept returns the exports of which the array knows: those that the next start shows.
func (d *daemon) kept(t *testing.T) []Export {
	t.Helper()
	d.groups[0].exec.Lock()
	defer d.groups[0].exec.Unlock()
	x, err := newExports(d.groups[0].array, scsi.NewTarget(scsi.Options{Name: "iqn.x:y", Exec: d.groups[0].exec}))
	if err != nil {
		t.Fatal(err)
	}
	var out []Export
	for _, v := range d.groups[0].array.Volumes() {
		out = append(out, x.list(v)...)
	}
	return out
}

// TestChangesThatCannotBeKept: what the array cannot keep is as it was, for those who ask, for hosts, and for the next
// start, also when a later change can be kept.
func TestChangesThatCannotBeKept(t *testing.T) {
	same := func(x, y Export) bool { return x.Volume == y.Volume && x.LUN == y.LUN }
	for name, change := range map[string]func(d *daemon) error{
		"add export":    func(d *daemon) error { _, err := d.addExport(Export{Volume: "b", LUN: 5}); return err },
		"remove export": func(d *daemon) error { return d.removeExport("a", -1) },
		"make volume": func(d *daemon) error {
			_, err := d.groups[0].adopt(d.groups[0].array.Volume("b"), unitSpec{}, exportSpec{LUN: 6})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, s := refusedDaemon(t)
			for lun := range 2 {
				if _, err := d.addExport(Export{Volume: "a", LUN: lun}); err != nil {
					t.Fatal(err)
				}
			}
			had := d.listExports()
			s.refuse.Store(1)
			if err := change(d); !errors.Is(err, errRefused) {
				t.Fatalf("it ended %v", err)
			}
			check := func(what string) {
				t.Helper()
				if got := d.listExports(); !slices.EqualFunc(got, had, same) {
					t.Errorf("%s: the exports are %v, they were %v", what, got, had)
				}
				d.groups[0].exec.Lock()
				n := len(d.groups[0].exports.shown[""])
				d.groups[0].exec.Unlock()
				if n != len(had) {
					t.Errorf("%s: hosts see %d LUNs, they saw %d", what, n, len(had))
				}
				if got := d.kept(t); !slices.EqualFunc(got, had, same) {
					t.Errorf("%s: the next start has %v", what, got)
				}
			}
			check("after the error")
			if _, err := d.addExport(Export{Volume: "a", LUN: 7}); err != nil {
				t.Fatal(err)
			}
			had = append(had, Export{Volume: "a", LUN: 7})
			check("after another change")
		})
	}
	t.Run("policy", func(t *testing.T) {
		d, s := refusedDaemon(t)
		was, depth := d.policy(), 7
		s.refuse.Store(1)
		if _, err := d.changePolicy(PolicyChange{DestageDepth: &depth}); !errors.Is(err, errRefused) {
			t.Fatalf("it ended %v", err)
		}
		if got := d.policy(); got != was {
			t.Errorf("the policy is %+v, it was %+v", got, was)
		}
	})
	t.Run("counters", func(t *testing.T) {
		d, s := refusedDaemon(t)
		s.refuse.Store(1)
		if err := d.saveCounters(); !errors.Is(err, errRefused) {
			t.Fatalf("it ended %v", err)
		}
		if err := d.saveCounters(); err != nil {
			t.Fatal(err)
		}
		d.groups[0].exec.Lock()
		defer d.groups[0].exec.Unlock()
		if d.groups[0].array.Blob(blobCounters) == nil {
			t.Error("what could not be saved once is taken for saved")
		}
	})
	t.Run("deleted volume", func(t *testing.T) {
		d, s := refusedDaemon(t)
		if _, err := d.addExport(Export{Volume: "a", LUN: 0}); err != nil {
			t.Fatal(err)
		}
		s.pass.Store(1) // the deletion itself is durable
		s.refuse.Store(100)
		if err := d.deleteVolume("a", true); err != nil || len(d.listVolumes()) != 1 || len(d.kept(t)) != 0 {
			t.Errorf("it ended %v, the next start has %v", err, d.kept(t))
		}
	})
}

// TestStatesOfDeletedVolumesGo: the process dies when a volume was deleted, and what is kept of its unit was
// not. The next start removes that, and leaves what other volumes have.
func TestStatesOfDeletedVolumesGo(t *testing.T) {
	c := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
	r := start(t, c)
	v, s := r.volumeOf("v"), r.volumeOf("s")
	state := func(r *running, v *array.Volume) bool {
		r.d.groups[0].exec.Lock()
		defer r.d.groups[0].exec.Unlock()
		return slices.Contains(r.d.groups[0].array.BlobNames(), stateBlob(v.ID()))
	}
	kept := []byte(`{"reservations":{}}`)
	for _, v := range []*array.Volume{v, s} {
		if err := r.d.groups[0].await(func(done func(error)) { r.d.groups[0].array.SetBlob(stateBlob(v.ID()), kept, done) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.d.groups[0].await(func(done func(error)) { r.d.groups[0].array.DeleteVolume(s, done) }); err != nil {
		t.Fatal(err)
	}
	if r.stop(); !state(r, s) {
		t.Fatal("the volume's end took what is kept of its unit")
	}
	for range 2 { // it is gone for good
		if r = start(t, parse(t, testConfig, c.Data)); !state(r, r.volumeOf("v")) {
			t.Error("what is kept of a volume that is there has gone")
		}
		wait := time.Now().Add(startTimeout)
		for state(r, s) && time.Now().Before(wait) {
			time.Sleep(10 * time.Millisecond)
		}
		if state(r, s) {
			t.Error("what was kept of a deleted volume's unit is still there")
		}
		r.stop()
	}
}
