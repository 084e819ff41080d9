// Where the log ends, and its replay. A start calls Start, FindEnd, Replay, Flusher.Truncate. After
// a loss of power it ends before the first record that lacks a page, and never in the middle of a
// command.

package nvlog

import "fmt"

// Unfit is the error of a log that does not go with a checkpoint's position, of which nobody knows
// which of the two is wrong: the log may go with another checkpoint, and then lacks nothing that
// NVRAM itself knows of.
type Unfit struct{ error }

// Start makes the log begin at a checkpoint's position: behind record seq, at an offset of the
// ring.
func (l *Log) Start(seq uint64, tail int) error {
	if tail < 0 || tail > l.size {
		return Unfit{fmt.Errorf("the checkpoint points beyond the end of the log; the data folder mixes files of two arrays")}
	}
	l.seq, l.tail = seq, tail
	return nil
}

// scan walks the valid records from the tail on and calls fn with the number and the bytes of each
// until it returns false. It returns where it stopped and the number of the last. With repair, a
// record that only one flipped bit makes invalid is put right.
func (l *Log) scan(repair bool, fn func(seq uint64, record []byte) bool) (head int, seq uint64, err error) {
	at, seq := l.tail, l.seq
	r := newReader(&l.nv.memory, l.size)
	for {
		if at+recordHead > l.size {
			at = 0
		}
		b, err := r.from(at)
		if err != nil {
			return at, seq, fmt.Errorf("the log of the write cache cannot be read: %w", err)
		}
		if !validRecord(b, seq+1) {
			if !repair || !repairRecord(b, seq+1) {
				return at, seq, nil
			}
			l.nv.write(at, b[:le.Uint32(b[4:])])
		}
		b = b[:le.Uint32(b[4:])]
		if !fn(seq+1, b) {
			return at, seq, nil
		}
		seq++
		if at += len(b); isWrap(b) {
			at = 0
		}
	}
}

// End is the end of a log that was found at a start.
type End struct {
	Last      uint64 // number of the last record that counts
	Undone    uint64 // records behind it that a loss of power left incomplete, and what came after
	PowerLost bool   // the machine was started anew, so that only what was flushed can be trusted
}

// found is what a scan has found of the log's records.
type found struct {
	first, last uint64 // their numbers
	pages       []uint16
	open        []bool // the record's command goes on behind it
}

// whole returns the last record up to seq that ends a command: one of which only the first records
// are there was never answered.
func (f *found) whole(seq uint64) uint64 {
	for seq >= f.first && f.open[seq-f.first] {
		seq--
	}
	return seq
}

// beyond returns how many commands end behind a record; the wrap of the ring counts as one.
func (f *found) beyond(seq uint64) (n int) {
	for i, open := range f.open {
		if !open && f.first+uint64(i) > seq {
			n++
		}
	}
	return n
}

func (l *Log) find() (*found, error) {
	f := &found{first: l.seq + 1}
	var err error
	_, f.last, err = l.scan(true, func(_ uint64, b []byte) bool {
		f.pages = append(f.pages, recordPages(b))
		more := hasMore(b)
		if isWrap(b) && len(f.open) > 0 {
			more = f.open[len(f.open)-1]
		}
		f.open = append(f.open, more)
		return true
	})
	return f, err
}

// FindEnd finds the last record that counts: the last valid one that ends a command; after a loss
// of power, the last such before the first that lacks a page. Where nobody has heard how a flush
// ended, the kernel may have lost the same, and then that is a loss of power, too. It may have lost
// the header's page, of which an older one says nothing of that flush, and ends before the log.
// flushed is the number up to which everything is known to be durable, fresh says that the region
// held nothing. An error says that records are missing that must be there; it is Unfit if NVRAM
// says so, whatever the checkpoint does.
func (l *Log) FindEnd(s Saved, flushed uint64, fresh bool) (End, error) {
	f, err := l.find()
	if err != nil {
		return End{}, err
	}
	end := End{PowerLost: !fresh && (!s.sameBoot(l.nv.region.Boot()) || s.damaged)}
	want, known := flushed, s.Flushed
	// A death leaves one command behind the newest that the header knows, at the most.
	if l.nv.version >= 2 && !fresh && !end.PowerLost && !s.unheard && f.beyond(s.newest) > 2 {
		s.unheard = true
		l.nv.region.Distrust()
	}
	switch {
	case fresh || end.PowerLost:
	case s.unheard:
		end.PowerLost = f.last < s.newest
	default:
		want, known = max(want, s.newest), max(known, s.newest)
	}
	if f.last < want {
		err := fmt.Errorf("the log in the write cache file is damaged at record %d: the %d changes that follow cannot be read; restore the data folder from a copy", f.last+1, want-f.last)
		if f.last < known {
			err = Unfit{err}
		}
		return end, err
	}
	end.Last = f.whole(f.last)
	if !end.PowerLost && !s.unheard || f.last <= flushed || l.off {
		return end, nil
	}
	// A page whose data alone is wrong was torn by a loss of power; else it is damage, and what it
	// loses is reported.
	for i, have := range l.nv.wholePages(flushed, f.last, end.PowerLost) {
		if seq := flushed + 1 + uint64(i); seq >= f.first && have < f.pages[seq-f.first] {
			end.Last = f.whole(seq - 1)
			end.Undone, end.PowerLost = f.last-end.Last, true
			break
		}
	}
	return end, nil
}

// wholePages counts the pages of each record from flushed+1 to last that are there: if torn, those
// with all their data, else those whose descriptor has a flipped bit, too.
func (n *NVRAM) wholePages(flushed, last uint64, torn bool) []uint16 {
	have := make([]uint16, last-flushed)
	for i := range uint32(n.Pages) {
		d := n.Descriptor(i)
		whole := n.mend(i) // the process may have died within a tombstone, and then the power failed
		// The data of a page with a tombstone may have been replaced already.
		if seq := d.Seq(); seq > flushed && seq <= last && whole && (d.Retired() || !torn || n.GoodSectors(i) == d.Mask()) {
			have[seq-flushed-1]++
		}
	}
	return have
}

// Replay calls fn for the edits of every record from the tail to last, and leaves the head behind
// it. written: the record has pages, which hold new data for all sectors that the edit makes data.
func (l *Log) Replay(last uint64, fn func(e Edit, written bool)) (err error) {
	l.head, l.seq, err = l.scan(false, func(seq uint64, b []byte) bool {
		if seq > last {
			return false
		}
		if !isWrap(b) {
			eachEdit(b, func(e Edit) { fn(e, recordPages(b) > 0) })
		}
		return true
	})
	return err
}

// clearHead makes sure that no record is found behind the head.
func (l *Log) clearHead() {
	if l.head+recordHead <= l.size {
		l.nv.write(l.head, make([]byte, recordHead))
	}
}
