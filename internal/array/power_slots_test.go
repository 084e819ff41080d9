package array

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/arraysim/arraysim/internal/block"
)

// Volumes of the random program that come and go. The law, beside that of the data: a deletion, and what cuts off a part
// of a volume, takes perhaps the last copy of what it had elsewhere. So if it survives a loss of power, all survives
// that was acknowledged before it was asked for.

// slot is a place of the program's list of volumes.
type slot struct {
	name   string
	times  int  // how often one was made there
	there  bool // for the array
	maybe  bool // the next start may find it or not
	size   uint64
	leaves bool // it is being deleted
	covers int  // acknowledgements before its deletion, or another size, was asked for
}

// isNew has a slot hold a volume of zeros.
func (r *powerRig) isNew(vol int) {
	for s := range r.sectors[vol] {
		r.sectors[vol][s] = []version{{}}
	}
}

// survived says that a deletion or a smaller size is there to stay.
func (r *powerRig) survived(vol int) { r.flushed = max(r.flushed, r.slots[vol].covers) }

// found returns what a start finds in a slot.
func (r *powerRig) found(vol int) *Volume {
	x := &r.slots[vol]
	v := r.a.Volume(x.name)
	if (v != nil) != x.there && !x.maybe {
		r.t.Fatalf("volume %s is there: %v; it has to be: %v", x.name, v != nil, x.there)
	}
	switch {
	case v == nil && x.there:
		r.survived(vol)
		r.gone(vol)
	case v != nil && !x.there:
		r.sizes[vol], x.there = x.size, true
		r.isNew(vol)
	}
	x.maybe, x.leaves = false, false
	return v
}

// gone says that there is no volume in a slot any more.
func (r *powerRig) gone(vol int) {
	r.slots[vol].there, r.sizes[vol], r.resizes[vol] = false, 0, 0
	r.isNew(vol)
}

// unknown reports whether an error leaves open what the next start finds.
func unknown(err error) bool { return err != nil && strings.Contains(err.Error(), "done or not") }

// noRoom reports whether a thick volume was refused because its pool is too full.
func noRoom(err error) bool {
	return err != nil && strings.Contains(err.Error(), "reserves all of its size")
}

// mayLackSpace reports whether a command may find no space: the pool is small, and nothing was promised. A copy may find that its
// source's pool needed what only the copy kept, wherever it goes.
func (r *powerRig) mayLackSpace(vol int, q *block.Request, cmd *command) bool {
	return cmd.from == "c" || powerVolumes[vol].pool == "c" && (powerVolumes[vol].thin || q.Op == block.OpPlace)
}

// comeAndGo makes a volume, or takes one away in one of several ways.
func (r *powerRig) comeAndGo() {
	const small, thick = stayingVolumes, stayingVolumes + 1
	vol := stayingVolumes + r.rnd.IntN(len(r.vols)-stayingVolumes)
	switch k := r.rnd.IntN(6); {
	case !r.slots[vol].there:
		sizes := powerVolumes[vol].sizes
		r.come(vol, sizes[r.rnd.IntN(len(sizes))], func() {})
	case k == 0:
		r.leave(vol, func() {})
	case k < 4:
		r.move(vol)
	case !r.slots[small].there:
	case r.slots[thick].there && r.rnd.IntN(4) > 0:
		r.leave(thick, func() { r.squeeze(small, thick) })
	default:
		r.squeeze(small, thick) // beside the thick one it finds no space
	}
}

// come makes a volume, under a name that no other had.
func (r *powerRig) come(vol int, size uint64, then func()) {
	x, v := &r.slots[vol], powerVolumes[vol]
	if x.maybe || x.there || v.pool == comingPool && (!r.pool.there || r.pool.maybe) {
		return
	}
	x.times++
	x.maybe, x.name, x.size = true, fmt.Sprintf("v%d.%d", vol, x.times), size
	r.a.CreateVolume(VolumeSpec{Name: x.name, Pool: v.pool, Sectors: x.size, Thin: v.thin}, func(w *Volume, err error) {
		if r.isCut() {
			return
		}
		if err != nil && !r.faulty && !r.hangs && !noRoom(err) {
			r.t.Fatalf("making %s: %v", x.name, err)
		}
		if x.maybe = unknown(err); err == nil {
			x.there, r.vols[vol], r.sizes[vol] = true, w, x.size
			r.isNew(vol)
			then()
		}
	})
}

