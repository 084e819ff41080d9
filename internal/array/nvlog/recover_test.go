package nvlog

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// sorted goes over a map in the order of its keys.
func sorted[V any](m map[layout.PageKey]V) iter.Seq2[layout.PageKey, V] {
	return func(yield func(layout.PageKey, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if v, ok := m[k]; ok && !yield(k, v) {
				return
			}
		}
	}
}

// crash is what the death of the process or a loss of power leaves.
type crash struct {
	what      string
	mem, disk []byte
	clean     map[int][]byte // what of mem the kernel takes for written, see testRegion
	power     bool           // lost
	dropped   bool           // the kernel has dropped some of what it takes for written
	starting  bool           // the process was not through its start
	within    bool           // it was within a stage of it, which may or may not have said that power was lost
}

// death is the death of the process now.
func (fw *firmware) death(what string) crash {
	dropped := fw.region.die()
	return crash{what: what, mem: fw.region.mem, disk: fw.region.disk, clean: fw.region.clean, dropped: dropped}
}

// opened is what a start makes of a crash.
type opened struct {
	region *testRegion
	nv     *NVRAM
	log    *Log
	saved  Saved
	end    End
	edits  []Edit
	err    error
}

// open opens what a crash has left.
func (fw *firmware) open(c crash) *opened {
	boot := fw.region.boot
	if c.power {
		boot++
	}
	r := &testRegion{mem: c.mem, disk: c.disk, clean: c.clean, boot: boot, rnd: fw.rnd, exec: fw.region.exec}
	if c.clean == nil {
		r.clean = map[int][]byte{}
	}
	o := &opened{region: r.lay(fw.layout)}
	if o.nv, o.err = open(r.watched, false, fw.layout); o.err != nil {
		return o
	}
	o.log, o.saved = NewLog(o.nv), o.nv.Saved()
	p := fw.position
	if o.err = o.log.Start(p.seq, p.tail); o.err != nil {
		return o
	}
	if o.end, o.err = o.log.FindEnd(o.saved, max(o.saved.Flushed, p.last, p.seq), false); o.err != nil {
		return o
	}
	o.err = o.log.Replay(o.end.Last, func(e Edit, _ bool) { o.edits = append(o.edits, e) })
	return o
}

// commands returns how many commands are there after a crash, and fails if they are not whole, not the first
// ones, or not as they were.
func (fw *firmware) commands(c crash, o *opened) int {
	fw.t.Helper()
	if o.err != nil {
		fw.t.Fatalf("%s: %s: %v", fw.what, c.what, o.err)
	}
	all := fw.history
	if fw.pending != nil {
		all = append(slices.Clip(all), *fw.pending)
	}
	n := 0
	var want []Edit
	for n < len(all) && all[n].first <= o.end.Last {
		want = append(want, all[n].edits...)
		n++
	}
	if !slices.Equal(o.edits, want) {
		fw.t.Fatalf("%s: %s: the log ends with record %d and has %d edits; the first %d commands have %d", fw.what, c.what, o.end.Last, len(o.edits), n, len(want))
	}
	least := len(fw.history)
	if c.power || c.dropped || fw.dropped {
		least = fw.sure
	}
	if n < least {
		fw.t.Fatalf("%s: %s: %d of %d commands are there, and %d must be", fw.what, c.what, n, len(fw.history), least)
	}
	// A start that dies early may leave two equal state blocks of two boots: then the older counts.
	if lost := c.power || fw.lost || o.saved.boot == 0 || n < len(fw.history); o.end.PowerLost != lost && !(o.end.PowerLost && c.starting) && !c.within {
		fw.t.Fatalf("%s: %s: power was lost, it says: %v", fw.what, c.what, o.end.PowerLost)
	}
	return n
}

