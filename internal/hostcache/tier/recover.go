package tier

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
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
}

// found is a block as the journal has it.
type found struct {
	frame uint32
	valid []uint64
	dirty []uint64
	// sums has, for sectors whose last record is "written", its checksum and the one
	// before it, if that was dirty too.
	sums map[int]sum
}

type sum struct {
	crc, before uint32
	wasDirty    bool // before
	known       bool // before is the checksum of what was dirty
}

type recovery struct {
	d      *Disk
	blocks map[hostcache.Key]*found
	frames map[uint32]hostcache.Key
	out    Recovery
	halves [2][]byte
	newest int
}

func (d *Disk) recoverJournal(done func(error)) {
	r := &recovery{d: d, blocks: map[hostcache.Key]*found{}, frames: map[uint32]hostcache.Key{}, newest: -1}
	o := &op{d: d, mode: freeMode, pending: 1}
	for i := range r.halves {
		r.halves[i] = make([]byte, d.j.half)
		d.local().read(o, uint64(i)*d.j.half, [][]byte{r.halves[i]})
	}
	o.step = func(*op) {
		if o.flash {
			done(fmt.Errorf("the journal cannot be read from the flash device"))
			return
		}
		if err := r.replay(); err != nil {
			done(err)
			return
		}
		r.verify(func() {
			err := r.load()
			d.recovery = r.out
			done(err)
		})
	}
	o.less()
	d.pump()
}

// head reads the head of a batch; ok tells whether it is whole and right.
func head(b []byte) (epoch, seq uint64, records []byte, kind uint32, ok bool) {
	if len(b) < batchHead || le.Uint32(b) != batchMagic {
		return
	}
	n := uint64(le.Uint32(b[24:]))
	if n > uint64(len(b)-batchHead) {
		return
	}
	if crc32.Checksum(b[8:batchHead+n], castagnoli) != le.Uint32(b[4:]) {
		return
	}
	return le.Uint64(b[8:]), le.Uint64(b[16:]), b[batchHead : batchHead+n], le.Uint32(b[28:]), true
}

func (r *recovery) replay() error {
	for i, b := range r.halves {
		epoch, seq, _, kind, ok := head(b)
		if ok && seq == 0 && kind == batchSnapshot && (r.newest < 0 || epoch > r.out.Epoch) {
			r.newest, r.out.Epoch = i, epoch
		}
	}
	if r.newest < 0 {
		r.out.Fresh = true
		return nil
	}
	b := r.halves[r.newest]
	for want := uint64(0); ; want++ {
		epoch, seq, records, kind, ok := head(b)
		if !ok || epoch != r.out.Epoch || seq != want || (kind == batchSnapshot) != (want == 0) {
			return nil
		}
		var err error
		if kind == batchSnapshot {
			err = r.snapshot(records)
		} else {
			err = r.apply(records)
		}
		if err != nil {
			return err
		}
		b = b[min(align(uint64(batchHead+len(records))), uint64(len(b))):]
	}
}

func (r *recovery) snapshot(b []byte) error {
	d := r.d
	if len(b) < snapshotHead || string(b[:8]) != snapshotMagic {
		return fmt.Errorf("the journal on the flash device has another format; use the version that wrote it, or --format to give up what is in it")
	}
	switch {
	case [16]byte(b[8:24]) != d.info.NAA || le.Uint64(b[24:]) != d.info.Sectors:
		return fmt.Errorf("the flash device has the cache of another LUN; give the one of %s, or --format to give up what is in it", d.info.Name)
	case le.Uint32(b[32:]) != uint32(d.per) || le.Uint32(b[36:]) != uint32(d.totalFrames):
		return fmt.Errorf("the flash device has a cache of blocks of %d bytes in %d frames, not %d in %d; keep its size and --block-size, or --format to give up what is in it",
			le.Uint32(b[32:])<<block.SectorShift, le.Uint32(b[36:]), d.per<<block.SectorShift, d.totalFrames)
	}
	n := int(le.Uint32(b[40:]))
	d.generation.known = le.Uint64(b[44:])
	b = b[snapshotHead:]
	size := int(entrySize(d.per))
	if len(b) != n*size {
		return fmt.Errorf("the journal's snapshot is cut short")
	}
	for ; n > 0; n-- {
		f := r.block(hostcache.Key(le.Uint64(b)), le.Uint32(b[8:]))
		if f != nil {
			for i := range d.per {
				set(f.valid, i, b[12+i/8]>>(i%8)&1 != 0)
				set(f.dirty, i, b[12+d.per/8+i/8]>>(i%8)&1 != 0)
			}
		}
		b = b[size:]
	}
	return nil
}

