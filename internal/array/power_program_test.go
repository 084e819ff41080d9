package array

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// The commands of the random program.

// pick returns a range of an island that no command under way touches.
func (r *powerRig) pick(vol int, limit uint64) (block.Range, bool) {
	x, ok := r.island(vol)
	if !ok {
		return x, false
	}
	n := 1 + r.rnd.Uint64N(min(limit, x.Count))
	at := x.Start + r.rnd.Uint64N(x.Count-n+1)
	if r.rnd.IntN(3) == 0 {
		at = max(at&^127, x.Start)
	}
	return rng(at, n), r.isFree(vol, rng(at, n))
}

// island returns what the volume's size leaves of an island.
func (r *powerRig) island(vol int) (block.Range, bool) {
	x := powerVolumes[vol].islands[r.rnd.IntN(len(powerVolumes[vol].islands))]
	if r.vols[vol] == nil || x.Start >= r.sizes[vol] {
		return x, false
	}
	x.Count = min(x.Count, r.sizes[vol]-x.Start)
	return x, true
}

// pickWide is pick for what has no data: now and then the range goes from one island to another, or to the volume's end.
func (r *powerRig) pickWide(vol int, limit uint64) (block.Range, bool) {
	g, ok := r.pick(vol, limit)
	if !ok || r.rnd.IntN(4) > 0 {
		return g, ok
	}
	to, ok := r.pick(vol, limit)
	if r.rnd.IntN(3) == 0 {
		to, ok = rng(r.sizes[vol]-1, 1), true
	}
	wide := block.Range{Start: min(g.Start, to.Start)}
	wide.Count = max(g.End(), to.End()) - wide.Start
	return wide, ok && r.isFree(vol, wide)
}

// resize gives a volume another size, also while commands are under way. Those behind the smaller end may end for that.
func (r *powerRig) resize() {
	vol := r.rnd.IntN(len(r.vols))
	if r.rnd.IntN(2) == 0 {
		vol = r.rnd.IntN(stayingVolumes)
	}
	sizes := powerVolumes[vol].sizes
	r.resizeTo(vol, sizes[r.rnd.IntN(len(sizes))], func() {})
}

// resizeTo gives a volume a size, and calls then when it has it.
func (r *powerRig) resizeTo(vol int, size uint64, then func()) {
	old := r.sizes[vol]
	// What was cut off under a command could come back by it.
	if r.vols[vol] == nil || r.slots[vol].maybe || size == old || r.resizes[vol] != 0 || r.a.engine.Broken() != "" || size > old && !r.isFree(vol, rng(old, 1<<40)) {
		return
	}
	cmd := &command{what: fmt.Sprintf("resize from %d to %d", old, size)}
	cut := rng(size, 1<<40)
	each(vol, cut, func(n int, _ uint64) { r.become(vol, n, 0, cmd) })
	mark := busyRange{vol, rng(min(size, old), 1<<40)}
	r.busy = append(r.busy, mark)
	r.resizes[vol], r.slots[vol].covers = size, r.acks
	r.shrinks[vol]++
	r.a.Resize(r.vols[vol], size, func(err error) {
		if r.isCut() {
			return
		}
		if err != nil && !r.faulty && !r.hangs && !noRoom(err) {
			r.t.Fatalf("%s: %v", cmd.what, err)
		}
		i := slices.Index(r.busy, mark)
		r.busy = slices.Delete(r.busy, i, i+1)
		if cmd.refused = err != nil; cmd.refused {
			if r.a.engine.Broken() == "" { // else nobody knows what a start finds
				r.resizes[vol] = 0
			}
			return
		}
		if size < old {
			r.survived(vol)
		}
		r.acks++
		cmd.acked = r.acks
		r.sizes[vol], r.resizes[vol] = size, 0
		each(vol, cut, func(n int, _ uint64) { r.sectors[vol][n] = []version{{}} })
		then()
	})
}

func (r *powerRig) isFree(vol int, g block.Range) bool {
	for _, b := range r.busy {
		if b.vol == vol && b.Overlaps(g) {
			return false
		}
	}
	return true
}

// isCertain tells whether the last command of each sector of a range was not refused, so that
// what a copy of the range reads is known.
func (r *powerRig) isCertain(vol int, g block.Range) bool {
	certain := true
	each(vol, g, func(n int, _ uint64) {
		vs := r.sectors[vol][n]
		last := vs[len(vs)-1].cmd
		certain = certain && (last == nil || !last.refused)
	})
	return certain
}

