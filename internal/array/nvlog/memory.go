// The region in parts, and that one which is not local hears of every write before it is made. All
// writes of this package go through here, but for what is counted in rows.

package nvlog

import "github.com/arraysim/arraysim/internal/block"

// memory is the parts of a region as the package uses them: see [block.Region], which says what a
// store does with them. A write goes through touch or write, so that a region that is not local
// hears of it; one that is costs a comparison.
//
//	header    the state part: the header, and the state block in sectors of its own
//	counters  words of 8 bytes, written in place without an announcement; they need no flush
//	descs     64 bytes a page, announced, written word by word
//	the log   records, each appended as a whole; never read but at a start
//	data      4 KiB a page, announced, then filled; read in place, and handed to media as it is
type memory struct {
	region   block.Region
	told     block.Region // the same if it hears of what is written, else nil
	local    bool
	header   []byte
	counters []byte
	descs    []byte
	data     []byte
}

func memoryOf(r block.Region) memory {
	parts := r.Memory()
	m := memory{region: r, local: r.Local(), header: parts.State, counters: parts.Counters, descs: parts.Descriptors, data: parts.Pages}
	if l, ok := r.(block.Listener); !m.local || ok && l.Listen() {
		m.told = r
	}
	return m
}

// touch announces that n bytes of a part are about to be written.
func (m *memory) touch(part block.Part, off, n int) {
	if m.told != nil {
		m.told.Announce(part, off, n)
	}
}

// write puts a record at its place in the ring.
func (m *memory) write(at int, record []byte) { m.region.Append(at, record) }

// Local reports whether what is in NVRAM survives the death of the process at once.
func (m *memory) Local() bool { return m.local }

// Commit calls done when all that is in NVRAM now survives the death of the process, in the order
// of the calls. Who has written tells nobody before.
func (m *memory) Commit(done func(error)) { m.region.Commit(done) }

// flush makes all that was written durable, what an earlier flush has failed to write, too.
func (m *memory) flush(done func(error)) { m.region.Flush(done) }

// flushNow is flush that waits; only used during a start.
func (m *memory) flushNow() error { return m.region.FlushNow() }

// reader reads the ring at a start, a good piece at a time.
type reader struct {
	region block.Region
	size   int // of the ring
	at     int // where buf begins
	buf    []byte
}

// readAhead is how much of the ring is read at a time, at the least a record.
const readAhead = 256 << 10

func newReader(m *memory, size int) *reader {
	return &reader{region: m.region, size: size, buf: make([]byte, 0, min(size, readAhead))}
}

// from returns bytes of the ring from a place on: a record of any length has room in them, unless
// the ring ends before.
func (r *reader) from(at int) ([]byte, error) {
	if want := min(r.size-at, maxRecord); at < r.at || at+want > r.at+len(r.buf) {
		r.at, r.buf = at, r.buf[:min(r.size-at, cap(r.buf))]
		if err := r.region.ReadLog(at, r.buf); err != nil {
			r.buf = r.buf[:0]
			return nil, err
		}
	}
	return r.buf[at-r.at:], nil
}
