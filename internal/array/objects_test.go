package array

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// failMetaAfter makes writes and syncs of both copies of the meta store fail, behind the next n of them.
func (r *powerRig) failMetaAfter(n int) {
	r.disk.SetFault(func(op storetest.Op, path string, k int) (int, error) {
		if op == storetest.Read || !strings.HasPrefix(path, "/data/meta") {
			return k, nil
		}
		if n--; n < 0 {
			return 0, syscall.EIO
		}
		return k, nil
	})
}

// rowOffload is the kind of the rows in NVRAM that count offloads.
const rowOffload = 3

// offloadsOf returns what was counted of the offloads to a volume.
func offloadsOf(v *Volume) (cells [2]uint64) {
	v.Set.Rows.Each(rowOffload, func(r *nvlog.Row) {
		if r.Head().ID() == v.ID() {
			cells[0] += r.Cells[0]
			cells[1] += r.Cells[1]
		}
	})
	return cells
}

// TestFailedDeletions: the meta store fails at some moment of the deletion of a volume and of a pool. Who asked hears it, all is
// there as it was, and a start finds each of them whole, with its files, or not at all.
func TestFailedDeletions(t *testing.T) {
	base := testkit.Seed(t)
	failed := [2]int{}
	for s := base; s < base+60; s++ {
		rnd := rand.New(rand.NewPCG(s, 13))
		r := newPowerRig(t, s, false)
		var c *Pool
		r.a.CreatePool(PoolSpec{Name: "c", Mdisks: []MdiskSpec{{Name: "m0", Size: 64 << 20}, {Name: "m1", Size: 64 << 20}}}, func(p *Pool, err error) { r.must(p, err); c = p })
		var x *Volume
		r.a.CreateVolume(VolumeSpec{Name: "x", Pool: "a", Sectors: 1000, Thin: s%2 == 0}, func(v *Volume, err error) { r.must(nil, err); x = v })
		r.clock.Run()
		at := len(r.vols)
		r.vols = append(r.vols, x)
		if r.put(at, 100, 300, 5) != block.OK || r.wait(at, &block.Request{Op: block.OpWriteSame, Range: rng(500, 300)}) != block.OK || r.wait(at, &block.Request{Op: block.OpFlush}) != block.OK {
			t.Fatal("nothing has failed yet")
		}
		counted, freed := offloadsOf(x), c.Part.Limit()
		files := func() (n int) {
			for _, name := range []string{"c.m0.img", "c.m0.sum", "c.m1.img", "c.m1.sum"} {
				if _, err := r.disk.Stat("/data/mdisk/" + name); err == nil {
					n++
				}
			}
			return n
		}
		r.failMetaAfter(rnd.IntN(12))
		gone := [2]error{}
		first := rnd.IntN(2)
		for i := range 2 {
			if (first+i)%2 == 0 {
				gone[0] = ends(r.clock, func(done func(error)) { r.a.DeleteVolume(x, done) })
			} else {
				gone[1] = ends(r.clock, func(done func(error)) { r.a.DeletePool(c, done) })
			}
		}
		if gone[0] != nil {
			failed[0]++
			if r.a.Volume("x") != x || !r.holds(at, 100, 300, 5) || offloadsOf(x) != counted {
				t.Errorf("-seed %d: after %v: %v is there, with counters %v that were %v", s, gone[0], r.a.Volume("x"), offloadsOf(x), counted)
			}
		}
		if gone[1] != nil {
			failed[1]++
			if r.a.Pool("c") != c || c.Part.Limit() != freed || c.Mdisks[0].Detached() || files() != 4 {
				t.Errorf("-seed %d: after %v: the pool is %v, %d of its files are there", s, gone[1], r.a.Pool("c"), files())
			}
		}
		r.disk.SetFault(nil)
		image := r.disk.Cut
		if s%3 == 0 {
			image = r.disk.Kill
		}
		r.disk = image()
		r.files.Close()
		had := files() // a start makes those that are not there
		r.open()
		r.find()
		switch x := r.a.Volume("x"); {
		case x != nil && gone[0] == nil:
			t.Errorf("-seed %d: a volume that was deleted is back", s)
		case x != nil:
			if r.vols = append(r.vols, x); !r.holds(at, 100, 300, 5) {
				t.Errorf("-seed %d: a volume whose deletion failed has lost data", s)
			}
		}
		switch p := r.a.Pool("c"); {
		case p != nil && gone[1] == nil:
			t.Errorf("-seed %d: a pool that was deleted is back", s)
		case p != nil && had != 4:
			t.Errorf("-seed %d: a start finds the pool, and %d of its files", s, had)
		}
		if p := r.a.Check(true).Problems; len(p) > 0 {
			t.Errorf("-seed %d: %s", s, p[0])
		}
		r.files.Close()
		if t.Failed() {
			t.FailNow()
		}
	}
	if failed[0] < 5 || failed[1] < 5 || failed[0]+failed[1] > 115 {
		t.Errorf("%d deletions of volumes and %d of pools have failed", failed[0], failed[1])
	}
}

