package array

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// doubtStore has a meta store that fails chosen batches, of which all is there or nothing.
type doubtStore struct {
	block.Store
	fail func(batch []block.KV) (fails, there bool)
}

type doubtMeta struct {
	block.MetaStore
	s *doubtStore
}

func (s *doubtStore) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return doubtMeta{m, s}, err
}

func (m doubtMeta) Commit(batch []block.KV, done func(error)) {
	fails, there := false, true
	if m.s.fail != nil {
		fails, there = m.s.fail(batch)
	}
	if !fails {
		m.MetaStore.Commit(batch, done)
		return
	}
	if !there {
		done(errDeaf)
		return
	}
	m.MetaStore.Commit(batch, func(error) { done(errDeaf) })
}

func doubtRig(t *testing.T, opt Options) (*rig, *doubtStore) {
	s := &doubtStore{}
	return rigOver(t, opt, func(under block.Store) block.Store { s.Store = under; return s }), s
}

// restart is a crash of a rig over another store: its meta store works again.
func (r *rig) restart() error {
	st := r.store.Clone(r.clock)
	r.opt.Store, r.store = st, st
	a, err := Open(r.opt)
	r.a = a
	return err
}

// ends runs a change until it says how it has ended.
func ends(clock *block.Virtual, change func(done func(error))) error {
	err := errNever
	change(func(e error) { err = e })
	for errors.Is(err, errNever) && clock.Step() {
	}
	return err
}

// TestBatchesInDoubt: a batch of the meta store fails, and is there or not; nobody knows. What is committed next fits to either, so that a
// start finds a meta store that is whole, the value that was before, and all that was acknowledged.
func TestBatchesInDoubt(t *testing.T) {
	for _, objects := range []bool{true, false} {
		for _, there := range []bool{true, false} {
			for _, then := range []string{"crash", "blob", "checkpoint", "stop"} {
				t.Run(fmt.Sprintf("objects=%v/there=%v/%s", objects, there, then), func(t *testing.T) {
					r, s := doubtRig(t, Options{CheckpointBytes: 4 << 10})
					r.pool("p", PoolSpec{}, 256<<20)
					v := r.volume("v", "p", 200<<20, true)
					blob := func(name, value string) (err error) {
						err = errNever
						r.a.SetBlob(name, []byte(value), func(e error) { err = e })
						for errors.Is(err, errNever) && r.clock.Step() {
						}
						return err
					}
					if err := blob("b", "old"); err != nil {
						t.Fatal(err)
					}
					for i := range uint64(200) {
						mustOK(t, r.do(v, stamped(rng(i*2000, 3), i)))
					}
					s.fail = func(batch []block.KV) (bool, bool) {
						if isObjects := string(batch[0].Key) == "o"; isObjects != objects {
							return false, true
						}
						s.fail = nil
						return true, there
					}
					if objects {
						if err := blob("b", "new"); !errors.Is(err, errDeaf) {
							t.Fatal(err)
						}
					} else {
						r.a.checkpoint(true)
						for s.fail != nil && r.clock.Step() {
						}
						r.clock.RunUntil(r.clock.Now() + 1e9)
						if r.a.engine.Broken() == "" {
							t.Fatal("the checkpoint did not fail")
						}
					}
					switch then {
					case "blob":
						if err := blob("c", "more"); err != nil {
							t.Fatal(err)
						}
					case "checkpoint":
						r.a.checkpoint(true)
						r.clock.RunUntil(r.clock.Now() + 5e9)
					case "stop":
						ended := false
						r.a.Stop(func(error) { ended = true })
						r.clock.RunUntil(r.clock.Now() + 5e9)
						if !ended {
							t.Fatal("the array does not stop")
						}
					}
					if err := r.restart(); err != nil {
						t.Fatal(err)
					}
					if b := string(r.a.Blob("b")); b != "old" {
						t.Errorf("after an error of its change the blob is %q", b)
					}
					v = r.a.Volume("v")
					for i := range uint64(200) {
						if !r.reads(v, rng(i*2000, 3), i) {
							t.Fatalf("what was written at %d is lost", i*2000)
						}
					}
					r.check()
				})
			}
		}
	}
}

