package store

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

func sumAt(off uint64) int64 { return int64(sumHeader + off/block.SectorSize*sumBytes) }

// scratch is a buffer for checksums, as the list of one buffer that a file wants; it is used again.
type scratch struct {
	list [1][]byte
}

// sized returns the scratch for the checksums of n bytes of data.
func (s *scratch) sized(n uint64) [][]byte {
	want := int(n / block.SectorSize * sumBytes)
	if cap(s.list[0]) < want {
		s.list[0] = make([]byte, want)
	}
	s.list[0] = s.list[0][:want]
	return s.list[:]
}

// readNow reads what needs no disk; false means that somebody else has to do it.
func (m *fileMedium) readNow(x *xfer) bool {
	io := x.io
	if m.waits {
		return false
	}
	n, err := m.f.ReadNow(io.Vec, int64(io.Off))
	if err == nil && uint64(n) == io.N {
		if x.known {
			if m.verify(io, x.own.list[0]) == nil {
				return true
			}
			m.hot.drop(io.Off, io.N)
			return false
		}
		buf := x.own.sized(io.N)
		if n, err = m.sums.ReadNow(buf, sumAt(io.Off)); err == nil && n == len(buf[0]) {
			return m.verify(io, buf[0]) == nil
		}
	}
	if errors.Is(err, errWaits) {
		m.alwaysWaits()
	}
	return false
}

// alwaysWaits is told that the file system cannot read without waiting. Nor can the kernel's threads that
// would do it for a ring: they are few, and for all mdisks.
func (m *fileMedium) alwaysWaits() { m.waits, m.rings = true, false }

// transferOften does one operation. A read that meets a write of the same
// sectors on its way may find new data with old checksums: it looks again.
func (m *fileMedium) transferOften(io *block.IO, own *scratch) error {
	err := m.transferWith(io, own)
	var sum *block.ChecksumError
	for wait := time.Millisecond; wait < 16*time.Millisecond && m.s.opt.Later == nil && errors.As(err, &sum); wait *= 2 {
		time.Sleep(wait)
		err = m.transferWith(io, own)
	}
	return err
}

// transferWith does one operation, whole, with its checksums; own is for these.
func (m *fileMedium) transferWith(io *block.IO, own *scratch) error {
	if !io.Write {
		list := own.sized(io.N)
		if err := readFull(m.f, io.Vec, int64(io.Off)); err != nil {
			return err
		}
		if err := readFull(m.sums, list, sumAt(io.Off)); err != nil {
			return err
		}
		return m.verify(io, list[0])
	}
	list := own.of(io)
	if err := m.writeData(io); err != nil {
		return err
	}
	return writeFull(m.sums, list, sumAt(io.Off))
}

// of returns the checksums of a write: those that it came with, or its data's.
func (s *scratch) of(io *block.IO) [][]byte {
	list := s.sized(io.N)
	buf := list[0]
	if uint64(len(io.Sums)) == io.N/block.SectorSize {
		for i, crc := range io.Sums {
			le.PutUint32(buf[i*sumBytes:], stored(crc))
		}
	} else {
		crc32c.EachSector(io.Vec, func(i int, crc uint32) { le.PutUint32(buf[i*sumBytes:], stored(crc)) })
	}
	return list
}

// verify compares what was read with its checksums. A checksum that differs by a
// single bit was flipped itself: damage of the data changes half of the bits.
func (m *fileMedium) verify(io *block.IO, sums []byte) error {
	if allMatch(io.Vec, sums) {
		return nil
	}
	var bad *block.ChecksumError
	crc32c.EachSector(io.Vec, func(i int, crc uint32) {
		want := le.Uint32(sums[i*sumBytes:])
		if want == stored(crc) || want == 0 && crc == crc32c.Zeros || bits.OnesCount32(want^stored(crc)) == 1 {
			return
		}
		if bad == nil {
			bad = &block.ChecksumError{Medium: m.name}
		}
		bad.Sectors = append(bad.Sectors, io.Off/block.SectorSize+uint64(i))
		bad.Sums = append(bad.Sums, want)
	})
	if bad == nil {
		return nil
	}
	return bad
}

// allMatch tells whether sectors have their checksums, many at a time; false means that
// one may not, or that the buffers do not end where sectors do.
func allMatch(vec [][]byte, sums []byte) bool {
	for _, b := range vec {
		if len(b)%block.SectorSize != 0 {
			return false
		}
		var want [32]uint32
		for len(b) > 0 {
			n := min(len(b)/block.SectorSize, len(want))
			for i := range n {
				if want[i] = le.Uint32(sums[i*sumBytes:]); want[i] == 0 {
					want[i] = crc32c.Zeros
				}
			}
			if !crc32c.Verify(b[:n*block.SectorSize], want[:n]) {
				return false
			}
			b, sums = b[n*block.SectorSize:], sums[n*sumBytes:]
		}
	}
	return true
}

// maxVec is the number of buffers that one system call takes (IOV_MAX).
const maxVec = 1024

func readFull(f DataFile, vec [][]byte, off int64) error  { return full(f.Readv, vec, off) }
func writeFull(f DataFile, vec [][]byte, off int64) error { return full(f.Writev, vec, off) }

// full repeats an operation until it is whole.
func full(op func([][]byte, int64) (int, error), vec [][]byte, off int64) error {
	for len(vec) > 0 {
		n, err := op(vec[:min(len(vec), maxVec)], off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
			return fmt.Errorf("%w (%w)", block.ErrFull, err)
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("the file ends at byte %d", off)
		}
		off += int64(n)
		if vec = advance(vec, n); vec == nil {
			return nil
		}
	}
	return nil
}

// advance drops n bytes from the front of a list. It copies the list before it cuts
// into a buffer: the list belongs to the array.
func advance(vec [][]byte, n int) [][]byte {
	for len(vec) > 0 && n >= len(vec[0]) {
		n -= len(vec[0])
		vec = vec[1:]
	}
	if len(vec) == 0 {
		return nil
	}
	if n > 0 {
		vec = append([][]byte(nil), vec...)
		vec[0] = vec[0][n:]
	}
	return vec
}