// TestRefusedChanges: the meta store refuses a batch, and then works again. Each call answers with the error, memory says what was
// before, what comes later does not carry it, a start finds the same, and the same call then works.
func TestRefusedChanges(t *testing.T) {
	type call struct {
		do   func(r *rig, done func(error))
		done func(a *Array) bool // whether it was carried out
	}
	for name, c := range map[string]call{
		"create pool": {
			func(r *rig, done func(error)) {
				r.a.CreatePool(PoolSpec{Name: "new", Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, func(_ *Pool, err error) { done(err) })
			},
			func(a *Array) bool { return a.Pool("new") != nil },
		},
		"delete pool": {
			func(r *rig, done func(error)) { r.a.DeletePool(r.a.Pool("empty"), done) },
			func(a *Array) bool { return a.Pool("empty") == nil },
		},
		"create volume": {
			func(r *rig, done func(error)) {
				r.a.CreateVolume(VolumeSpec{Name: "new", Pool: "p", Sectors: 1 << 14}, func(_ *Volume, err error) { done(err) })
			},
			func(a *Array) bool { return a.Volume("new") != nil },
		},
		"delete volume": {
			func(r *rig, done func(error)) { r.a.DeleteVolume(r.a.Volume("v"), done) },
			func(a *Array) bool { return a.Volume("v") == nil },
		},
		"set blob": {
			func(r *rig, done func(error)) { r.a.SetBlob("b", []byte("new"), done) },
			func(a *Array) bool { return string(a.Blob("b")) == "new" },
		},
		"make blob": {
			func(r *rig, done func(error)) { r.a.SetBlob("c", []byte("new"), done) },
			func(a *Array) bool { return string(a.Blob("c")) == "new" },
		},
		"remove blob": {
			func(r *rig, done func(error)) { r.a.SetBlob("b", nil, done) },
			func(a *Array) bool { return a.Blob("b") == nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := lameRig(t)
			p := r.pool("p", PoolSpec{}, 64<<20)
			r.pool("empty", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 4<<20, false)
			mustOK(t, r.do(v, stamped(rng(5, 1000), 3)))
			mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(2000, 100)}))
			r.a.SetBlob("b", []byte("old"), func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
			r.clock.Run()
			told := 0
			v.Notify(func(e block.Event) {
				if e.Kind == block.EventGone {
					told++
				}
			})
			had, counted, objects := p.Stats(), offloadsOf(v), fmt.Sprintf("%+v", r.a.manager.Objects.Volumes)
			run := func() error {
				err := errNever
				c.do(r, func(e error) { err = e })
				for errors.Is(err, errNever) && r.clock.Step() {
				}
				return err
			}
			same := func(what string) {
				t.Helper()
				v := r.a.Volume("v")
				if c.done(r.a) || v == nil || string(r.a.Blob("b")) != "old" || r.a.Pool("empty") == nil {
					t.Fatalf("%s: it was carried out", what)
				}
				if got := offloadsOf(v); got != counted || told > 0 || !r.reads(v, rng(5, 1000), 3) {
					t.Errorf("%s: the volume has %v, it had %v", what, got, counted)
				}
				now := r.a.Pool("p").Stats()
				if now.Reserved != had.Reserved || now.Volumes != had.Volumes || now.CacheLimit != had.CacheLimit || fmt.Sprintf("%+v", r.a.manager.Objects.Volumes) != objects {
					t.Errorf("%s: the pool has %+v, it had %+v", what, now, had)
				}
				r.check()
			}
			s.refuse = 1
			if err := run(); !errors.Is(err, errDeaf) {
				t.Fatalf("it ended %v", err)
			}
			same("after the error")
			mustOK(t, r.do(v, write(1010, 8)))
			r.a.checkpoint(true) // a batch without the objects
			r.clock.RunUntil(r.clock.Now() + 1e9)
			r.crash()
			same("after a start")
			if err := run(); err != nil || !c.done(r.a) {
				t.Fatalf("the next try ended %v", err)
			}
			r.clock.Run()
			r.crash()
			if !c.done(r.a) {
				t.Error("after a start it was not carried out")
			}
			r.check()
		})
	}
}

