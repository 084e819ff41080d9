package tier

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// The journal says which sectors of which blocks are in which frame, and which of
// them are dirty. It lies behind the labels and in front of the frames, in two halves. A half begins with a
// snapshot of everything, in pieces; batches of records follow. When one is full, the other
// gets a new snapshot. Every batch has a checksum over its head and records, whose it is (cache,
// incarnation, LUN), the epoch of its snapshot and a sequence number: reading ends at the first batch that
// does not follow the one before, and nothing that another cache or an earlier opening left behind follows.
//
// Head of a batch, little endian:
//
//	 0  magic "ASHB"      4  crc32c of the rest   8  kind (4), flags (4)
//	16  cache (8)        24  incarnation (8)     32  NAA of the LUN (16)
//	48  epoch (8)        56  sequence (8)        64  bytes of records (8)
const (
	batchMagic = 0x42485341
	oldMagic   = 0x4a485341 // "ASHJ", of the version that had no labels
	batchHead  = 72
	batchAlign = block.SectorSize
)

// Kinds of batches.
const (
	batchRecords     = iota
	batchSnapshot    // a piece of the snapshot; the first one begins with snapshotHead bytes
	batchSnapshotEnd // the last piece
)

// batchLostWrites, a flag: the device below has lost power, and no flush has told of it yet.
const batchLostWrites = 1

// Records. All begin with their kind (1 byte).
//
//	written    key 8, frame 4, first 2, count 2, crc32c of each sector: these are dirty
//	overwritten as written: over sectors that were flushed, and the record is synced before the data is sent
//	filled     key 8, frame 4, first 2, count 2: these are valid and clean
//	destaged   start 8, count 8: the device below has these
//	forgotten  frame 4: the frame holds nothing any more
//	intent     start 8, count 8: the device below may change these by itself
//	superseded start 8, count 8: it has; what was dirty there is void
//	generation number 8: what others changed below up to this one is forgotten
//	damaged    start 8, count 8: these were dirty and are lost; reads fail until they are written
const (
	recWritten = iota + 1
	recFilled
	recDestaged
	recForgotten
	recIntent
	recSuperseded
	recGeneration
	recDamaged
	recOverwritten
)

const (
	rangeRecord      = 17
	forgottenRecord  = 5
	generationRecord = 9
	writtenRecord    = 17
)

var le = binary.LittleEndian

type journal struct {
	d    *Disk
	on   bool // false: the cache is volatile
	half uint64
	// slack is the room behind the largest snapshot. More records than that must not wait: see shed.
	slack uint64

	epoch uint64 // of the present half
	where uint64 // 0 or 1: the present half
	seq   uint64 // of the next batch
	used  uint64 // bytes of the present half

	buf     []byte // records that wait, behind room for a head
	waiting []*op  // for buf
	frames  []uint32
	batches []*batch // under way, in order
	spare   []*batch
	// open counts ops whose "written" record is in this half and whose sectors are not
	// dirty in the index yet: no snapshot can be taken meanwhile.
	open     int
	opened   int // of those, in buf
	compact  bool
	snapshot *snapshot
	after    []*op // wait for its end
	// firstEpoch is the oldest epoch of this opening.
	firstEpoch uint64
	// limbo are frames that the journal has forgotten, and would know again after a loss of power: without
	// PowerSafe they are free with the next sync.
	limbo   []uint32
	syncing bool // for limbo
	resets  int  // of limbo, by another size
	// loose are the sectors, by frame, whose record was synced before they were overwritten, or that hold nothing that
	// was flushed: they can be overwritten without waiting for a sync. Only without PowerSafe.
	loose     []uint64
	looseness []uint32 // frames that have some, each once
	listed    []uint64 // those, a bit a frame
	flushes   uint64   // that have begun
}

// batch is one write to the journal.
type batch struct {
	o       op
	buf     []byte
	waiting []*op
	frames  []uint32 // free when it is durable
	done    bool
}

// await makes the op wait until the journal has all records so far.
func (j *journal) await(o *op) {
	if !j.on || len(j.buf) <= batchHead && len(j.batches) == 0 && j.snapshot == nil {
		return
	}
	o.pending++
	j.d.release(o)
	switch {
	case len(j.buf) > batchHead:
		j.waiting = append(j.waiting, o)
	case j.snapshot != nil:
		j.after = append(j.after, o)
	default:
		b := j.batches[len(j.batches)-1]
		b.waiting = append(b.waiting, o)
	}
}

// recorded runs a step of an op when the journal has all records so far. lasting: when they would
// survive a loss of power, too.
func (d *Disk) recorded(o *op, lasting bool, step func(*op)) {
	o.step = step
	if lasting && !d.opt.PowerSafe {
		o.step = func(o *op) { d.sync(o, step) }
	}
	o.pending = 1
	d.j.await(o)
	o.less()
}