func set(w []uint64, i int, on bool) {
	if on {
		w[i/64] |= 1 << (i % 64)
	} else {
		w[i/64] &^= 1 << (i % 64)
	}
}

func has(w []uint64, i int) bool { return w[i/64]>>(i%64)&1 != 0 }

// block returns what is known of a block, which lies in this frame from now on.
func (r *recovery) block(k hostcache.Key, frame uint32) *found {
	if uint64(frame) >= r.d.totalFrames {
		return nil
	}
	f := r.blocks[k]
	if f == nil || f.frame != frame {
		if f != nil {
			delete(r.frames, f.frame)
		}
		if old, ok := r.frames[frame]; ok {
			delete(r.blocks, old)
		}
		words := (r.d.per + 63) / 64
		f = &found{frame: frame, valid: make([]uint64, words), dirty: make([]uint64, words), sums: map[int]sum{}}
		r.blocks[k], r.frames[frame] = f, k
	}
	return f
}

func (r *recovery) apply(b []byte) error {
	cut := fmt.Errorf("the journal has a record that makes no sense; its checksum is right, so this version cannot read it")
	for len(b) > 0 {
		r.out.Records++
		kind := b[0]
		switch kind {
		case recWritten, recFilled:
			if len(b) < writtenRecord {
				return cut
			}
			k, frame := hostcache.Key(le.Uint64(b[1:])), le.Uint32(b[9:])
			first, n := int(le.Uint16(b[13:])), int(le.Uint16(b[15:]))
			b = b[writtenRecord:]
			f := r.block(k, frame)
			if f == nil || first+n > r.d.per || kind == recWritten && len(b) < 4*n {
				return cut
			}
			for i := first; i < first+n; i++ {
				set(f.valid, i, true)
				if kind == recFilled {
					delete(f.sums, i)
					continue
				}
				old, had := f.sums[i]
				f.sums[i] = sum{crc: le.Uint32(b), before: old.crc, known: had, wasDirty: has(f.dirty, i)}
				set(f.dirty, i, true)
				b = b[4:]
			}
		case recForgotten:
			if len(b) < 5 {
				return cut
			}
			frame := le.Uint32(b[1:])
			if k, ok := r.frames[frame]; ok {
				delete(r.blocks, k)
				delete(r.frames, frame)
			}
			b = b[5:]
		case recGeneration:
			if len(b) < generationRecord {
				return cut
			}
			r.d.generation.known = le.Uint64(b[1:])
			b = b[generationRecord:]
		case recDestaged, recIntent, recSuperseded:
			if len(b) < rangeRecord {
				return cut
			}
			r.ranged(kind, block.Range{Start: le.Uint64(b[1:]), Count: le.Uint64(b[9:])})
			b = b[rangeRecord:]
		default:
			return cut
		}
	}
	return nil
}

func (r *recovery) ranged(kind byte, g block.Range) {
	per := uint64(r.d.per)
	touch := func(k hostcache.Key, f *found) {
		base := k.Block() * per
		lo, hi := max(g.Start, base), min(g.End(), base+per)
		for s := lo; s < hi; s++ {
			i := int(s - base)
			switch kind {
			case recDestaged:
				set(f.dirty, i, false)
				delete(f.sums, i)
			case recIntent:
				if !has(f.dirty, i) {
					set(f.valid, i, false)
				}
			case recSuperseded:
				set(f.valid, i, false)
				set(f.dirty, i, false)
				delete(f.sums, i)
			}
		}
	}
	first, last := g.Start/per, (g.End()+per-1)/per
	if last-first <= uint64(len(r.blocks)) {
		for b := first; b < last; b++ {
			if f := r.blocks[hostcache.MakeKey(0, b)]; f != nil {
				touch(hostcache.MakeKey(0, b), f)
			}
		}
		return
	}
	for k, f := range r.blocks { // each on its own: order does not matter
		touch(k, f)
	}
}

