package rados_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// arrayRig is an array over a simulated cluster.
type arrayRig struct {
	t *testing.T
	c *simulated.Cluster
	x *block.Virtual
	s *opened
	a *array.Array
	// reserve is what the store keeps for metadata.
	reserve int
	self    rados.Owner
}

func newArrayRig(t *testing.T, opt simulated.Options, reserve int) *arrayRig {
	r := &arrayRig{t: t, c: simulated.New(opt, rand.New(rand.NewPCG(3, 4))), reserve: reserve}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	made := 0
	must := func(err error) {
		if made++; err != nil {
			t.Fatal(err)
		}
	}
	r.a.CreatePool(array.PoolSpec{Name: "p", Mdisks: []array.MdiskSpec{{Name: "d", Size: 64 << 20}}}, func(_ *array.Pool, err error) { must(err) })
	r.x.Run()
	for _, name := range []string{"v", "w"} {
		r.a.CreateVolume(array.VolumeSpec{Name: name, Pool: "p", Sectors: 64 << 11, Thin: true}, func(_ *array.Volume, err error) { must(err) })
	}
	if r.x.Run(); made != 3 {
		t.Fatal("something was not made")
	}
	return r
}

// open starts the array.
func (r *arrayRig) open() (err error) {
	r.x = &block.Virtual{}
	r.s = open(r.t, r.c, r.x, rados.Options{Patience: 5e9, Reserve: r.reserve, Self: r.self})
	r.a, err = array.Open(array.Options{Exec: r.x, Store: r.s, CacheBytes: 4 << 20, LogBytes: 1 << 20, CounterRows: 512, UUID: 1, Discard: true})
	return err
}

// crash has the process die and another one start.
func (r *arrayRig) crash() {
	r.t.Helper()
	r.s.client.Kill()
	if err := r.open(); err != nil {
		r.t.Fatal(err)
	}
}

// do carries out a request of a volume and returns its status.
func (r *arrayRig) do(volume string, q *block.Request) block.Status {
	r.t.Helper()
	ended := false
	q.Done = func(*block.Request) { ended = true }
	r.a.Volume(volume).Submit([]*block.Request{q})
	for !ended && r.x.Step() {
	}
	if !ended {
		r.t.Fatalf("%s never ended", q.Op)
	}
	return q.Status
}

func (r *arrayRig) write(volume string, at, n uint64, b byte) {
	r.t.Helper()
	for end := at + n; at < end; at += 512 {
		q := &block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: 512}, Data: [][]byte{filled(512*512, b)}}
		if s := r.do(volume, q); s != block.OK {
			r.t.Fatalf("a write at %d ended %v", at, s)
		}
	}
}

func (r *arrayRig) expect(volume string, at uint64, b byte) {
	r.t.Helper()
	got := make([]byte, 4096)
	if s := r.do(volume, &block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: 8}, Data: [][]byte{got}}); s != block.OK || got[0] != b || got[4095] != b {
		r.t.Errorf("sector %d of %s reads %v, %d", at, volume, s, got[0])
	}
}

// remove deletes a volume, and runs until that has ended, or for ten minutes.
func (r *arrayRig) remove(volume string) (ended bool) {
	r.t.Helper()
	r.a.DeleteVolume(r.a.Volume(volume), func(err error) {
		if ended = true; err != nil {
			r.t.Errorf("%s was not deleted: %v", volume, err)
		}
	})
	for until := r.x.Now() + 600e9; !ended && r.x.Now() < until && r.x.Step(); {
	}
	return ended
}

// extents counts the objects that mdisks have.
func (r *arrayRig) extents() (n int) {
	for _, name := range r.c.Objects("array") {
		if strings.HasPrefix(name, "m0.0") {
			n++
		}
	}
	return n
}

// check reports what is wrong with the array.
func (r *arrayRig) check() {
	r.t.Helper()
	for _, p := range r.a.Check(true).Problems {
		r.t.Error(p)
	}
}

// TestDeletedVolumesRemoveObjects: the objects of space that became free are removed, those that another volume needs
// stay, and a start removes those that an earlier owner had no time for.
func TestDeletedVolumesRemoveObjects(t *testing.T) {
	r := newArrayRig(t, simulated.Options{Latency: 2e6}, 0)
	r.write("v", 0, 32<<11, 1)
	r.write("w", 0, 4096, 2)
	r.x.Run()
	before := r.extents()
	if before < 9 {
		t.Fatalf("there are %d objects", before)
	}
	r.remove("v")
	if r.x.RunUntil(r.x.Now() + 500e6); r.extents() != before {
		t.Fatal("they are removed at once: nothing is shown of the next start")
	}
	r.crash()
	r.x.Run()
	allocated := int(r.a.Pool("p").Alloc.Allocated()+63) / 64
	if got := r.extents(); got > allocated {
		t.Errorf("there are %d objects, %d extents would do", got, allocated)
	}
	if n, bytes := r.a.Pool("p").Mdisks[0].Discarded(); n == 0 || bytes%(4<<20) != 0 {
		t.Errorf("%d discards of %d bytes are counted", n, bytes)
	}
	r.expect("w", 0, 2)
	r.write("w", 8192, 16<<11, 3)
	r.x.Run()
	r.expect("w", 8192, 3)
	r.expect("w", 0, 2)
	r.check()
}

