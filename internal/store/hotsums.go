package store

import "github.com/arraysim/arraysim/internal/block"

// Checksums of what is read again and again, in memory, so that a read of it costs one call and not
// two. They are hints: what does not match them is read with the checksums of the file, and only
// these count. They belong to the executor.
const (
	hotBytes = 4096                                   // of checksums in a part
	hotData  = hotBytes / sumBytes * block.SectorSize // of data whose checksums these are
	hotParts = 8192                                   // of an mdisk at most: 32 MiB, of 4 GiB of data
	hotOwn   = 1024                                   // of these, that it may have whatever others have
	hotMore  = hotParts - hotOwn                      // of all mdisks, above what is their own
	hotAll   = 16*hotOwn + hotMore                    // of all mdisks: 92 MiB
)

// hotPart is one part, at the place that its number gives it.
type hotPart struct {
	sums []byte // nil: not read yet
	part uint64 // its number, and 1; 0: none
}

// hotSums are the parts of an mdisk.
type hotSums struct {
	parts []hotPart // as many as the mdisk has, hotParts at most
	count int       // of those that are there
}

// at returns the place of a part.
func (h *hotSums) at(part uint64) *hotPart { return &h.parts[part%uint64(len(h.parts))] }

// find returns the checksums of a transfer if they are all in one part that is there.
func (h *hotSums) find(off, n uint64) []byte {
	if h.parts == nil || n == 0 || off/hotData != (off+n-1)/hotData {
		return nil
	}
	p := h.at(off / hotData)
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
	for i := first; i <= last && i < first+uint64(len(h.parts)); i++ {
		if p := h.at(i); first < p.part && p.part <= last+1 {
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
		m.hot.parts = make([]hotPart, min((m.size+hotData-1)/hotData, hotParts))
	}
	p := m.hot.at(i)
	if p.part != i+1 {
		if p.part = i + 1; p.sums != nil {
			m.giveCold(p.sums)
			p.sums = nil
		}
		return
	}
	if p.sums != nil {
		return
	}
	b := m.coldPart()
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
		m.giveCold(b)
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
			m.giveCold(p.sums)
		}
	}
	m.hot.parts = nil
}

// coldPart returns a buffer for a part, nil if the mdisk, or all of them, have enough.
func (m *fileMedium) coldPart() []byte {
	s := m.s
	if m.hot.count >= hotOwn && s.hotMore == hotMore {
		return nil
	}
	var b []byte
	switch n := len(s.cold); {
	case n > 0:
		b = s.cold[n-1]
		s.cold = s.cold[:n-1]
	case s.hotParts == hotAll:
		return nil
	default:
		s.hotParts++
		b = make([]byte, hotBytes)
	}
	if m.hot.count++; m.hot.count > hotOwn {
		s.hotMore++
	}
	return b
}

// giveCold takes a buffer of the mdisk's back.
func (m *fileMedium) giveCold(b []byte) {
	if m.hot.count > hotOwn {
		m.s.hotMore--
	}
	m.hot.count--
	m.s.cold = append(m.s.cold, b)
}