// verify reads the sectors whose last record is that of a write, which may not have
// come to its end.
func (r *recovery) verify(done func()) {
	d := r.d
	keys := r.keys()
	var next func(i int)
	next = func(i int) {
		for i < len(keys) && len(r.blocks[keys[i]].sums) == 0 {
			i++
		}
		if i == len(keys) {
			done()
			return
		}
		f := r.blocks[keys[i]]
		buf := make([]byte, d.per<<block.SectorShift)
		o := &op{d: d, mode: freeMode}
		o.step = func(*op) {
			r.check(keys[i], f, buf, o.flash)
			next(i + 1)
		}
		d.local().read(o, d.flashOffset(f.frame, 0), [][]byte{buf})
	}
	next(0)
}

func (r *recovery) keys() []hostcache.Key {
	keys := make([]hostcache.Key, 0, len(r.blocks))
	for k := range r.blocks { // sorted below
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (r *recovery) check(k hostcache.Key, f *found, buf []byte, failed bool) {
	for i := range r.d.per {
		s, ok := f.sums[i]
		if !ok || !has(f.dirty, i) {
			continue
		}
		crc := crc32.Checksum(buf[i<<block.SectorShift:(i+1)<<block.SectorShift], castagnoli)
		switch {
		case !failed && crc == s.crc:
		case !failed && s.wasDirty && (!s.known || crc == s.before):
			r.out.Unfinished++ // the one before is there, and dirty
		case !failed && !s.wasDirty:
			r.out.Unfinished++
			set(f.dirty, i, false)
			set(f.valid, i, false)
		default:
			r.out.Damaged++
			set(f.dirty, i, false)
			set(f.valid, i, false)
			r.d.damaged.add(block.Range{Start: k.Block()*uint64(r.d.per) + uint64(i), Count: 1})
		}
	}
}

// load makes the index what was found.
func (r *recovery) load() error {
	d := r.d
	d.loading = true
	keys := r.keys()
	for _, dirty := range []bool{true, false} { // what must stay comes first
		for _, k := range keys {
			f := r.blocks[k]
			if (count(f.dirty) > 0) != dirty || count(f.valid) == 0 || !dirty && d.opt.TakeOver {
				continue // a peer has no copy of what is clean
			}
			slot := d.ix.Insert(k)
			if slot == hostcache.None {
				if dirty {
					return fmt.Errorf("the journal has more dirty blocks than the cache can hold; open it with the size and block size that it had")
				}
				continue
			}
			d.frameOf[slot] = f.frame
			for i := range d.per {
				switch {
				case has(f.dirty, i):
					if !d.ix.SetDirty(slot, i, 1) {
						return fmt.Errorf("the journal has more dirty blocks than the cache can pin; open it with the size and block size that it had")
					}
					r.out.DirtySectors++
				case has(f.valid, i) && !d.opt.TakeOver:
					d.ix.SetValid(slot, i, 1)
				}
			}
		}
	}
	d.loading = false
	taken := make([]bool, d.totalFrames)
	for s, frame := range d.frameOf {
		if frame != noFrame {
			taken[frame] = true
			if !d.ix.Dirty(hostcache.Slot(s), 0, d.per) {
				r.out.CleanBlocks++
			}
		}
	}
	d.freeFrames = d.freeFrames[:0]
	for f := len(taken) - 1; f >= 0; f-- {
		if !taken[f] {
			d.freeFrames = append(d.freeFrames, uint32(f))
		}
	}
	// The next snapshot goes to the half that is not the one just read.
	d.j.epoch = r.out.Epoch
	d.j.where = uint64(max(r.newest, 0))
	if r.newest < 0 {
		d.j.where = 1
	}
	return nil
}

func count(w []uint64) int {
	n := 0
	for _, x := range w {
		n += bits.OnesCount64(x)
	}
	return n
}
