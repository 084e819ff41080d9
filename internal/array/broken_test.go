package array

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/block"
)

func (r *rig) tryPool(name, mdisk string, size uint64) error {
	return ends(r.clock, func(done func(error)) {
		spec := PoolSpec{Name: name, Mdisks: []MdiskSpec{{Name: mdisk, Size: size}}}
		r.a.CreatePool(spec, func(_ *Pool, err error) { done(err) })
	})
}

// failsWith has the batch fail that makes a pool, behind the one that announces it, and all that come then. The store has the
// first of these or not.
func failsWith(pool string, there bool) func([]block.KV) (fails, there bool) {
	n := 0
	return func(batch []block.KV) (bool, bool) {
		for _, e := range batch {
			if n == 0 && string(e.Key) == "o" && !bytes.Contains(e.Value, []byte(`"name":"`+pool+`"`)) {
				return false, true
			}
		}
		n++
		return true, there && n == 1
	}
}

// TestFilesOfADoubtfulPool: the batch that makes a pool fails, and the store has it or not; nor can it be
// taken back. Nobody gets the files meanwhile, neither under the same name nor under one that means the
// same files: the next start finds the pool with what it was made with, or does not find it.
func TestFilesOfADoubtfulPool(t *testing.T) {
	for _, there := range []bool{true, false} {
		for _, next := range [][2]string{{"a.b", "c"}, {"a", "b.c"}} {
			r, s := doubtRig(t, Options{})
			r.pool("q", PoolSpec{}, 64<<20)
			s.fail = failsWith("a.b", there)
			if err := r.tryPool("a.b", "c", 64<<20); !errors.Is(err, errDeaf) || !strings.Contains(err.Error(), "done or not") {
				t.Fatalf("the first one ended %v", err)
			}
			s.fail = func([]block.KV) (bool, bool) { return true, false }
			if err := r.tryPool(next[0], next[1], 128<<20); err == nil || errors.Is(err, errDeaf) {
				t.Errorf("there %v: pool %s with mdisk %s ended %v", there, next[0], next[1], err)
			}
			if err := r.restart(); err != nil {
				t.Fatalf("there %v, pool %s: the array does not start: %v", there, next[0], err)
			}
			if p := r.a.Pool("a.b"); (p != nil) != there || p != nil && p.Mdisks[0].Size() != 64<<20 {
				t.Errorf("there %v: the start finds %v", there, p)
			}
			if !there { // its files are in nobody's way
				if err := r.tryPool(next[0], next[1], 128<<20); err != nil {
					t.Errorf("after a start pool %s ended %v", next[0], err)
				}
			}
			r.check()
		}
	}
}

// TestBrokenArrayMakesNoPool: an array that takes no writes any more makes no pool and resizes nothing
// either, and says why: both have effects before they are durable. Nothing goes to the store.
func TestBrokenArrayMakesNoPool(t *testing.T) {
	r, s := doubtRig(t, Options{})
	p := r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 8<<20, true)
	mustOK(t, r.do(v, stamped(rng(0, 8), 1)))
	r.a.engine.BreakDown("a test broke it")
	batches := 0
	s.fail = func([]block.KV) (bool, bool) { batches++; return false, true }
	pool := r.tryPool("x", "d", 64<<20)
	resize := ends(r.clock, func(done func(error)) { r.a.Resize(v, 4096, done) })
	for what, err := range map[string]error{"pool": pool, "resize": resize} {
		if err == nil || !strings.Contains(err.Error(), "changes are refused: a test broke it") {
			t.Errorf("%s ended %v", what, err)
		}
	}
	if batches != 0 || len(r.a.Pools()) != 1 || r.a.Pools()[0] != p || v.Spec.Sectors != 8<<11 {
		t.Errorf("the array has not what it had, and %d batches went to the meta store", batches)
	}
	if !r.reads(v, rng(0, 8), 1) {
		t.Error("what was written cannot be read")
	}
}

// TestChangesOfABrokenArray: a pool is in doubt, and the array takes no writes. What acts only when it is
// durable goes on when the meta store works again, and settles the doubt: the array takes writes, makes
// pools of that name and changes sizes as before, and the next start finds what was acknowledged, and not
// the pool that failed.
func TestChangesOfABrokenArray(t *testing.T) {
	for _, what := range []string{"new volume", "volume deleted", "pool deleted", "value"} {
		r, s := doubtRig(t, Options{})
		r.pool("p", PoolSpec{}, 64<<20)
		q := r.pool("q", PoolSpec{}, 64<<20)
		v := r.volume("v", "p", 8<<20, true)
		s.fail = failsWith("x", true)
		if err := r.tryPool("x", "d", 64<<20); err == nil || r.a.engine.Broken() == "" {
			t.Fatalf("the pool ended %v", err)
		}
		s.fail = nil
		err := ends(r.clock, func(done func(error)) {
			switch what {
			case "new volume":
				r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "p", Sectors: 4096, Thin: true}, func(_ *Volume, err error) { done(err) })
			case "volume deleted":
				r.a.DeleteVolume(v, done)
			case "pool deleted":
				r.a.DeletePool(q, done)
			case "value":
				r.a.SetBlob("b", []byte("1"), done)
			}
		})
		if err != nil || len(r.a.Health()) > 0 {
			t.Errorf("%s ended %v, health is %q", what, err, r.a.Health())
		}
		if what != "volume deleted" {
			mustOK(t, r.do(v, stamped(rng(0, 8), 7)))
			if err := ends(r.clock, func(done func(error)) { r.a.Resize(v, 32<<11, done) }); err != nil {
				t.Errorf("%s: then a larger size ended %v", what, err)
			}
		}
		r.clock.Run()
		if n := r.a.manager.Media.Disks(); n != 0 {
			t.Errorf("%s: the maker is at work on %d mdisks", what, n)
		}
		if err := r.tryPool("y", "d", 64<<20); err != nil {
			t.Errorf("%s: then a pool ended %v", what, err)
		}
		if err := r.restart(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r.a.Pool("x") != nil || (r.a.Pool("q") == nil) != (what == "pool deleted") || (r.a.Volume("v") == nil) != (what == "volume deleted") ||
			(r.a.Volume("w") != nil) != (what == "new volume") || (string(r.a.Blob("b")) == "1") != (what == "value") {
			t.Errorf("%s: a start finds pools %v, volumes %v and %q", what, r.a.Pools(), r.a.Volumes(), r.a.Blob("b"))
		}
		if v = r.a.Volume("v"); v != nil && !r.reads(v, rng(0, 8), 7) {
			t.Errorf("%s: what was written then is lost", what)
		}
		if err := r.tryPool("x", "d", 128<<20); err != nil || r.a.Pool("y") == nil {
			t.Errorf("%s: after a start pool x ended %v, y is %v", what, err, r.a.Pool("y"))
		}
		r.check()
	}
}

