package tier

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// The journal says which sectors of which blocks are in which frame, and which of
// them are dirty. It lies in front of the frames, in two halves. A half begins with a
// snapshot of everything; batches of records follow. When one is full, the other
// gets a new snapshot. Every batch has a checksum over its head and records, the
// epoch of its snapshot and a sequence number: reading ends at the first batch that
// does not follow the one before.
//
// Head of a batch, little endian:
//
//	 0  magic "ASHJ"      4  crc32c of the rest   8  epoch (8)
//	16  sequence (8)     24  bytes of records (4) 28  kind (4): 1 is a snapshot
const (
	batchMagic    = 0x4a485341
	batchHead     = 32
	batchRecords  = 0
	batchSnapshot = 1
	batchAlign    = block.SectorSize
)

// Records. All begin with their kind (1 byte).
//
//	written    key 8, frame 4, first 2, count 2, crc32c of each sector: these are dirty
//	filled     key 8, frame 4, first 2, count 2: these are valid and clean
//	destaged   start 8, count 8: the device below has these
//	forgotten  frame 4: the frame holds nothing any more
//	intent     start 8, count 8: the device below may change these by itself
//	superseded start 8, count 8: it has; what was dirty there is void
//	generation number 8: what others changed below up to this one is forgotten
const (
	recWritten = iota + 1
	recFilled
	recDestaged
	recForgotten
	recIntent
	recSuperseded
	recGeneration
)

const (
	rangeRecord      = 17
	generationRecord = 9
	writtenRecord    = 17
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

type journal struct {
	d    *Disk
	on   bool // false: the cache is volatile
	half uint64

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
	snapshot *op
}

// batch is one write to the journal.
type batch struct {
	o       op
	buf     []byte
	waiting []*op
	frames  []uint32 // free when it is durable
	done    bool
}

// await makes the op wait until all records so far are durable. It tells whether
// there was anything to wait for.
func (j *journal) await(o *op) bool {
	if !j.on || len(j.buf) <= batchHead && len(j.batches) == 0 {
		return false
	}
	o.pending++
	if len(j.buf) <= batchHead {
		b := j.batches[len(j.batches)-1]
		b.waiting = append(b.waiting, o)
		return true
	}
	j.waiting = append(j.waiting, o)
	return true
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
func (j *journal) written(k hostcache.Key, frame uint32, first, n int, v [][]byte, off uint64) {
	j.placed(recWritten, k, frame, first, n)
	vec := clip(j.d.clipped[:0], v, off, uint64(n)<<block.SectorShift)
	in, crc := 0, uint32(0)
	for _, b := range vec {
		for len(b) > 0 {
			k := min(block.SectorSize-in, len(b))
			crc = crc32.Update(crc, castagnoli, b[:k])
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
	le.PutUint64(h[8:], j.epoch)
	le.PutUint64(h[16:], j.seq)
	le.PutUint32(h[24:], uint32(records))
	le.PutUint32(h[28:], kind)
	le.PutUint32(h[4:], crc32.Checksum(b.buf[8:batchHead+records], castagnoli))
	at := j.where*j.half + j.used
	j.used += uint64(len(b.buf))
	j.seq++
	j.d.stats.JournalBytes += uint64(len(b.buf))
	vec := [1][]byte{b.buf}
	b.o.pending = 1
	for _, m := range j.d.members {
		if m.present {
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
		j.d.freeFrames = append(j.d.freeFrames, b.frames...)
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

// settle takes a snapshot when one is wanted and nothing is half-way.
func (j *journal) settle() {
	if !j.compact || j.open > 0 || len(j.batches) > 0 || j.snapshot != nil {
		return
	}
	for _, m := range j.d.members {
		if m.wanted && !m.lost && j.d.clean() {
			m.present, m.wanted = true, false
		}
	}
	j.where ^= 1
	j.epoch++
	j.seq, j.used = 0, 0
	b := j.newBatch()
	b.buf = j.d.appendSnapshot(append(b.buf[:0], make([]byte, batchHead)...))
	o := &op{d: j.d, mode: freeMode, pending: 1}
	o.step = func(*op) {
		j.snapshot, j.compact = nil, false
		j.d.review()
	}
	j.snapshot = o
	b.waiting = append(b.waiting, o)
	j.batches = append(j.batches, b)
	j.write(b, batchSnapshot)
}

// maxBatches bounds the journal's writes at one time: more would not be faster, they
// would be smaller.
const maxBatches = 4

func align(n uint64) uint64 { return (n + batchAlign - 1) &^ (batchAlign - 1) }

// Snapshot: magic 8, NAA of the device below 16, its sectors 8, sectors a block 4,
// frames 4, blocks 4, generation of the device 8; then for every resident block: key 8, frame 4, a bit a sector
// for validity and for dirtiness.
const (
	snapshotMagic = "ASHCACH2"
	snapshotHead  = 52
)

func entrySize(per int) uint64 { return 12 + 2*uint64(per)/8 }

func (d *Disk) appendSnapshot(b []byte) []byte {
	b = append(b, snapshotMagic...)
	b = append(b, d.info.NAA[:]...)
	b = le.AppendUint64(b, d.info.Sectors)
	b = le.AppendUint32(b, uint32(d.per))
	b = le.AppendUint32(b, uint32(d.totalFrames))
	count := len(b)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, d.generation.known)
	n := uint32(0)
	for s, frame := range d.frameOf {
		slot := hostcache.Slot(s)
		if frame == noFrame || d.ix.ValidCount(slot) == 0 {
			continue
		}
		n++
		b = le.AppendUint64(b, uint64(d.ix.Key(slot)))
		b = le.AppendUint32(b, frame)
		b = d.appendBits(b, slot, d.ix.ValidRun)
		b = d.appendBits(b, slot, d.ix.DirtyRun)
	}
	le.PutUint32(b[count:], n)
	return b
}

func (d *Disk) appendBits(b []byte, s hostcache.Slot, next func(hostcache.Slot, int) (int, int)) []byte {
	at := len(b)
	b = append(b, make([]byte, d.per/8)...)
	for i := 0; i < d.per; {
		start, n := next(s, i)
		if n == 0 {
			break
		}
		for k := start; k < start+n; k++ {
			b[at+k/8] |= 1 << (k % 8)
		}
		i = start + n
	}
	return b
}
