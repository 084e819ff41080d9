package tier

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// Recovery is what Open found on the flash.
type Recovery struct {
	Fresh        bool   // nothing of ours was there
	Epoch        uint64 // of the journal that was read
	Records      int
	CleanBlocks  int    // that are warm again
	DirtySectors uint64 // that are to be destaged
	// Unfinished are sectors of writes that had not been acknowledged: what was there
	// before counts.
	Unfinished uint64
	// Damaged are dirty sectors whose data does not match its checksum. Reads of them
	// fail until they are written.
	Damaged uint64
	// Beyond are dirty sectors behind the end of the LUN, which has shrunk.
	Beyond uint64
	// GivenUp says what a format has given up, a line a device.
	GivenUp []string
}

type recovery struct {
	d   *Disk
	out Recovery
	content
	from   int    // the half that was read, -1: none
	newest uint64 // epoch of any half
	// loose: the machine, or whoever has the flash, may have lost power, and the flash what was not flushed.
	loose bool
	// older: the device below may have lost what was not flushed with the machine's power, so that
	// what is clean may be newer.
	older bool
	// reading a half
	half     int
	base, at uint64 // of buf, and what was read of it
	buf      []byte
	seq      uint64
	whole    bool  // the snapshot's last piece was read
	err      error // of the flash: what it could not read may be the journal's newest part
}

func (d *Disk) recoverJournal(done func(error)) {
	l := &d.local().label
	r := &recovery{d: d, from: -1}
	x, ok := d.local().medium.(interface{ LostPower() bool })
	r.loose = !l.powerSafe && (l.boot == 0 || l.boot != d.opt.Boot || ok && x.LostPower())
	r.older = d.opt.LocalBelow && !l.flushed && (l.boot == 0 || l.boot != d.opt.Boot)
	r.probe(func(halves []int) {
		if r.err != nil {
			done(r.err)
			return
		}
		r.read(halves, func(err error) {
			if err == nil && r.from < 0 {
				err = fmt.Errorf("the journal on the flash device cannot be read; take over from a peer, or %s", giveUp)
			}
			if err != nil {
				done(err)
				return
			}
			r.verify(func() {
				err := r.load()
				d.recovery = r.out
				done(err)
			})
		})
	})
}

// probe finds the halves that may count, the newest first.
func (r *recovery) probe(done func([]int)) {
	var epochs [2]uint64
	var next func(i int)
	next = func(i int) {
		if i == len(epochs) {
			var halves []int
			for h, e := range epochs {
				if e > 0 {
					halves = append(halves, h)
				}
			}
			slices.SortFunc(halves, func(a, b int) int { return cmp.Compare(epochs[b], epochs[a]) })
			done(halves)
			return
		}
		r.begin(i)
		r.batch(func(h batchInfo, _ []byte, ok bool) {
			if ok && h.seq == 0 && h.kind != batchRecords && h.epoch >= r.d.local().label.epoch {
				epochs[i] = h.epoch
				r.newest = max(r.newest, h.epoch)
			}
			next(i + 1)
		})
	}
	next(0)
}

func (r *recovery) begin(half int) {
	r.half, r.base, r.at, r.buf, r.seq, r.whole = half, 0, 0, r.buf[:0], 0, false
	r.content, r.out = content{}, Recovery{}
	r.d.damaged, r.d.lostWrites = nil, false
	r.d.generation.known = 0
}

// read replays the first of the halves whose snapshot is whole: one that was being written when the host
// died counts for nothing, and the other half is still there.
func (r *recovery) read(halves []int, done func(error)) {
	if len(halves) == 0 {
		done(nil)
		return
	}
	r.begin(halves[0])
	if err := r.makeContent(r.d.totalFrames, r.d.per); err != nil {
		done(err)
		return
	}
	r.replay(0, func(err error) {
		if err == nil && !r.whole {
			r.read(halves[1:], done)
			return
		}
		if err == nil {
			r.from = halves[0]
		}
		done(err)
	})
}

// batchInfo is the head of a batch that is whole, and of this cache and opening.
type batchInfo struct {
	kind       uint32
	flags      uint32
	epoch, seq uint64
	length     uint64
}

// readAhead is how much of the journal is read at one time, or a batch if that is longer.
const readAhead = 1 << 20