// pages returns the pages that count after a crash, the newest of each address, and those that a start
// may use again. It fails if one looks damaged. Preconditions: commands.
func (fw *firmware) pages(c crash, o *opened) (live map[layout.PageKey]uint32, others []uint32) {
	fw.t.Helper()
	var found []uint32
	for i := range uint32(o.nv.Pages) {
		switch o.nv.Examine(i, o.end.Last) {
		case Unused:
			o.nv.Clear(i)
			others = append(others, i)
		case Damaged:
			fw.t.Fatalf("%s: %s: the descriptor of page %d looks damaged", fw.what, c.what, i)
		default:
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(x, y uint32) int {
		dx, dy := o.nv.Descriptor(x), o.nv.Descriptor(y)
		return cmp.Or(cmp.Compare(dx.Key(), dy.Key()), cmp.Compare(dy.Seq(), dx.Seq()))
	})
	live = map[layout.PageKey]uint32{}
	done := map[layout.PageKey]bool{}
	for _, i := range found {
		d := o.nv.Descriptor(i)
		if !done[d.Key()] && !d.Retired() {
			live[d.Key()] = i
		} else {
			others = append(others, i)
		}
		done[d.Key()] = done[d.Key()] || d.Tombstone() != Superseded
	}
	return live, others
}

// verify compares what is there after a crash with the model after n commands.
func (fw *firmware) verify(c crash, o *opened, live map[layout.PageKey]uint32, n int) {
	fw.t.Helper()
	for pool := range uint16(2) {
		for page := range uint64(6) {
			k := layout.KeyOf(pool, page*layout.PageSectors)
			want, ok := fw.value(k, n)
			if !ok {
				continue
			}
			got := fw.backend[k]
			if i, ok := live[k]; ok {
				switch got = 0; {
				case o.nv.GoodSectors(i) == 0xff:
					got = le.Uint64(o.nv.Page(i)) * unmix
				case c.dropped: // a medium error, which everybody hears of
					fw.lose(k, n)
					continue
				}
			}
			if got != want {
				fw.t.Fatalf("%s: %s: address %x holds %d, not %d, after %d of %d commands", fw.what, c.what, k, got, want, n, len(fw.history))
			}
		}
	}
}

// lose has nothing to be said of an address any more after n commands.
func (fw *firmware) lose(k layout.PageKey, n int) {
	if n == 0 {
		delete(fw.base, k)
		return
	}
	fw.history[n-1].wrote[k] = 0
}

// unmix is the inverse of what stamps are multiplied with.
const unmix = 0xF1DE83E19937733D

// recover goes on after a crash, as the firmware does; it may end at any stage, or within one, with another crash.
func (fw *firmware) recover(c crash) (next crash, again bool) {
	fw.t.Helper()
	o := fw.open(c)
	n := fw.commands(c, o)
	if fw.pending != nil {
		fw.history, fw.pending = append(fw.history, *fw.pending), nil
	}
	live, others := fw.pages(c, o)
	fw.verify(c, o, live, n)
	fw.region, fw.clock = o.region, &block.Virtual{}
	if fw.region.exec != nil {
		fw.region.exec = fw.clock
	}
	fw.boot(o.nv)
	fw.log, fw.fl.log = o.log, o.log
	fw.fl.Restore(o.saved)
	if fw.region.distrusted != (o.saved.boot == 0 || o.saved.unheard) {
		fw.t.Fatalf("%s: %s: the region is distrusted: %v", fw.what, c.what, fw.region.distrusted)
	}
	fw.lost = o.end.PowerLost
	fw.undone = int(o.end.Undone)
	fw.history = fw.history[:n]
	fw.sure = min(fw.sure, n)
	fw.dropped = fw.dropped || c.dropped
	if fw.rnd.IntN(8) == 0 {
		return fw.anotherCrash(), true
	}
	if c, died := fw.stage(func() { fw.must(fw.fl.Truncate(fw.position.gen)) }); died {
		return c, true
	}
	fw.lost, fw.sure, fw.dropped = false, n, false
	if fw.rnd.IntN(8) == 0 {
		return fw.anotherCrash(), true
	}
	if c, died := fw.stage(func() {
		for _, i := range others {
			if fw.nv.Descriptor(i).Seq() != 0 {
				fw.nv.Retire(i, Superseded)
			}
		}
		fw.must(fw.fl.FlushNow())
	}); died {
		return c, true
	}
	fw.free, fw.live = others, live
	if fw.rnd.IntN(8) == 0 {
		return fw.anotherCrash(), true
	}
	return fw.stage(func() { fw.settle(others) })
}

// settle ends a start: a checkpoint with a new run of numbers.
func (fw *firmware) settle(free []uint32) {
	if free == nil {
		for i := range uint32(fw.nv.Pages) {
			free = append(free, i)
		}
	}
	fw.free = free
	_, tail := fw.log.BeginCheckpoint()
	seq := fw.log.Renumber()
	fw.position = position{seq, tail, seq, fw.position.gen + 1}
	fw.rebase(len(fw.history))
	fw.sure, fw.sureNext = 0, 0
	fw.log.Trim(tail)
	fw.must(fw.fl.Commission(fw.position.gen))
}