// TestPoolIsRefusedWhenTheArrayBreaksMeanwhile: the array breaks while the mdisks of a pool are made. The
// pool is refused, and its files go. It was announced, and no more.
func TestPoolIsRefusedWhenTheArrayBreaksMeanwhile(t *testing.T) {
	r, s := doubtRig(t, Options{})
	r.pool("p", PoolSpec{}, 64<<20)
	late := &lateStore{r.store, r.clock}
	r.a.manager.Media = media.NewMaker(late)
	batches := 0
	s.fail = func([]block.KV) (bool, bool) { batches++; return false, true }
	err := ends(r.clock, func(done func(error)) {
		r.a.CreatePool(PoolSpec{Name: "x", Mdisks: []MdiskSpec{{Name: "d", Size: 64 << 20}}}, func(_ *Pool, err error) { done(err) })
		r.a.engine.BreakDown("a test broke it")
	})
	if err == nil || !strings.Contains(err.Error(), "changes are refused") || batches != 1 || r.a.Pool("x") != nil {
		t.Errorf("it ended %v after %d batches, the pool is %v", err, batches, r.a.Pool("x"))
	}
	if n := r.a.manager.Media.Disks(); n != 0 {
		t.Errorf("the maker is at work on %d mdisks", n)
	}
}

// TestFilesOfAPoolThatIsBeingDeleted: nobody gets the files of a pool while its deletion is not durable: it
// may fail, and then the pool is what it was.
func TestFilesOfAPoolThatIsBeingDeleted(t *testing.T) {
	for _, fails := range []bool{true, false} {
		r, s := doubtRig(t, Options{})
		r.pool("q", PoolSpec{}, 64<<20)
		if err := r.tryPool("a", "b.c", 64<<20); err != nil {
			t.Fatal(err)
		}
		other := errNever
		s.fail = func([]block.KV) (bool, bool) {
			s.fail = nil
			r.a.CreatePool(PoolSpec{Name: "a.b", Mdisks: []MdiskSpec{{Name: "c", Size: 128 << 20}}}, func(_ *Pool, err error) { other = err })
			return fails, false
		}
		err := ends(r.clock, func(done func(error)) { r.a.DeletePool(r.a.Pool("a"), done) })
		r.clock.Run()
		if (err != nil) != fails || other == nil || errors.Is(other, errNever) {
			t.Errorf("fails %v: the deletion ended %v, and a pool of the same files %v", fails, err, other)
		}
		if n := r.a.manager.Media.Disks(); n != 0 {
			t.Errorf("fails %v: the maker is at work on %d mdisks", fails, n)
		}
		if err := r.tryPool("a.b", "c", 128<<20); (err != nil) != fails {
			t.Errorf("fails %v: afterwards a pool of the same files ended %v", fails, err)
		}
	}
}

// TestDoubtsAreSettled: a change fails and cannot be taken back, so that a start may find it done or not, and
// writes are refused. The next change that is durable settles it: writes are taken, and a start finds nothing
// of the change, and all that was written.
func TestDoubtsAreSettled(t *testing.T) {
	for _, there := range []bool{true, false} {
		for _, what := range []string{"new volume", "larger", "smaller", "deleted"} {
			r, s := doubtRig(t, Options{})
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 8<<20, true)
			n := 0
			s.fail = func([]block.KV) (bool, bool) { n++; return true, there && n == 1 }
			err := ends(r.clock, func(done func(error)) { r.begin(what, v, done) })
			if n != 2 || !errors.Is(err, errDeaf) || !strings.Contains(err.Error(), "done or not") {
				t.Fatalf("%s: after %d batches it ended %v", what, n, err)
			}
			if end := r.do(v, write(7<<11, 8)); end != block.Hardware {
				t.Errorf("%s: a write meanwhile ended %v", what, end)
			}
			s.fail = nil
			if err := ends(r.clock, func(done func(error)) { r.a.SetBlob("b", []byte("1"), done) }); err != nil || len(r.a.Health()) > 0 {
				t.Errorf("%s: a value ended %v, health is %q", what, err, r.a.Health())
			}
			mustOK(t, r.do(v, stamped(rng(7<<11, 8), 7)))
			r.check()
			if err := r.restart(); err != nil {
				t.Fatal(err)
			}
			v = r.a.Volume("v")
			if v == nil || v.Spec.Sectors != 8<<11 || !r.reads(v, rng(7<<11, 8), 7) || r.a.Volume("w") != nil {
				t.Errorf("%s: a start finds %v", what, r.a.Volumes())
			}
			r.check()
		}
	}
}