// TestNoCheckpointsWhenBroken: a checkpoint has failed while the log is half full. Nothing begins another one, volumes are told
// once, and the array stops, with an error.
func TestNoCheckpointsWhenBroken(t *testing.T) {
	r, s := doubtRig(t, Options{LogBytes: 64 << 10})
	r.pool("p", PoolSpec{}, 256<<20)
	v := r.volume("v", "p", 200<<20, true)
	told, failed := 0, 0
	v.Notify(func(e block.Event) {
		if e.Kind == block.EventHealth {
			told++
		}
	})
	s.fail = func([]block.KV) (bool, bool) { failed++; return true, false }
	for i := uint64(0); r.a.engine.Broken() == "" && i < 2000; i++ {
		r.do(v, stamped(rng(i*200, 3), i))
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if failed != 1 || told != 1 {
		t.Errorf("%d batches have failed, volumes were told %d times", failed, told)
	}
	s.fail = nil
	err := errNever
	r.a.Stop(func(e error) { err = e })
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if err == nil || errors.Is(err, errNever) {
		t.Errorf("the array stops with %v", err)
	}
	if err := r.restart(); err != nil {
		t.Fatal(err)
	}
	r.check()
}

// TestStopWaitsForTheMetaStore: a change that comes while the array stops has its answer before who stopped it may close the store.
func TestStopWaitsForTheMetaStore(t *testing.T) {
	s := &lateBatches{late: 1e6}
	r := rigOver(t, Options{}, func(under block.Store) block.Store { s.Store = under; return s })
	r.pool("p", PoolSpec{}, 64<<20)
	s.x = r.clock
	answered, ended := false, false
	r.a.Stop(func(error) {
		if ended = true; !answered {
			t.Error("the array has stopped, and a batch is on its way")
		}
	})
	r.a.SetBlob("b", []byte("1"), func(error) { answered = true })
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if !ended {
		t.Error("the array does not stop")
	}
}

// TestBatchAboveTheLimit: a change that the meta store does not take at once ends with an error that says so; it is not in doubt, and
// the array goes on.
func TestBatchAboveTheLimit(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.store = store.NewMemory(r.clock, store.MemoryOptions{BatchLimit: 64 << 10})
	r.open()
	r.pool("p", PoolSpec{}, 64<<20)
	set := func(name string, n int) (err error) {
		err = errors.New("it does not end")
		r.a.SetBlob(name, bytes.Repeat([]byte{1}, n), func(e error) { err = e })
		r.clock.Run()
		return err
	}
	for _, step := range []struct {
		name string
		n    int
		ok   bool
	}{{"a", 1000, true}, {"b", 100_000, false}, {"c", 1000, true}, {"b", 1000, true}} {
		err := set(step.name, step.n)
		if (err == nil) != step.ok || err != nil && !errors.Is(err, block.ErrBatch) {
			t.Errorf("a value of %d bytes: %v", step.n, err)
		}
	}
	v := r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, write(0, 64)))
	r.crash()
	for name, n := range map[string]int{"a": 1000, "b": 1000, "c": 1000} {
		if got := len(r.a.Blob(name)); got != n {
			t.Errorf("%s has %d bytes", name, got)
		}
	}
	r.check()
}

// TestDoubtThatAnotherChangeSettles: a batch fails, the one behind it takes the doubt away, and only then
// its own taking back fails. The array has lost nothing: it takes writes, and a start finds nothing of the
// change that failed.
func TestDoubtThatAnotherChangeSettles(t *testing.T) {
	for _, there := range []bool{true, false} {
		for _, what := range []string{"new volume", "new pool", "larger", "smaller", "deleted"} {
			t.Run(fmt.Sprintf("%s/there=%v", what, there), func(t *testing.T) { doubtIsSettled(t, what, there) })
		}
	}
}

func doubtIsSettled(t *testing.T, what string, there bool) {
	r, s := doubtRig(t, Options{})
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 8<<20, true)
	n, other := 0, errNever
	s.fail = func([]block.KV) (bool, bool) {
		if n++; n == 1 { // another change waits for its turn
			r.a.SetBlob("b", []byte("1"), func(e error) { other = e })
		}
		return n != 2, there
	}
	err := ends(r.clock, func(done func(error)) { r.begin(what, v, done) })
	if n != 3 || other != nil {
		t.Fatalf("after %d batches the other change ended %v", n, other)
	}
	if !errors.Is(err, errDeaf) || strings.Contains(err.Error(), "done or not") {
		t.Errorf("it ended %v", err)
	}
	s.fail = nil
	if h := r.a.Health(); len(h) > 0 {
		t.Errorf("health is %q", h)
	}
	mustOK(t, r.do(v, stamped(rng(0, 8), 7)))
	if err := r.restart(); err != nil {
		t.Fatal(err)
	}
	if r.a.Volume("w") != nil || r.a.Pool("x") != nil {
		t.Error("a start finds what failed")
	}
	if v = r.a.Volume("v"); v == nil || v.Spec.Sectors != 8<<11 || !r.reads(v, rng(0, 8), 7) {
		t.Error("a start does not find what was acknowledged")
	}
	if b := string(r.a.Blob("b")); b != "1" {
		t.Errorf("the other change left %q", b)
	}
	r.check()
}

// begin begins a change of a kind; v has 8 MiB.
func (r *rig) begin(what string, v *Volume, done func(error)) {
	switch what {
	case "new volume":
		r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "p", Sectors: 4096, Thin: true}, func(_ *Volume, err error) { done(err) })
	case "new pool":
		spec := PoolSpec{Name: "x", Mdisks: []MdiskSpec{{Name: "d", Size: 64 << 20}}}
		r.a.CreatePool(spec, func(_ *Pool, err error) { done(err) })
	case "larger":
		r.a.Resize(v, 32<<11, done)
	case "smaller":
		r.a.Resize(v, 4<<11, done)
	case "deleted":
		r.a.DeleteVolume(v, done)
	}
}