// launch submits a random command.
func (r *powerRig) launch() {
	vol := r.rnd.IntN(len(r.vols))
	if r.vols[vol] == nil || r.slots[vol].leaves {
		return
	}
	q, cmd := &block.Request{}, &command{}
	switch k := r.rnd.IntN(100); {
	case k < 12:
		q.Op = block.OpFlush
	case k < 60: // a write, mostly where others were
		g, ok := r.pick(vol, []uint64{8, 60, 400}[r.rnd.IntN(3)])
		if !ok {
			return
		}
		q.Op, q.Range = block.OpWrite, g
		if r.rnd.IntN(6) == 0 {
			q.Flags = block.FUA
		}
		r.asOne(vol, q, cmd)
		buf := make([]byte, g.Bytes())
		r.stamp++
		each(vol, g, func(n int, at uint64) {
			s := at - g.Start
			fillStamp(buf[s*512:(s+1)*512], r.stamp<<20|s)
			r.become(vol, n, r.stamp<<20|s, cmd)
		})
		q.Data = [][]byte{buf}
	case k < 72:
		data := r.rnd.IntN(3) == 0
		pick := r.pickWide
		if data {
			pick = r.pick
		}
		g, ok := pick(vol, 600)
		if !ok {
			return
		}
		q.Op, q.Range = block.OpWriteSame, g
		stamp := uint64(0)
		if data {
			r.stamp++
			stamp = r.stamp << 20
			buf := make([]byte, 512)
			fillStamp(buf, stamp)
			q.Data = [][]byte{buf}
		} else {
			cmd.atomic = true
			if r.rnd.IntN(2) == 0 {
				q.Flags = block.Deallocate
			}
		}
		each(vol, g, func(n int, _ uint64) { r.become(vol, n, stamp, cmd) })
	case k < 80:
		g, ok := r.pickWide(vol, 1500)
		if !ok {
			return
		}
		q.Op, q.Ranges = block.OpUnmap, []block.Range{g}
		if g.Count < 1500 && r.rnd.IntN(2) == 0 { // every other sector: up to two records
			q.Ranges = nil
			for s := g.Start; s < g.End(); s += 2 {
				q.Ranges = append(q.Ranges, rng(s, 1))
			}
		}
		cmd.atomic = true
		for _, x := range q.Ranges {
			each(vol, x, func(n int, _ uint64) { r.become(vol, n, 0, cmd) })
		}
		q.Range = g
	default:
		if !r.copy(r.rnd.IntN(len(r.vols)), vol, q, cmd) {
			return
		}
	}
	r.submit(vol, q, cmd)
}

// asOne makes a write now and then one of which a start finds all or nothing: a WRITE ATOMIC, or a COMPARE AND WRITE of
// what is there.
func (r *powerRig) asOne(vol int, q *block.Request, cmd *command) {
	switch r.rnd.IntN(6) {
	case 0:
		q.Flags |= block.Atomic
		cmd.atomic = true
	case 1:
		if !r.isCertain(vol, q.Range) {
			return
		}
		was := make([]byte, q.Range.Bytes())
		each(vol, q.Range, func(n int, at uint64) {
			vs := r.sectors[vol][n]
			fillStamp(was[(at-q.Range.Start)*512:(at-q.Range.Start+1)*512], vs[len(vs)-1].stamp)
		})
		cut := r.rnd.IntN(len(was) + 1)
		q.Op, q.Origin, q.Compare = block.OpCompareWrite, block.OriginCAW, [][]byte{was[:cut], was[cut:]}
		cmd.atomic = true
	}
}

