package array

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// A pool of the random program that comes and goes, with the volume of the last slot in it. Its mdisks have the same names each
// time, or other ones. The law: what the store has are the mdisks of pools, at the latest a moment behind a start.

// poolSaw counts what became of it.
var poolSaw struct {
	made, deleted, unknown atomic.Int64 // for good; by a start that found one or not of which nobody had heard
	strays                 atomic.Int64 // mdisks that a start had to remove
}

// poolSlot is the place of the pool.
type poolSlot struct {
	there bool // for the array
	maybe bool // it is being made or deleted, or the next start may find it or not
	found int  // mdisks that the store had at a start
}

// comingVolume is the volume of the pool that comes and goes.
var comingVolume = slices.IndexFunc(powerVolumes, func(v powerVolume) bool { return v.pool == comingPool })

const comingPool = "d"

// comeAndGoPool makes the pool, or deletes it.
func (r *powerRig) comeAndGoPool() {
	x := &r.pool
	switch vol := &r.slots[comingVolume]; {
	case x.maybe || vol.maybe || vol.leaves:
	case !x.there:
		r.comePool()
	case vol.there:
		r.leave(comingVolume, r.comeAndGoPool)
	default:
		r.leavePool()
	}
}

func (r *powerRig) comePool() {
	x := &r.pool
	x.maybe = true
	spec := PoolSpec{Name: comingPool, CopyData: r.rnd.IntN(2) == 0}
	for i := range 1 + r.rnd.IntN(2) {
		spec.Mdisks = append(spec.Mdisks, MdiskSpec{Name: fmt.Sprintf("m%d", i+r.rnd.IntN(2)*10), Size: uint64(1+r.rnd.IntN(2)) * 8 << 20})
	}
	r.a.CreatePool(spec, func(_ *Pool, err error) {
		if r.isCut() {
			return
		}
		if err != nil && !r.faulty && !r.hangs && r.stopping != r.a { // one that stops makes no pool any more
			r.t.Fatalf("making pool %s: %v", spec.Name, err)
		}
		if x.maybe = unknown(err); err == nil {
			x.there = true
			poolSaw.made.Add(1)
		}
	})
}

func (r *powerRig) leavePool() {
	x := &r.pool
	x.maybe = true
	r.a.DeletePool(r.a.Pool(comingPool), func(err error) {
		if r.isCut() {
			return
		}
		if err != nil && !r.faulty && !r.hangs && !errors.Is(err, ErrInUse) {
			r.t.Fatalf("deleting pool %s: %v", comingPool, err)
		}
		if x.maybe = unknown(err); err == nil {
			x.there = false
			if poolSaw.deleted.Add(1); r.rnd.IntN(2) == 0 {
				r.comePool()
			}
		}
	})
}

// findPool notes whether a start has found the pool.
func (r *powerRig) findPool() {
	x, found := &r.pool, r.a.Pool(comingPool) != nil
	if found != x.there && !x.maybe {
		r.t.Fatalf("pool %s is there: %v; it has to be: %v", comingPool, found, x.there)
	}
	if x.maybe {
		poolSaw.unknown.Add(1)
	}
	x.there, x.maybe, x.found = found, false, len(r.mdisks())
}

// verifyStore checks that the store has the mdisks of the pools, and no others, when a start has had its time.
func (r *powerRig) verifyStore(what string) {
	r.clock.RunUntil(r.clock.Now() + 1e8)
	var want []string
	for _, p := range r.a.Pools() {
		for _, d := range p.Mdisks {
			want = append(want, p.Name()+"."+d.Name())
		}
	}
	slices.Sort(want)
	if got := r.mdisks(); !slices.Equal(got, want) {
		r.t.Errorf("%s: the store has the mdisks %v, and pools have %v", what, got, want)
	}
	poolSaw.strays.Add(int64(r.pool.found - len(want)))
	if left := r.a.Leftovers(); len(left) > 0 {
		r.t.Errorf("%s: %v", what, left)
	}
}

// mdisks returns the names of the mdisks of which the store has a file.
func (r *powerRig) mdisks() (names []string) {
	files, err := r.disk.List("/data/mdisk")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		for _, suffix := range []string{".new", ".sum", ".img"} {
			f = strings.TrimSuffix(f, suffix)
		}
		names = append(names, f)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
