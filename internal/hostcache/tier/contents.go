package tier

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// What a cache holds is listed, dropped and read in pieces: the executor is held for one of them at a time,
// some tenths of a millisecond, so that a large cache serves its clients between two.
const (
	pieceSlots   = 1024
	pieceSectors = 1 << 18 // whose bits are looked at
)

// piece returns the end of the piece of slots that begins at from; where there are none, that is empty. Whoever asks for
// a piece may ask for any.
func (d *Disk) piece(from int) int {
	if from < 0 || from >= len(d.frameOf) {
		return from
	}
	slots := min(pieceSlots, pieceSectors/d.per)
	if d.opt.piece > 0 {
		slots = d.opt.piece
	}
	return min(from+max(1, slots), len(d.frameOf))
}

// behind returns where the piece after one that ends at a slot begins, 0 if there is none.
func (d *Disk) behind(end int) int {
	if end < 0 || end >= len(d.frameOf) {
		return 0
	}
	return end
}

// Drop empties the cache, as vFRC does when its file is destroyed: by a cold restart, a resume, a snapshot
// that is reverted or consolidated, or a move to another host without it. Blocks with dirty sectors stay, and
// so may what clients bring in meanwhile. done gets the number of blocks that are forgotten.
func (d *Disk) Drop(done func(blocks int64)) { d.dropFrom(0, 0, done) }

func (d *Disk) dropFrom(from int, blocks int64, done func(int64)) {
	d.DropSome(from, func(n int64, next int) {
		if next == 0 {
			done(blocks + n)
			return
		}
		d.dropFrom(next, blocks+n, done)
	})
}

// DropSome drops as Drop does, from a slot on, what is in one piece of the cache. done gets how many blocks are
// forgotten and where the next piece begins, 0 behind the last one. The first piece begins at 0.
func (d *Disk) DropSome(from int, done func(blocks int64, next int)) {
	o := d.newOp(nil, belowMode)
	end := d.piece(from)
	for i := from; i < end; i++ {
		if d.frameOf[i] != noFrame {
			o.ranges = append(o.ranges, d.blockRange(hostcache.Slot(i)))
		}
	}
	dropped, next := int64(0), d.behind(end)
	d.lock(o, func(o *op) {
		for _, r := range o.ranges {
			dropped += d.dropBlock(r)
		}
		d.recorded(o, false, func(o *op) {
			d.unlock(o)
			d.close(o)
			d.exec.Post(func() { done(dropped, next) })
		})
	})
	d.pump()
}

// blockRange returns the sectors of a slot's block, as far as the LUN has them.
func (d *Disk) blockRange(s hostcache.Slot) block.Range {
	r := block.Range{Start: d.ix.Key(s).Block() * uint64(d.per), Count: uint64(d.per)}
	if r.Start < d.info.Sectors { // else the LUN has shrunk, and nothing of it is valid
		r.Count = min(r.Count, d.info.Sectors-r.Start)
	}
	return r
}

// dropBlock forgets what is clean of a block, and the block if nothing of it is dirty or in use; it returns 1 then. The range may
// have got another slot, or none, while the op waited for it.
func (d *Disk) dropBlock(r block.Range) int64 {
	s := d.ix.Lookup(hostcache.MakeKey(0, r.Start/uint64(d.per)))
	if s == hostcache.None {
		return 0
	}
	d.forgetRange(r)
	if _, dirty := d.ix.DirtyRun(s, 0); dirty > 0 {
		return 0
	}
	if d.pins[s] > 0 { // the LUN has grown inside the block, and what is new of it is in use
		return 0
	}
	frame := d.frameOf[s]
	d.ix.Drop(s)
	d.frameOf[s] = noFrame
	d.j.forgotten(frame)
	return 1
}

// empty forgets what is clean once nothing is under way that may bring in more, such as a fill;
// what comes later waits. then runs when neither a crash nor a loss of power brings anything back.
func (d *Disk) empty(then func()) {
	if !d.flashed() { // nothing comes in
		d.dropClean()
		then()
		return
	}
	d.emptying++
	o := d.newOp(nil, belowMode)
	o.one[0] = block.Range{Count: everything} // a device below that grows meanwhile included
	o.ranges = o.one[:]
	d.lock(o, func(o *op) {
		d.dropClean()
		d.recorded(o, true, func(o *op) {
			d.unlock(o)
			d.close(o)
			d.emptying--
			d.review()
			then()
		})
	})
}