// batch reads the batch at the present place.
func (r *recovery) batch(fn func(h batchInfo, records []byte, ok bool)) {
	r.need(batchHead, func(b []byte) {
		none := func() { fn(batchInfo{}, nil, false) }
		if b == nil || le.Uint32(b) != batchMagic {
			none()
			return
		}
		d := r.d
		l := &d.local().label
		h := batchInfo{kind: le.Uint32(b[8:]), flags: le.Uint32(b[12:]), epoch: le.Uint64(b[48:]), seq: le.Uint64(b[56:]), length: le.Uint64(b[64:])}
		if le.Uint64(b[16:]) != l.cache || le.Uint64(b[24:]) != l.incarnation || [16]byte(b[32:48]) != l.naa || h.length > d.j.half {
			none()
			return
		}
		r.need(batchHead+h.length, func(b []byte) {
			if b == nil || crc32c.Checksum(b[8:]) != le.Uint32(b[4:]) {
				none()
				return
			}
			fn(h, b[batchHead:], true)
		})
	})
}

// need calls fn with n bytes from the present place on, nil if there are not so many or they cannot be read: then
// err says so, because the journal may go on there.
func (r *recovery) need(n uint64, fn func([]byte)) {
	d := r.d
	if r.at+n > d.j.half {
		fn(nil)
		return
	}
	if r.at >= r.base && r.at+n <= r.base+uint64(len(r.buf)) {
		fn(r.buf[r.at-r.base:][:n])
		return
	}
	exact := min(align(n), d.j.half-r.at)
	r.fetch(max(exact, min(readAhead, d.j.half-r.at)), func(ok bool) {
		if ok {
			fn(r.buf[:n])
			return
		}
		r.fetch(exact, func(ok bool) { // what cannot be read may lie behind the end
			if !ok {
				r.err = fmt.Errorf("the journal on the flash device cannot be read at byte %d; take over from a peer, or %s",
					r.place(), giveUp)
				fn(nil)
				return
			}
			fn(r.buf[:n])
		})
	})
}

// place is the present place as a byte offset on the flash.
func (r *recovery) place() uint64 { return labelBytes + uint64(r.half)*r.d.j.half + r.at }

// fetch reads n bytes of the half from the present place on.
func (r *recovery) fetch(n uint64, done func(ok bool)) {
	d := r.d
	r.base, r.buf = r.at, slices.Grow(r.buf[:0], int(n))[:n]
	o := &op{d: d, mode: freeMode}
	o.step = func(*op) {
		if o.flash {
			r.buf = nil
		}
		done(!o.flash)
	}
	d.local().read(o, r.place(), [][]byte{r.buf})
	d.pump()
}

func (r *recovery) replay(epoch uint64, done func(error)) {
	r.batch(func(h batchInfo, records []byte, ok bool) {
		if h.seq == 0 {
			epoch = h.epoch
		}
		if !ok || h.epoch != epoch || h.seq != r.seq || (h.kind == batchRecords) != r.whole {
			done(r.err) // without one, this is where the journal ends
			return
		}
		r.out.Epoch = epoch
		r.d.lostWrites = h.flags&batchLostWrites != 0
		var err error
		if h.kind == batchRecords {
			err = r.apply(records)
		} else {
			err = r.snapshot(records)
			r.whole = h.kind == batchSnapshotEnd
		}
		if err != nil {
			done(err)
			return
		}
		r.seq++
		r.at += align(batchHead + h.length)
		r.d.exec.Post(func() { r.replay(epoch, done) }) // the executor is free between batches
	})
}

func (r *recovery) snapshot(b []byte) error {
	d := r.d
	cut := fmt.Errorf("the journal's snapshot is cut short")
	if r.seq == 0 {
		if len(b) < snapshotHead || string(b[:8]) != snapshotMagic {
			return fmt.Errorf("the journal on the flash device has another format; use the version that wrote it, or %s", giveUp)
		}
		d.generation.known = le.Uint64(b[16:])
		n := le.Uint64(b[24:])
		b = b[snapshotHead:]
		if n > uint64(len(b))/16 {
			return cut
		}
		for ; n > 0; n-- {
			g, ok := rangeOf(b)
			if !ok {
				return cut
			}
			d.damaged.add(g)
			b = b[16:]
		}
	}
	size := int(entrySize(d.per))
	if len(b)%size != 0 {
		return cut
	}
	for ; len(b) > 0; b = b[size:] {
		s := r.block(hostcache.Key(le.Uint64(b)), le.Uint32(b[8:]))
		if s == hostcache.None {
			return cut
		}
		r.ix.ClearValid(s, 0, d.per)
		eachRun(b[12:][:d.per/8], func(first, n int) { r.ix.SetValid(s, first, n) })
		eachRun(b[12+d.per/8:size], func(first, n int) { r.ix.SetDirty(s, first, n) })
	}
	return nil
}