// TestStartInAFullPool: an array starts in a pool that is full, behind a crash and behind a stop, again and again; hosts read, and write
// in place; a deletion makes room, and writes go on.
func TestStartInAFullPool(t *testing.T) {
	r := newArrayRig(t, simulated.Options{Latency: 2e6}, 8<<20)
	r.write("v", 0, 24<<11, 1)
	r.write("w", 0, 4096, 2)
	r.x.Run()
	has := func() (n int) {
		for _, name := range r.c.Objects("array") {
			if strings.HasPrefix(name, "reserve.") {
				n++
			}
		}
		return n
	}
	if has() != 2 {
		t.Fatalf("the reserve has %d objects", has())
	}
	r.c.SetCapacity(r.c.Used())
	r.write("w", 0, 2048, 3) // in place
	r.x.RunUntil(r.x.Now() + 60e9)
	for life := range 6 {
		if life%2 == 0 {
			r.crash()
		} else {
			r.stop()
			if err := r.open(); err != nil {
				t.Fatal(err)
			}
		}
		r.x.RunUntil(r.x.Now() + 30e9)
		r.expect("v", 4096, 1)
		r.expect("w", 1024, 3)
		r.expect("w", 4000, 2)
		if s := r.do("w", &block.Request{Op: block.OpUnmap, Ranges: []block.Range{{Start: uint64(life) * 8, Count: 4}}}); s != block.OK {
			t.Fatalf("life %d: UNMAP: %v", life, s)
		}
	}
	before := r.c.Used()
	if !r.remove("v") {
		t.Fatal("in a full pool a volume cannot be deleted")
	}
	r.x.RunUntil(r.x.Now() + 60e9)
	if got := r.c.Used(); got > before-16<<20 {
		t.Errorf("%d bytes are used, %d were before a volume of 24 MiB was deleted", got, before)
	}
	r.write("w", 8192, 8<<11, 5)
	r.x.RunUntil(r.x.Now() + 60e9)
	if n := r.a.Dirty(); n != 0 {
		t.Errorf("%d bytes are dirty where there is room", n)
	}
	r.expect("w", 8192, 5)
	r.check()
	r.crash()
	r.x.RunUntil(r.x.Now() + 60e9)
	if has() != 2 {
		t.Errorf("where there is room again the reserve has %d objects", has())
	}
	r.expect("w", 8192, 5)
	r.check()
}

// stop stops the array in good order.
func (r *arrayRig) stop() {
	r.t.Helper()
	ended := false
	r.a.Stop(func(err error) {
		if ended = true; err != nil {
			r.t.Errorf("it stops with %v", err)
		}
	})
	for !ended && r.x.Step() {
	}
	if err := r.s.Close(); err != nil || !ended {
		r.t.Errorf("it is closed with %v, stopped: %v", err, ended)
	}
}

// TestReserveIsEnough: metadata of many batches go through a full pool in the room of two of them, and what has no room
// at all waits as without a reserve.
func TestReserveIsEnough(t *testing.T) {
	const batch = 3 << 20
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{Patience: 5e9, Reserve: 2*batch + 1<<20})
	m, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	change := func(i, n int) error {
		value := filled(n, byte(i))
		return m.CommitNow([]block.KV{{Key: []byte{'k', byte(i % 4)}, Value: value}})
	}
	for i := range 4 {
		if err := change(i, batch); err != nil {
			t.Fatal(err)
		}
	}
	x.Run()
	c.SetCapacity(c.Used())
	for i := 4; i < 24; i++ {
		if err := change(i, batch); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	for i := range 4 {
		if v, err := m.Get([]byte{'k', byte(i)}); err != nil || len(v) != batch || v[0] != byte(20+i) {
			t.Errorf("entry %d has %d bytes, %v", i, len(v), err)
		}
	}
	if err := m.CommitNow([]block.KV{{Key: []byte("large"), Value: make([]byte, 8*batch)}}); !errors.Is(err, block.ErrFull) {
		t.Errorf("a change without room ends with %v", err)
	}
}

// TestReserveComesBack: what was given up of the reserve is written again when there is room some seconds later, though no
// metadata change then; while there is none, nobody tries for ever.
func TestReserveComesBack(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{Patience: 5e9, Reserve: 8 << 20})
	m, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	has := func() (n int) {
		for _, name := range c.Objects("array") {
			if strings.HasPrefix(name, "reserve.") {
				n++
			}
		}
		return n
	}
	grow := func(key byte) {
		if err := m.CommitNow([]block.KV{{Key: []byte{key}, Value: make([]byte, 3<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	grow('a')
	if x.Run(); has() != 2 {
		t.Fatalf("the reserve has %d objects", has())
	}
	c.SetCapacity(c.Used())
	grow('b')
	if x.RunUntil(x.Now() + 5e9); has() > 1 {
		t.Fatalf("in a full pool it has %d", has())
	}
	c.SetCapacity(0)
	if x.RunUntil(x.Now() + 5e9); has() != 2 {
		t.Errorf("with room again it has %d", has())
	}
	c.SetCapacity(c.Used())
	grow('c')
	x.Run() // it ends
}
