package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/hostcache"
)

// snapshot is one that is being written, a piece at a time.
type snapshot struct {
	next hostcache.Slot
	o    op
}

// pieceBytes is about the size of a snapshot's pieces: the executor is free between them, and memory is
// bounded.
const pieceBytes = 256 << 10

// settle takes a snapshot when one is wanted and nothing is half-way.
func (j *journal) settle() {
	if !j.compact || j.open > 0 || len(j.batches) > 0 || j.snapshot != nil {
		return
	}
	d := j.d
	for _, m := range d.members {
		if m.state == memberWanted && d.clean() {
			m.state = memberJoining
		}
	}
	j.snapshot = &snapshot{o: op{d: d, mode: freeMode, pending: 1}}
	j.snapshot.o.step = func(*op) { j.begin() }
	if !d.opt.PowerSafe {
		d.syncAll(&j.snapshot.o) // the other half is overwritten, and may be all that survives power loss
	}
	j.snapshot.o.less()
}

func (j *journal) begin() {
	j.where ^= 1
	j.epoch++
	j.seq, j.used = 0, 0
	j.shed()
	b := j.newBatch()
	j.writePiece(b, j.d.appendHead(append(b.buf[:0], make([]byte, batchHead)...)))
}

// writePiece fills up a piece of the snapshot and writes it. What changes meanwhile is in records behind the
// snapshot; to read them over what is newer already does no harm, for each says what is, and no frame gets
// another block before the snapshot ends.
func (j *journal) writePiece(b *batch, buf []byte) {
	s, d := j.snapshot, j.d
	for int(s.next) < len(d.frameOf) && len(buf)+int(entrySize(d.per)) <= j.piece() {
		buf = d.appendEntry(buf, s.next)
		s.next++
	}
	kind := uint32(batchSnapshot)
	if int(s.next) == len(d.frameOf) {
		kind = batchSnapshotEnd
	}
	b.buf = buf
	s.o.pending = 1
	s.o.step = func(*op) {
		if kind == batchSnapshotEnd {
			j.ended()
			return
		}
		b := j.newBatch()
		j.writePiece(b, append(b.buf[:0], make([]byte, batchHead)...))
	}
	b.waiting = append(b.waiting, &s.o)
	j.batches = append(j.batches, b)
	j.write(b, kind)
}

func (j *journal) piece() int {
	if j.d.pieceBytes > 0 {
		return j.d.pieceBytes
	}
	return pieceBytes
}

func (j *journal) ended() {
	j.snapshot, j.compact = nil, false
	d := j.d
	for i, o := range j.after {
		j.after[i] = nil
		o.less()
	}
	j.after = j.after[:0]
	for _, m := range d.members {
		if m.state == memberJoining {
			m.state = memberWhole
			d.marks.due = true
		}
	}
	if d.marks.due && !d.opening {
		d.mark()
	}
	d.review()
}

// Snapshot: magic 8, sectors of the LUN 8, generation of the device 8, damaged ranges 8, and these: start 8,
// count 8; then for every resident block: key 8, frame 4, a bit a sector for validity and for dirtiness.
const (
	snapshotMagic = "ASHCACH3"
	snapshotHead  = 32
	// maxDamaged is the number of damaged ranges that the layout has room for; see damagedRoom.
	maxDamaged = 4096
)

func entrySize(per int) uint64 { return 12 + 2*uint64(per)/8 }

// damagedRoom returns how many damaged ranges a snapshot can have without taking the room of the
// records behind it: those that the layout has room for, the room that blocks cannot need, and a
// quarter of the slack, which shed leaves to them.
func (j *journal) damagedRoom() int {
	size, frames := entrySize(j.d.per), j.d.totalFrames
	pieces := frames*size/(pieceBytes-batchHead-size) + 2
	return int((j.half - j.slack + j.slack/4 - snapshotHead - frames*size - pieces*(batchHead+batchAlign)) / 16)
}

func (d *Disk) appendHead(b []byte) []byte {
	damaged := d.damaged
	if most := d.j.damagedRoom(); len(damaged) > most {
		// At the next start more is damaged than is lost. Until then nothing beside it is.
		damaged = slices.Clone(damaged)
		damaged.coarsen(most)
	}
	b = append(b, snapshotMagic...)
	b = le.AppendUint64(b, d.info.Sectors)
	b = le.AppendUint64(b, d.generation.known)
	b = le.AppendUint64(b, uint64(len(damaged)))
	for _, r := range damaged {
		b = le.AppendUint64(b, r.Start)
		b = le.AppendUint64(b, r.Count)
	}
	return b
}

func (d *Disk) appendEntry(b []byte, slot hostcache.Slot) []byte {
	frame := d.frameOf[slot]
	if frame == noFrame || d.ix.ValidCount(slot) == 0 {
		return b
	}
	b = le.AppendUint64(b, uint64(d.ix.Key(slot)))
	b = le.AppendUint32(b, frame)
	b = d.appendBits(b, slot, d.ix.ValidRun)
	return d.appendBits(b, slot, d.ix.DirtyRun)
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