// leave deletes a volume for which nothing is under way.
func (r *powerRig) leave(vol int, then func()) {
	x, all := &r.slots[vol], rng(0, 1<<40)
	if x.maybe || !x.there || r.resizes[vol] != 0 || !r.isFree(vol, all) {
		return
	}
	x.maybe, x.leaves, x.covers = true, true, r.acks
	mark := busyRange{vol, all}
	r.busy = append(r.busy, mark)
	r.a.DeleteVolume(r.vols[vol], func(err error) {
		if r.isCut() {
			return
		}
		if err != nil && !r.faulty && !r.hangs && !errors.Is(err, ErrInUse) {
			r.t.Fatalf("deleting %s: %v", x.name, err)
		}
		i := slices.Index(r.busy, mark)
		r.busy = slices.Delete(r.busy, i, i+1)
		x.leaves = false
		if x.maybe = unknown(err); err == nil {
			r.survived(vol)
			r.gone(vol)
			r.vols[vol] = nil
			then()
		}
	})
}

// move copies a part of a volume to another one and takes away the source when the copy is acknowledged. When that is,
// too, the power may go at once.
func (r *powerRig) move(from int) {
	vol := r.rnd.IntN(len(r.vols))
	q, cmd := &block.Request{}, &command{}
	if vol == from || r.vols[vol] == nil || !r.copy(from, vol, q, cmd) {
		return
	}
	cmd.then = func() {
		if size := slices.Min(powerVolumes[from].sizes); r.sizes[from] > size && r.rnd.IntN(2) == 0 {
			r.resizeTo(from, size, func() { r.end(&powerSaw.shrunk) })
			return
		}
		r.leave(from, func() { r.end(&powerSaw.moved) })
	}
	r.submit(vol, q, cmd)
}

// squeeze fills the grains of a thin volume, flushes that, unmaps it all, and makes a thick one in the same pool, which has no room for
// both.
func (r *powerRig) squeeze(thin, thick int) {
	all := rng(0, r.sizes[thin])
	free := func() bool { return r.slots[thin].there && r.sizes[thin] == all.Count && r.isFree(thin, all) }
	unmap := func() {
		if !free() {
			return
		}
		cmd := &command{atomic: true, then: func() { r.come(thick, powerVolumes[thick].sizes[0], func() { r.end(&powerSaw.squeezed) }) }}
		each(thin, all, func(n int, _ uint64) { r.become(thin, n, 0, cmd) })
		r.submit(thin, &block.Request{Op: block.OpUnmap, Range: all, Ranges: []block.Range{all}}, cmd)
	}
	flush := func() { r.submit(0, &block.Request{Op: block.OpFlush}, &command{then: unmap}) }
	if !free() {
		return
	}
	// A sector of each grain: more would fill the cache, and NVRAM be flushed for that.
	left := 0
	for at := uint64(0); at < all.Count; at += windowSectors {
		left++
		r.stamp++
		stamp, buf := r.stamp<<20, make([]byte, 512)
		cmd := &command{then: func() {
			if left--; left == 0 {
				flush()
			}
		}}
		fillStamp(buf, stamp)
		each(thin, rng(at, 1), func(n int, _ uint64) { r.become(thin, n, stamp, cmd) })
		r.submit(thin, &block.Request{Op: block.OpWrite, Range: rng(at, 1), Data: [][]byte{buf}}, cmd)
	}
}

// end has the power go now, or not.
func (r *powerRig) end(seen *atomic.Int64) {
	if r.rnd.IntN(3) == 0 {
		r.over = true
		seen.Add(1)
	}
}