// copy makes a request a copy of a random range of a volume to another; the source is marked.
func (r *powerRig) copy(from, vol int, q *block.Request, cmd *command) bool {
	src, ok := r.pick(from, 500)
	x, there := r.island(vol)
	if !ok || !there || src.Count > x.Count {
		return false
	}
	to := rng(x.Start+r.rnd.Uint64N(x.Count-src.Count+1), src.Count)
	if r.rnd.IntN(2) == 0 {
		to.Start = max(x.Start, min(to.Start&^127+src.Start&127, x.End()-to.Count))
	}
	if !r.isFree(vol, to) || vol == from && src.Overlaps(to) || !r.isCertain(from, src) {
		return false
	}
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{src}, Done: func(*block.Request) {}}
	r.vols[from].Submit([]*block.Request{h})
	if h.Ref == nil { // leaves of the map are absent
		for h.Ref == nil {
			if r.isCut() || !r.clock.Step() {
				return false
			}
		}
		gone := func(vol int, g block.Range) bool {
			return r.vols[vol] == nil || r.slots[vol].leaves || g.End() > r.vols[vol].Limit
		}
		if r.isCut() || gone(vol, to) || gone(from, src) || !r.isFree(vol, to) || !r.isCertain(from, src) {
			h.Ref.Release()
			return false
		}
	}
	q.Op, q.Range, q.Ref, q.Origin = block.OpPlace, to, h.Ref, block.OriginXCopy
	cmd.from = powerVolumes[from].pool
	// Where the pool lacks the space that a reference would keep, the data moves: see request.placeEdits.
	cmd.atomic = r.vols[vol].Pool() == r.vols[from].Pool() && !r.vols[vol].Pool().CopyData && !r.mayLackSpace(vol, q, cmd)
	var stamps []uint64
	each(from, src, func(n int, _ uint64) {
		old := r.sectors[from][n]
		stamps = append(stamps, old[len(old)-1].stamp)
	})
	each(vol, to, func(n int, s uint64) { r.become(vol, n, stamps[s-to.Start], cmd) })
	r.busy = append(r.busy, busyRange{from, src})
	return true
}

// submit submits a command of which the model knows what it makes.
func (r *powerRig) submit(vol int, q *block.Request, cmd *command) {
	cmd.what = fmt.Sprint(q.Op, q.Range, len(q.Ranges))
	mark := busyRange{vol, q.Range}
	r.busy = append(r.busy, mark)
	if q.Op != block.OpPlace {
		r.busy = append(r.busy, busyRange{vol: -1})
	}
	// Two marks a command: its target, and its source or nothing.
	pair := slices.Clone(r.busy[len(r.busy)-2:])
	covers, shrinks := r.acks, r.shrinks[vol]
	q.Done = func(q *block.Request) {
		if r.isCut() {
			return // nobody heard of it
		}
		// What waited too long for an mdisk that fails, or for NVRAM, may have been done in part.
		refused := r.faulty && (q.Status == block.MediumWrite || q.Status == block.Hardware && (q.Op == block.OpFlush || q.Flags&block.FUA != 0 || r.a.engine.Broken() != ""))
		// What hangs ends whoever waits for it: a write for room, the log or its mdisk, a read, a flush.
		if r.hangs && (q.Status == block.MediumWrite || q.Status == block.Hardware || q.Status == block.NoSpace) {
			refused = true
			powerSaw.overdue.Add(1)
		}
		if q.Status == block.OutOfRange && r.shrinks[vol] > shrinks {
			refused = true
			powerSaw.cutOff.Add(1)
		}
		if q.Status == block.NoSpace && r.mayLackSpace(vol, q, cmd) {
			refused = true
			powerSaw.noSpace.Add(1)
		}
		if q.Status != block.OK && !refused {
			r.t.Fatalf("%s ended %v", cmd.what, q.Status)
		}
		cmd.refused = refused
		if !refused {
			r.acks++
			cmd.acked = r.acks
		}
		cmd.atomic = cmd.atomic && !refused
		if q.Op == block.OpFlush && !refused {
			r.flushed = max(r.flushed, covers)
		}
		if q.Flags&block.FUA != 0 && !refused {
			each(vol, q.Range, func(n int, _ uint64) {
				// A change of size may have begun since; nobody knows yet whether it cuts this off.
				vs := r.sectors[vol][n]
				if i := slices.IndexFunc(vs, func(v version) bool { return v.cmd == cmd }); i > 0 {
					r.sectors[vol][n] = vs[i:]
				}
			})
		}
		if q.Ref != nil {
			q.Ref.Release()
		}
		for _, m := range pair {
			i := slices.Index(r.busy, m)
			r.busy = slices.Delete(r.busy, i, i+1)
		}
		if cmd.then != nil && !refused {
			cmd.then()
		}
	}
	r.vols[vol].Submit([]*block.Request{q})
}

// become notes what a sector is to become.
func (r *powerRig) become(vol, s int, stamp uint64, cmd *command) {
	vs := r.sectors[vol][s]
	// What a flush has covered is certain: what was before is not needed any more.
	for i := len(vs) - 1; i > 0; i-- {
		if vs[i].cmd != nil && vs[i].cmd.acked != 0 && vs[i].cmd.acked <= r.flushed {
			vs = vs[i:]
			break
		}
	}
	r.sectors[vol][s] = append(vs[:len(vs):len(vs)], version{stamp, cmd})
}