func (j *journal) record(kind byte) {
	if len(j.buf) == 0 {
		j.buf = append(j.buf, make([]byte, batchHead)...)
	}
	j.buf = append(j.buf, kind)
}

func (j *journal) ranged(kind byte, r block.Range) {
	if !j.on {
		return
	}
	j.record(kind)
	j.buf = le.AppendUint64(j.buf, r.Start)
	j.buf = le.AppendUint64(j.buf, r.Count)
}

func (j *journal) generation(n uint64) {
	if !j.on {
		return
	}
	j.record(recGeneration)
	j.buf = le.AppendUint64(j.buf, n)
}

func (j *journal) placed(kind byte, k hostcache.Key, frame uint32, first, n int) {
	j.record(kind)
	j.buf = le.AppendUint64(j.buf, uint64(k))
	j.buf = le.AppendUint32(j.buf, frame)
	j.buf = le.AppendUint16(j.buf, uint16(first))
	j.buf = le.AppendUint16(j.buf, uint16(n))
}

// written records sectors that become dirty; v has their data from byte off on.
func (j *journal) written(kind byte, k hostcache.Key, frame uint32, first, n int, v [][]byte, off uint64) {
	j.placed(kind, k, frame, first, n)
	vec := clip(j.d.clipped[:0], v, off, uint64(n)<<block.SectorShift)
	in, crc := 0, uint32(0)
	for _, b := range vec {
		for len(b) > 0 {
			k := min(block.SectorSize-in, len(b))
			crc = crc32c.Update(crc, b[:k])
			b = b[k:]
			if in += k; in == block.SectorSize {
				j.buf = le.AppendUint32(j.buf, crc)
				in, crc = 0, 0
			}
		}
	}
	clear(vec)
	j.d.clipped = vec[:0]
}

// recordWrite records a write to a part of a block. It tells whether some of it lies over sectors that were
// flushed: the record must survive power loss then before the data is sent.
func (j *journal) recordWrite(g segment, v [][]byte, off uint64) (overFlushed bool) {
	d := j.d
	k, frame, first := d.ix.Key(g.slot), d.frameOf[g.slot], int(g.Start%uint64(d.per))
	for at, end := first, first+int(g.Count); at < end; {
		n := end - at
		kind := byte(recWritten)
		if !d.opt.PowerSafe {
			flushed := j.firm(g.slot, at)
			for n = 1; at+n < end && j.firm(g.slot, at+n) == flushed; n++ {
			}
			if flushed {
				kind, overFlushed = recOverwritten, true
			}
		}
		j.written(kind, k, frame, at, n, v, off)
		off += uint64(n) << block.SectorShift
		at += n
	}
	return overFlushed
}

// firm tells whether a sector holds something that may have been flushed, and is nowhere else.
func (j *journal) firm(s hostcache.Slot, i int) bool {
	if !j.d.ix.Dirty(s, i, 1) {
		return false
	}
	at := int(j.d.frameOf[s])*j.d.per + i
	return j.loose == nil || !has(j.loose, at)
}

func set(w []uint64, i int, on bool) {
	if on {
		w[i/64] |= 1 << (i % 64)
	} else {
		w[i/64] &^= 1 << (i % 64)
	}
}

func has(w []uint64, i int) bool { return w[i/64]>>(i%64)&1 != 0 }

func (j *journal) filled(k hostcache.Key, frame uint32, first, n int) {
	if j.on {
		j.placed(recFilled, k, frame, first, n)
	}
}

// forgotten records that a frame is empty; it can be used again when that is durable.
func (j *journal) forgotten(frame uint32) {
	if !j.on {
		j.d.freeFrames = append(j.d.freeFrames, frame)
		return
	}
	j.record(recForgotten)
	j.buf = le.AppendUint32(j.buf, frame)
	j.frames = append(j.frames, frame)
}

// kick writes what waits.
func (j *journal) kick() {
	if !j.on || j.compact || len(j.buf) <= batchHead || len(j.batches) >= maxBatches {
		return
	}
	n := align(uint64(len(j.buf)))
	if j.used+n > j.half {
		j.compact = true
		j.settle()
		return
	}
	b := j.newBatch()
	b.buf, j.buf = j.buf, b.buf[:0]
	b.waiting, j.waiting = j.waiting, b.waiting[:0]
	b.frames, j.frames = j.frames, b.frames[:0]
	j.open += j.opened
	j.opened = 0
	j.batches = append(j.batches, b)
	j.write(b, batchRecords)
}

// crowded tells whether so many records wait that none should be made that can be done without.
func (j *journal) crowded() bool { return j.on && uint64(len(j.buf)) > j.slack/4 }

// takes tells whether there is room for the records of a write, whatever they turn out to be.
func (j *journal) takes(sectors, blocks uint64) bool {
	records := blocks
	if !j.d.opt.PowerSafe {
		records = sectors // each may be of another kind than its neighbours
	}
	return uint64(len(j.buf))+records*writtenRecord+4*sectors <= j.slack/2
}

