package store

import "github.com/arraysim/arraysim/internal/block"

// Checksums of what is read again and again, in memory, so that a read of it costs one call and not
// two. They are hints: what does not match them is read with the checksums of the file, and only
// these count. They belong to the executor.
const (
	hotBytes = 4096                                   // of checksums in a part
	hotData  = hotBytes / sumBytes * block.SectorSize // of data whose checksums these are
	hotParts = 1024                                   // of an mdisk at most: 4 MiB, of 512 MiB of data
	hotAll   = 16 * hotParts                          // of all mdisks
)

// hotPart is one part, at the place that its number gives it.
type hotPart struct {
	sums []byte // nil: not read yet
	part uint64 // its number, and 1; 0: none
}

// hotSums are the parts of an mdisk.
type hotSums struct {
	parts []hotPart
}

// find returns the checksums of a transfer if they are all in one part that is there.
func (h *hotSums) find(off, n uint64) []byte {
	if h.parts == nil || n == 0 || off/hotData != (off+n-1)/hotData {
		return nil
	}
	p := &h.parts[off/hotData%hotParts]
	if p.sums == nil || p.part != off/hotData+1 {
		return nil
	}
	at := off % hotData / block.SectorSize * sumBytes
	return p.sums[at : at+n/block.SectorSize*sumBytes]
}

// drop forgets the parts of a range.
func (h *hotSums) drop(off, n uint64) {
	if h.parts == nil || n == 0 {
		return
	}
	first, last := off/hotData, (off+n-1)/hotData
	for i := first; i <= last && i < first+hotParts; i++ {
		if p := &h.parts[i%hotParts]; first < p.part && p.part <= last+1 {
			p.part = 0
		}
	}
}

// readAtOnce reads where nothing waits for a disk.
func (m *fileMedium) readAtOnce(io *block.IO) error {
	if m.inView(io) && m.transferInView(io, &m.own) {
		return nil
	}
	sums := m.hot.find(io.Off, io.N)
	if sums == nil || io.Class == block.ClassScrub {
		err := m.transferWith(io, &m.own)
		if err == nil {
			m.hold(io, m.own.list[0])
			m.heat(io)
		}
		return err
	}
	if err := readFull(m.f, io.Vec, int64(io.Off)); err != nil {
		return err
	}
	if m.verify(io, sums) == nil {
		m.hold(io, sums)
		return nil
	}
	m.hot.drop(io.Off, io.N)
	return m.transferWith(io, &m.own)
}

// writeAtOnce writes where nothing waits for a disk; near tells whether the mapping has all of it.
func (m *fileMedium) writeAtOnce(io *block.IO, near bool) (err error) {
	if !near || !m.transferInView(io, &m.own) {
		if err = m.transferWith(io, &m.own); err == nil {
			m.hold(io, nil)
		}
	}
	m.hot.put(io.Off, m.own.list[0])
	return err
}

// heat is told of a read whose checksums were not there. The second time that a part is met in its
// place it is read, if that does not wait and no write is under way.
func (m *fileMedium) heat(io *block.IO) {
	i := io.Off / hotData
	if m.gone || m.waits || io.Class == block.ClassScrub || len(m.writing.begun) > 0 || i != (io.Off+max(io.N, 1)-1)/hotData {
		return
	}
	if m.hot.parts == nil {
		m.hot.parts = make([]hotPart, hotParts)
	}
	p := &m.hot.parts[i%hotParts]
	if p.part != i+1 {
		if p.part = i + 1; p.sums != nil {
			m.s.cold = append(m.s.cold, p.sums)
			p.sums = nil
		}
		return
	}
	if p.sums != nil {
		return
	}
	b := m.s.coldPart()
	if b == nil {
		return
	}
	read := m.sums.ReadNow
	if m.s.instant {
		read = m.sums.Readv
	}
	end := int64(m.size / block.SectorSize * sumBytes) // of the last part
	n, err := read([][]byte{b}, sumAt(i*hotData))
	if err != nil || int64(n) < min(hotBytes, end-int64(i*hotBytes)) {
		m.s.cold = append(m.s.cold, b)
		return
	}
	p.sums = b
}

// put is told of checksums that a write brought.
func (h *hotSums) put(off uint64, sums []byte) {
	n := uint64(len(sums)) / sumBytes * block.SectorSize
	if to := h.find(off, n); to != nil {
		copy(to, sums)
		return
	}
	h.drop(off, n)
}

// cool gives all parts back.
func (m *fileMedium) cool() {
	for _, p := range m.hot.parts {
		if p.sums != nil {
			m.s.cold = append(m.s.cold, p.sums)
		}
	}
	m.hot.parts = nil
}

// coldPart returns a buffer for a part, nil if there are enough.
func (s *Files) coldPart() []byte {
	if n := len(s.cold); n > 0 {
		b := s.cold[n-1]
		s.cold = s.cold[:n-1]
		return b
	}
	if s.hotParts == hotAll {
		return nil
	}
	s.hotParts++
	return make([]byte, hotBytes)
}