// TestChangesInARow: calls that come while others wait for the meta store see what these are about to do, and one that is
// refused takes no other with it.
func TestChangesInARow(t *testing.T) {
	r, s := lameRig(t)
	r.pool("p", PoolSpec{}, 64<<20)
	var got []string
	note := func(what string) func(error) {
		return func(err error) {
			switch {
			case errors.Is(err, errDeaf):
				what += " refused"
			case err != nil:
				what += " no"
			}
			got = append(got, what)
		}
	}
	volume := func(what string) func(*Volume, error) {
		fn := note(what)
		return func(_ *Volume, err error) { fn(err) }
	}
	spec := VolumeSpec{Name: "v", Pool: "p", Sectors: 40 << 11}
	r.a.CreateVolume(spec, volume("v"))
	if r.a.Volume("v") != nil || len(r.a.Volumes()) != 0 {
		t.Error("a volume is there before it is durable")
	}
	r.a.CreateVolume(spec, volume("v again"))                                               // the name is taken
	r.a.CreateVolume(VolumeSpec{Name: "w", Pool: "p", Sectors: 40 << 11}, volume("w"))      // the space is taken
	r.a.DeletePool(r.a.Pool("p"), note("pool"))                                             // it is about to have a volume
	r.a.SetBlob("b", []byte("1"), note("b"))                                                // waits
	r.a.SetBlob("b", []byte("2"), note("b"))                                                // waits
	r.a.CreateVolume(VolumeSpec{Name: "x", Pool: "p", Sectors: 8, Thin: true}, volume("x")) // waits
	if string(r.a.Blob("b")) != "2" {
		t.Errorf("blob b is %q", r.a.Blob("b"))
	}
	r.clock.Run()
	want := "v,v again no,w no,pool no,b,b,x"
	if all := strings.Join(got, ","); all != want {
		t.Errorf("%s; not %s", all, want)
	}
	// The first of three is refused.
	got = nil
	s.refuse = 1
	r.a.DeleteVolume(r.a.Volume("x"), note("delete"))
	r.a.SetBlob("b", []byte("3"), note("b"))
	r.a.CreateVolume(VolumeSpec{Name: "y", Pool: "p", Sectors: 8, Thin: true}, volume("y"))
	r.clock.Run()
	for range 2 {
		if r.a.Volume("x") == nil || r.a.Volume("y") == nil || string(r.a.Blob("b")) != "3" || len(got) != 3 {
			t.Errorf("%v: x is %v, y is %v, blob b is %q", got, r.a.Volume("x"), r.a.Volume("y"), r.a.Blob("b"))
		}
		r.check()
		r.crash()
	}
	// Commands to a volume that is about to go are told to come again, and go on when it does not.
	x := r.a.Volume("x")
	r.a.DeleteVolume(x, func(error) {})
	if st := r.do(x, write(0, 8)); st != block.Resources && st != block.Gone {
		t.Errorf("a write to what is being deleted ended %v", st)
	}
	r.clock.Run()
	if st := r.do(x, write(0, 8)); st != block.Gone {
		t.Errorf("a write to what is deleted ended %v", st)
	}
}