// maxSectors is more than any device has. Below it, no sum of addresses overflows.
const maxSectors = 1 << 63

// rangeOf reads a range of sectors; false says that no device has it.
func rangeOf(b []byte) (g block.Range, ok bool) {
	g = block.Range{Start: le.Uint64(b), Count: le.Uint64(b[8:])}
	return g, g.Within(maxSectors)
}

func (r *recovery) apply(b []byte) error {
	cut := fmt.Errorf("the journal has an unknown record; its checksum is right, so this version cannot read it")
	for len(b) > 0 {
		r.out.Records++
		kind := b[0]
		switch kind {
		case recWritten, recOverwritten, recFilled:
			if len(b) < writtenRecord {
				return cut
			}
			k, frame := hostcache.Key(le.Uint64(b[1:])), le.Uint32(b[9:])
			first, n := int(le.Uint16(b[13:])), int(le.Uint16(b[15:]))
			b = b[writtenRecord:]
			s := r.block(k, frame)
			if s == hostcache.None || first+n > r.d.per || kind != recFilled && len(b) < 4*n {
				return cut
			}
			if kind == recFilled {
				r.ix.SetValid(s, first, n)
				r.cut(s, first, n)
				continue
			}
			for i := first; i < first+n; i++ {
				r.wrote(s, i, le.Uint32(b), kind == recOverwritten)
				b = b[4:]
			}
		case recForgotten:
			if len(b) < forgottenRecord {
				return cut
			}
			if frame := le.Uint32(b[1:]); uint64(frame) < r.d.totalFrames && r.slots[frame] != hostcache.None {
				r.forget(r.slots[frame])
			}
			b = b[forgottenRecord:]
		case recGeneration:
			if len(b) < generationRecord {
				return cut
			}
			r.d.generation.known = le.Uint64(b[1:])
			b = b[generationRecord:]
		case recDestaged, recIntent, recSuperseded, recDamaged:
			if len(b) < rangeRecord {
				return cut
			}
			g, ok := rangeOf(b[1:])
			if !ok {
				return cut
			}
			r.ranged(kind, g)
			b = b[rangeRecord:]
		default:
			return cut
		}
	}
	return nil
}

func (r *recovery) ranged(kind byte, g block.Range) {
	switch kind {
	case recDamaged:
		r.d.damaged.add(g)
		kind = recSuperseded
	case recDestaged, recSuperseded:
		r.d.damaged.remove(g)
	}
	per := uint64(r.d.per)
	touch := func(s hostcache.Slot) {
		base := r.ix.Key(s).Block() * per
		lo, hi := max(g.Start, base), min(g.End(), base+per)
		if lo >= hi {
			return
		}
		first, n := int(lo-base), int(hi-lo)
		switch kind {
		case recDestaged:
			r.ix.ClearDirty(s, first, n)
			r.cut(s, first, n)
		case recIntent:
			for i := first; i < first+n; i++ {
				if !r.ix.Dirty(s, i, 1) {
					r.ix.ClearValid(s, i, 1)
				}
			}
		case recSuperseded:
			r.ix.ClearValid(s, first, n)
			r.cut(s, first, n)
		}
	}
	if r.ix.Len() == 0 {
		return
	}
	first, last := g.Start/per, (g.End()+per-1)/per
	if last-first <= uint64(len(r.slots)) {
		for b := first; b < last; b++ {
			if s := r.ix.Lookup(hostcache.MakeKey(0, b)); s != hostcache.None {
				touch(s)
			}
		}
		return
	}
	for _, s := range r.slots {
		if s != hostcache.None {
			touch(s)
		}
	}
}