// dropClean forgets what is clean.
func (d *Disk) dropClean() {
	for i, frame := range d.frameOf {
		if frame != noFrame {
			d.forget(hostcache.Slot(i), 0, d.per)
		}
	}
	if d.j.on {
		d.j.ranged(recIntent, block.Range{Count: d.info.Sectors})
	}
}

// dropAll forgets everything, dirty or not.
func (d *Disk) dropAll() {
	for i, frame := range d.frameOf {
		if frame != noFrame {
			d.ix.ClearValid(hostcache.Slot(i), 0, d.per)
		}
	}
	d.cleaned()
}

// HearsOfOthers reports whether the cache hears of what others write to the LUN, and forgets it. One that does not
// must hold nothing that somebody else may change.
func (d *Disk) HearsOfOthers() bool { return d.opt.WatchNanos > 0 && d.changes() != nil }

// Contents appends to list, from a slot on, what one piece of the cache holds and the device below has, too, in no order.
// Dirty sectors are not among it: below they are older. The first piece begins at 0; next is where the next
// one does, 0 behind the last. A block that changes its slot between two pieces may be listed twice, or not at all.
func (d *Disk) Contents(list []block.Range, from int) (_ []block.Range, next int) {
	end := d.piece(from)
	for i := from; i < end; i++ {
		if d.frameOf[i] == noFrame {
			continue
		}
		s := hostcache.Slot(i)
		base := d.ix.Key(s).Block() * uint64(d.per)
		for at := 0; at < d.per; {
			start, n := d.ix.ValidRun(s, at)
			if n == 0 {
				break
			}
			at = start + n
			if dirty, k := d.ix.DirtyRun(s, start); k > 0 && dirty < at {
				at = min(at, dirty+k)
				n = dirty - start
			}
			if n > 0 {
				list = append(list, block.Range{Start: base + uint64(start), Count: uint64(n)})
			}
		}
	}
	return list, d.behind(end)
}

// A warm-up has so many reads under way, of at most so many sectors.
const (
	warmDepth   = 8
	warmSectors = 1 << 20 >> block.SectorShift
)

// Warm reads ranges, such as another cache's Contents, from the device below, so that what is in them is
// cached; what lies behind the end of the LUN is left out. Its reads count in no statistics. done gets the number of bytes that
// were read. stop ends it early: what is under way is read to its end, and done is called all the same. Both run on the executor,
// and so must stop's caller.
func (d *Disk) Warm(ranges []block.Range, done func(bytes uint64)) (stop func()) {
	w := &warming{d: d, left: ranges, done: done}
	for range warmDepth {
		w.flying++
		w.next()
	}
	return func() { w.left = nil }
}

type warming struct {
	d      *Disk
	left   []block.Range
	at     uint64 // how much of the first of them has been read
	flying int
	bytes  uint64
	done   func(bytes uint64)
}

// take returns the next range to read; a count of 0 says that none is left.
func (w *warming) take() block.Range {
	for ; len(w.left) > 0; w.left, w.at = w.left[1:], 0 {
		r := w.left[0]
		if r.Start >= w.d.info.Sectors {
			continue
		}
		r.Count = min(r.Count, w.d.info.Sectors-r.Start) // nobody has said that it ends somewhere
		if w.at < r.Count {
			r = block.Range{Start: r.Start + w.at, Count: min(r.Count-w.at, warmSectors)}
			w.at += r.Count
			return r
		}
	}
	return block.Range{}
}

// next reads the next range, and ends the warm-up when nothing is left and nothing under way.
func (w *warming) next() {
	r := w.take()
	if r.Count == 0 {
		if w.flying--; w.flying == 0 {
			w.d.exec.Post(func() { w.done(w.bytes) })
		}
		return
	}
	q := &block.Request{Op: block.OpRead, Origin: block.OriginMigrate, Range: r, Data: [][]byte{make([]byte, r.Bytes())}}
	q.Done = func(*block.Request) {
		if q.Status == block.OK {
			w.bytes += r.Bytes()
		}
		w.next()
	}
	w.d.Submit([]*block.Request{q})
}