// shed leaves out what the snapshot that begins now says itself, if the records that wait would not fit behind it: they came while
// the one before was written, and no snapshot would ever make room for them. Writes under way are in no snapshot; see takes.
func (j *journal) shed() {
	if align(uint64(len(j.buf))) <= j.slack-j.slack/4 { // the rest may be damaged ranges
		return
	}
	kept := j.buf[:batchHead]
	for b := j.buf[batchHead:]; len(b) > 0; {
		n := recordLen(b)
		if b[0] == recWritten || b[0] == recOverwritten {
			kept = append(kept, b[:n]...)
		}
		b = b[n:]
	}
	j.buf = kept
	j.ranged(recIntent, block.Range{}) // so that there is one: ops wait for it, and frames
}

// recordLen returns the length of the record that b begins with, which is one of ours.
func recordLen(b []byte) int {
	switch b[0] {
	case recWritten, recOverwritten:
		return writtenRecord + 4*int(le.Uint16(b[15:]))
	case recFilled:
		return writtenRecord
	case recForgotten:
		return forgottenRecord
	case recGeneration:
		return generationRecord
	}
	return rangeRecord
}

func (j *journal) newBatch() *batch {
	if n := len(j.spare); n > 0 {
		b := j.spare[n-1]
		j.spare = j.spare[:n-1]
		b.done = false
		return b
	}
	b := &batch{}
	b.o = op{d: j.d, mode: freeMode}
	b.o.step = func(*op) { j.wrote(b) }
	return b
}

// write seals a batch and writes it to every flash device.
func (j *journal) write(b *batch, kind uint32) {
	records := len(b.buf) - batchHead
	b.buf = append(b.buf, make([]byte, align(uint64(len(b.buf)))-uint64(len(b.buf)))...)
	h := b.buf[:batchHead]
	le.PutUint32(h, batchMagic)
	flags := uint32(0)
	if j.d.lostWrites {
		flags = batchLostWrites
	}
	le.PutUint32(h[8:], kind)
	le.PutUint32(h[12:], flags)
	le.PutUint64(h[16:], j.d.cache)
	le.PutUint64(h[24:], j.d.incarnation)
	copy(h[32:48], j.d.info.NAA[:])
	le.PutUint64(h[48:], j.epoch)
	le.PutUint64(h[56:], j.seq)
	le.PutUint64(h[64:], uint64(records))
	le.PutUint32(h[4:], crc32c.Checksum(b.buf[8:batchHead+records]))
	at := labelBytes + j.where*j.half + j.used
	j.used += uint64(len(b.buf))
	j.seq++
	j.d.stats.JournalBytes += uint64(len(b.buf))
	vec := [1][]byte{b.buf}
	b.o.pending = 1
	for _, m := range j.d.members {
		if m.written() {
			m.write(&b.o, at, vec[:])
		}
	}
	b.o.less()
}

// wrote goes on with those who waited, in the order of the batches.
func (j *journal) wrote(b *batch) {
	b.done = true
	for len(j.batches) > 0 && j.batches[0].done {
		b := j.batches[0]
		copy(j.batches, j.batches[1:])
		j.batches = j.batches[:len(j.batches)-1]
		for i, o := range b.waiting {
			b.waiting[i] = nil
			o.less()
		}
		if j.d.opt.PowerSafe {
			j.d.freeFrames = append(j.d.freeFrames, b.frames...)
		} else {
			j.limbo = append(j.limbo, b.frames...)
			j.reclaim()
		}
		b.buf, b.waiting, b.frames = b.buf[:0], b.waiting[:0], b.frames[:0]
		j.spare = append(j.spare, b)
	}
	j.settle()
}

// closed is called when the sectors of a "written" record are dirty in the index.
func (j *journal) closed() {
	j.open--
	j.settle()
}

// renew asks for a new snapshot, which makes copies of joining peers complete.
func (j *journal) renew() {
	if j.on {
		j.compact = true
		j.settle()
	}
}

// reclaim has the flash synced when frames that the journal has forgotten are needed.
func (j *journal) reclaim() {
	d := j.d
	if j.syncing || len(j.limbo) == 0 || len(d.freeFrames) > d.spareFrames/2 {
		return
	}
	j.syncing = true
	n, resets := len(j.limbo), j.resets
	o := &op{d: d, mode: freeMode, pending: 1}
	o.step = func(*op) {
		j.syncing = false
		if resets != j.resets {
			return
		}
		d.freeFrames = append(d.freeFrames, j.limbo[:n]...)
		j.limbo = j.limbo[:copy(j.limbo, j.limbo[n:])]
		j.reclaim()
	}
	d.syncAll(o)
	o.less()
}

// maxBatches bounds the journal's writes at one time: more would not be faster, they
// would be smaller.
const maxBatches = 4

func align(n uint64) uint64 { return (n + batchAlign - 1) &^ (batchAlign - 1) }
