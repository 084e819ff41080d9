package nvlog

import "github.com/arraysim/arraysim/internal/block"

// memory is the region cut into its parts. It is the only code that sees the region as a whole: the
// log is appended to through write, pages and their descriptors are buffers that are announced and
// then filled, and a flush makes all that was written before it durable. So a store that is not one
// piece of local memory, such as one that a partner mirrors, has to offer no more than this:
//
//	header    written in place, in units of 512 bytes that a crash leaves whole or old
//	counters  written in place without an announcement, in words of 8 bytes; they need no flush
//	descs     64 bytes a page, announced, written word by word
//	ring      records, each announced and copied as a whole; never read but at a start
//	data      4 KiB a page, announced, then filled; read in place, and handed to media as it is
type memory struct {
	region   block.Region
	header   []byte
	counters []byte
	descs    []byte
	ring     []byte
	data     []byte
	// OnWrite is for tests: it is called before bytes of a part are written, counter rows apart.
	OnWrite func(part Part, b []byte)
}

// Part says which part of the region is written.
type Part uint8

// The parts.
const (
	PartHeader Part = iota // and the state block
	PartDescriptor
	PartLog
	PartData
)

// touch announces that bytes are about to be written.
func (m *memory) touch(part Part, b []byte) {
	if m.OnWrite != nil {
		m.OnWrite(part, b)
	}
}

// write copies a record to its place in the ring.
func (m *memory) write(at int, record []byte) {
	b := m.ring[at : at+len(record) : at+len(record)]
	m.touch(PartLog, b)
	copy(b, record)
}

// flush makes all that was written durable, what an earlier flush has failed to write, too.
func (m *memory) flush(done func(error)) { m.region.Flush(0, len(m.region.Bytes()), done) }

// flushNow is flush that waits; only used during a start.
func (m *memory) flushNow() error { return m.region.FlushNow(0, len(m.region.Bytes())) }
