package array

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// mortal is a store over which the process dies before it hears of an mdisk: before one is removed, or when it is made.
type mortal struct {
	block.Store
	removes, makes bool
}

func (s mortal) RemoveMedium(name string, done func(error)) {
	if !s.removes {
		s.Store.RemoveMedium(name, done)
	}
}

func (s mortal) MakeMedium(name string, size uint64, done func(error)) {
	s.Store.MakeMedium(name, size, func(err error) {
		if !s.makes {
			done(err)
		}
	})
}

// TestStrayMdisksAreRemoved: the process dies between the deletion of a pool and the removal of its files, or between the making of
// files and the pool. Perhaps the power goes, too. A start removes the files, and no others; it says when it cannot, and the next
// one tries again. A pool of the same name has its own.
func TestStrayMdisksAreRemoved(t *testing.T) {
	for n := range 8 {
		makes, power, again := n&1 != 0, n&2 != 0, n&4 != 0
		what := fmt.Sprintf("made %v, power lost %v, a pool again %v", makes, power, again)
		r := newPowerRig(t, 1, false)
		spec := PoolSpec{Name: "d", Mdisks: []MdiskSpec{{Name: "m0", Size: 8 << 20}, {Name: "m1", Size: 8 << 20}}}
		if !makes {
			r.a.CreatePool(spec, r.must)
			r.clock.Run()
		}
		restart := func(wrap func(block.Store) block.Store) {
			t.Helper()
			if dead := r.disk; power {
				r.disk = dead.Cut()
			} else {
				dead.KillNow()
				r.disk = dead.Image()
			}
			r.files.Close()
			var err error
			r.clock = &block.Virtual{}
			if r.a, r.files, err = openOn(r.disk, r.clock, rand.New(rand.NewPCG(1, 1)), r.opt, wrap); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		restart(func(s block.Store) block.Store { return mortal{s, !makes, makes} })
		if makes {
			r.a.CreatePool(spec, func(*Pool, error) { t.Errorf("%s: it was made", what) })
		} else {
			r.a.DeletePool(r.a.Pool("d"), func(error) { t.Errorf("%s: it was removed", what) })
		}
		r.clock.RunUntil(r.clock.Now() + 1e9)
		if len(r.mdisks()) < 4 {
			t.Errorf("%s: there are %v", what, r.mdisks())
		}
		restart(func(s block.Store) block.Store { return s })
		if again { // at once, as a daemon does: it waits until the start has removed what the names were of
			made := errNever
			r.a.CreatePool(spec, func(_ *Pool, err error) { made = err })
			r.clock.RunUntil(r.clock.Now() + 1e9)
			if made != nil {
				t.Errorf("%s: it is not made: %v", what, made)
			}
			restart(func(s block.Store) block.Store { return s })
		}
		r.clock.RunUntil(r.clock.Now() + 1e9)
		want := []string{"a.m0", "a.m1", "b.m"}
		if again {
			want = append(want, "d.m0", "d.m1")
		}
		if got := r.mdisks(); !slices.Equal(got, want) {
			t.Errorf("%s: the store has %v, and not %v", what, got, want)
		}
		if left := r.a.Leftovers(); len(left) > 0 || len(r.a.manager.Objects.Strays()) > 0 {
			t.Errorf("%s: it says %v", what, left)
		}
		r.files.Close()
	}
}

// TestFilesThatNobodyKnows: the mdisks of another array lie under the names of a new pool's, as where the disks with its write
// cache and its metadata are not mounted. The pool is refused, and says which file is in the way; neither that nor a start touches
// it. Where it is gone the pool is made.
func TestFilesThatNobodyKnows(t *testing.T) {
	for _, name := range []string{"d.m1.img", "d.m1.sum"} {
		r := newPowerRig(t, 1, false)
		spec := PoolSpec{Name: "d", Mdisks: []MdiskSpec{{Name: "m0", Size: 8 << 20}, {Name: "m1", Size: 8 << 20}}}
		path := "/data/mdisk/" + name
		f, err := r.disk.Create(path)
		if err == nil {
			_, err = f.Write([]byte("data"))
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if dir, e := r.disk.OpenDir("/data/mdisk"); e == nil {
			err = errors.Join(err, dir.Sync(), dir.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		create := func() (err error) {
			err = errNever
			r.a.CreatePool(spec, func(_ *Pool, e error) { err = e })
			r.clock.RunUntil(r.clock.Now() + 1e9)
			return err
		}
		for range 2 {
			if err := create(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "mount") {
				t.Errorf("over %s: %v", name, err)
			}
			r.losePower()
			if info, err := r.disk.Stat(path); err != nil || info.Size() != 4 {
				t.Fatalf("%s is not there any more: %v", name, err)
			}
		}
		if err := r.disk.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := create(); err != nil {
			t.Errorf("without %s: %v", name, err)
		}
		r.files.Close()
	}
}

// TestPoolThatCannotBeMade: the store cannot make the mdisks of a pool, time and again. Nothing is left of it in the objects.
func TestPoolThatCannotBeMade(t *testing.T) {
	r := rigOver(t, Options{}, func(s block.Store) block.Store { return unable{s} })
	for range 3 {
		if err := r.tryPool("x", "d", 64<<20); !errors.Is(err, errDeaf) || r.a.manager.Media.Disks() != 0 {
			t.Errorf("it ended %v", err)
		}
	}
	if got := r.a.manager.Objects.Strays(); len(got) > 0 {
		t.Errorf("the objects have %v", got)
	}
}

// unable is a store that makes no mdisks.
type unable struct{ block.Store }

func (s unable) MakeMedium(_ string, _ uint64, done func(error)) { done(errDeaf) }

// TestStraysThatStay: what a start cannot remove it names, and the next one removes.
func TestStraysThatStay(t *testing.T) {
	r := newPowerRig(t, 1, false)
	fails := true
	r.wrap = []func(block.Store) block.Store{func(s block.Store) block.Store { return unwilling{s, &fails} }}
	r.losePower()
	r.a.DeletePool(r.a.Pool("b"), func(error) {})
	r.clock.Run()
	if r.a.Pool("b") != nil { // it has a volume
		r.a.DeleteVolume(r.a.Volume("v2"), func(error) {})
		r.clock.RunUntil(r.clock.Now() + 60e9)
		r.a.DeletePool(r.a.Pool("b"), func(err error) { r.must(nil, err) })
	}
	for _, fails = range []bool{true, true, false} {
		r.clock.RunUntil(r.clock.Now() + 1e9)
		if left := r.a.Leftovers(); len(left) != 1 || !slices.Contains(r.mdisks(), "b.m") {
			t.Errorf("it names %v, and there are %v", left, r.mdisks())
		}
		r.losePower()
	}
	r.clock.RunUntil(r.clock.Now() + 1e9)
	if left := r.a.Leftovers(); len(left) != 0 || slices.Contains(r.mdisks(), "b.m") {
		t.Errorf("at the end it names %v, and there are %v", left, r.mdisks())
	}
	r.files.Close()
}

// unwilling is a store that does not remove mdisks.
type unwilling struct {
	block.Store
	fails *bool
}

func (s unwilling) RemoveMedium(name string, done func(error)) {
	if *s.fails {
		done(fmt.Errorf("%s stays", name))
		return
	}
	s.Store.RemoveMedium(name, done)
}

// TestPoolThatCannotBeAnnounced: a pool whose mdisks cannot be announced is not made, and nothing is made for it. The array goes on,
// and makes it when it can.
func TestPoolThatCannotBeAnnounced(t *testing.T) {
	r, s := doubtRig(t, Options{})
	p := r.pool("p", PoolSpec{}, 64<<20)
	s.fail = func([]block.KV) (bool, bool) { return true, true }
	if err := r.tryPool("x", "d", 64<<20); !errors.Is(err, errDeaf) || r.a.engine.Broken() != "" || r.a.manager.Media.Disks() != 0 {
		t.Errorf("it ended %v, and the array is %q", err, r.a.engine.Broken())
	}
	s.fail = nil
	mustOK(t, r.do(r.volume("v", "p", 8<<20, true), write(0, 8)))
	if err := r.tryPool("x", "d", 64<<20); err != nil || p.Ending {
		t.Errorf("then it ended %v", err)
	}
	if err := r.restart(); err != nil || r.a.Pool("x") == nil || len(r.a.manager.Objects.Strays()) > 0 {
		t.Errorf("a start ended %v, and finds %v", err, r.a.Pools())
	}
	r.check()
}
