package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// Every mdisk has a second file with the checksums of its sectors:
//
//	   0 magic "ARRSIMCS" | 8 version u32 = 1 | 12 crc32c of bytes 0..11 | 0 up to 4096
//	4096 for each sector of 512 bytes: u32, its CRC32C; 0: never written, reads as zeros
//
// A checksum of 0 is stored as 1. Both files are sparse. Data and checksums are not
// written atomically: the array frees a page of NVRAM only after a sync of the
// medium, which syncs both, so that a power cut between the two finds the page there
// and writes both again.
const (
	sumMagic   = "ARRSIMCS"
	sumVersion = 1
	sumHeader  = 4096
	sumBytes   = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func stored(crc uint32) uint32 {
	if crc == 0 {
		return 1
	}
	return crc
}

// fileMedium is one sparse file, and the file of its checksums.
type fileMedium struct {
	s    *Files
	name string
	f    DataFile
	sums DataFile
	size uint64
	// waits: the file system cannot read without waiting; only touched on the executor.
	waits bool
	own   scratch // checksums of an operation on the executor
	// discarded are the bytes that Discard has discarded; only touched on the executor.
	discarded uint64
	// users are the jobs of workers, and the pool until it removes the mdisk; the last one closes it.
	users atomic.Int32
}

func (s *Files) mdiskPath(name string) string { return filepath.Join(s.dir, "mdisk", name+".img") }
func (s *Files) sumPath(name string) string   { return filepath.Join(s.dir, "mdisk", name+".sum") }

// Medium opens or creates the files of an mdisk, or hands out what MakeMedium made.
func (s *Files) Medium(name string, size uint64) (block.Medium, error) {
	m := s.made[name]
	delete(s.made, name)
	if m == nil {
		var err error
		if m, err = s.openMedium(name, size); err != nil {
			return nil, err
		}
	}
	s.media = append(s.media, m)
	return m, nil
}

// openMedium opens or creates the files of an mdisk; on an error none is open.
func (s *Files) openMedium(name string, size uint64) (*fileMedium, error) {
	f, err := s.fs.OpenData(s.mdiskPath(name))
	if err != nil {
		return nil, fmt.Errorf("mdisk %s cannot be opened: %w", name, err)
	}
	m := &fileMedium{s: s, name: name, f: f, size: size}
	m.users.Store(1)
	if err := m.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("mdisk %s: %w", name, err), m.close())
	}
	return m, nil
}

func (m *fileMedium) open() error {
	have, err := m.f.Size()
	switch {
	case err != nil:
		return err
	case have == 0:
		err = errors.Join(m.f.Truncate(int64(m.size)), m.f.Sync())
	case have != int64(m.size):
		err = fmt.Errorf("its file has %d bytes, it should have %d; restore it from a copy", have, m.size)
	}
	if err != nil {
		return err
	}
	if _, err := m.s.fs.Stat(m.s.sumPath(m.name)); err != nil {
		if have != 0 {
			m.s.notice("mdisk %s has no checksums, as older versions made it: they are computed from its data now", m.name)
		}
		return m.makeSums()
	}
	return m.openSums()
}

func (m *fileMedium) openSums() error {
	var err error
	if m.sums, err = m.s.fs.OpenData(m.s.sumPath(m.name)); err != nil {
		return err
	}
	h := make([]byte, 16)
	if err := readFull(m.sums, [][]byte{h}, 0); err != nil {
		return fmt.Errorf("its checksums cannot be read: %w", err)
	}
	have, err := m.sums.Size()
	if err != nil {
		return err
	}
	switch want := int64(sumHeader + m.size/block.SectorSize*sumBytes); {
	case have != want:
		return fmt.Errorf("the file of its checksums has %d bytes, it should have %d; restore it from a copy, or remove it to have it made anew from the data as it is", have, want)
	case le.Uint32(h[12:]) != crc32.Checksum(h[:12], castagnoli) && !mendBit(h):
		return fmt.Errorf("the file of its checksums is damaged at its head; restore it from a copy, or remove it to have it made anew from the data as it is")
	case string(h[:8]) != sumMagic:
		return fmt.Errorf("the file of its checksums is not one of arraysim's")
	case le.Uint32(h[8:]) != sumVersion:
		return fmt.Errorf("its checksums have format %d, this program reads format %d; use the version that wrote them", le.Uint32(h[8:]), sumVersion)
	}
	return nil
}

// mendBit looks for the one bit of a head whose flip makes its checksum right.
func mendBit(h []byte) bool {
	for i := range len(h) * 8 {
		h[i/8] ^= 1 << (i % 8)
		if le.Uint32(h[12:]) == crc32.Checksum(h[:12], castagnoli) {
			return true
		}
		h[i/8] ^= 1 << (i % 8)
	}
	return false
}

// makeSums makes the file of checksums from the data as it is. It gets its name
// when it is whole, so that a crash in between starts anew.
func (m *fileMedium) makeSums() error {
	path := m.s.sumPath(m.name)
	tmp := path + ".new"
	if err := m.s.fs.Remove(tmp); err != nil {
		if _, serr := m.s.fs.Stat(tmp); serr == nil {
			return err
		}
	}
	f, err := m.s.fs.OpenData(tmp)
	if err != nil {
		return err
	}
	m.sums = f
	h := make([]byte, 16)
	copy(h, sumMagic)
	le.PutUint32(h[8:], sumVersion)
	le.PutUint32(h[12:], crc32.Checksum(h[:12], castagnoli))
	if err = f.Truncate(int64(sumHeader + m.size/block.SectorSize*sumBytes)); err == nil {
		err = writeFull(f, [][]byte{h}, 0)
	}
	const chunk = 1 << 20
	data, sums := make([]byte, chunk), make([]byte, 0, chunk/block.SectorSize*sumBytes)
	for at := int64(0); err == nil && at < int64(m.size); {
		start, end, serr := m.f.NextData(at)
		if err = serr; err != nil || start == end {
			break
		}
		start &^= block.SectorSize - 1
		end = min((end+block.SectorSize-1)&^(block.SectorSize-1), int64(m.size), start+chunk)
		b := data[:end-start]
		if err = readFull(m.f, [][]byte{b}, start); err != nil {
			break
		}
		sums = sums[:0]
		for ; len(b) > 0; b = b[block.SectorSize:] {
			crc := crc32c.Sector(b)
			if crc == crc32c.Zeros {
				sums = le.AppendUint32(sums, 0)
			} else {
				sums = le.AppendUint32(sums, stored(crc))
			}
		}
		err = writeFull(f, [][]byte{sums}, sumAt(uint64(start)))
		at = end
	}
	if err == nil {
		err = errors.Join(f.Sync(), m.s.fs.Rename(tmp, path))
	}
	if err == nil {
		err = m.s.syncFolder(filepath.Join(m.s.dir, "mdisk"))
	}
	if err != nil {
		return fmt.Errorf("its checksums cannot be made: %w", err)
	}
	return nil
}

func (m *fileMedium) close() error {
	err := m.f.Close()
	if m.sums != nil {
		err = errors.Join(err, m.sums.Close())
	}
	return err
}

func (m *fileMedium) Size() uint64 { return m.size }

// smallBatch is the number of bytes that are written at once where nothing waits
// for a disk: waking a worker would cost more.
const smallBatch = 64 << 10

// Submit does at once what cannot wait, and hands the rest to a worker, as one batch. The kernel and the
// workers take transfers in their order: class and deadline are not looked at.
func (m *fileMedium) Submit(ios []*block.IO) {
	var rest []*block.IO
	budget := uint64(0)
	if m.s.instant {
		budget = smallBatch
	}
	for _, io := range ios {
		switch {
		case !io.Write && m.readNow(io):
			io.Done(io)
			continue
		case io.Write && io.N <= budget:
			budget -= io.N
			io.Err = m.transferWith(io, &m.own)
			io.Done(io)
			continue
		}
		rest = append(rest, io)
	}
	if len(rest) > 0 {
		m.s.enqueue(job{f: m, ios: rest})
	}
}

// readNow reads what needs no disk; false means that a worker has to do it.
func (m *fileMedium) readNow(io *block.IO) bool {
	if m.s.instant {
		io.Err = m.transferWith(io, &m.own)
		return io.Err == nil
	}
	if m.waits {
		return false
	}
	n, err := m.f.ReadNow(io.Vec, int64(io.Off))
	if err == nil && uint64(n) == io.N {
		buf := m.own.sized(io.N)
		if n, err = m.sums.ReadNow(buf, sumAt(io.Off)); err == nil && n == len(buf[0]) {
			return m.verify(io, buf[0]) == nil
		}
	}
	m.waits = errors.Is(err, errWaits)
	return false
}

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

// readBuf is what a worker reads into, so that the buffers of a read can be taken back while
// the disk has it; Vec is that of the read then. It grows to the longest read, an extent.
type readBuf struct {
	b  []byte
	io block.IO
}

var errAbandoned = errors.New("nobody waits for it any more")

// Abandon gives the buffers of a read back.
func (m *fileMedium) Abandon(io *block.IO) {
	m.s.vecs.Lock()
	io.Vec = nil
	m.s.vecs.Unlock()
}

// transfer does one operation, into memory of the worker's and from there where it belongs, if
// it was not abandoned meanwhile.
func (m *fileMedium) transfer(io *block.IO, rb *readBuf) error {
	if io.Write {
		return m.transferOften(io)
	}
	m.s.vecs.Lock()
	gone := io.Vec == nil
	m.s.vecs.Unlock()
	if gone {
		return errAbandoned
	}
	if rb == nil {
		return m.transferOften(io)
	}
	if uint64(len(rb.b)) < io.N {
		rb.b = make([]byte, io.N)
	}
	rb.io.Off, rb.io.N, rb.io.Vec = io.Off, io.N, append(rb.io.Vec[:0], rb.b[:io.N])
	err := m.transferOften(&rb.io)
	m.s.vecs.Lock()
	defer m.s.vecs.Unlock()
	from := rb.b
	for _, to := range io.Vec {
		from = from[copy(to, from):]
	}
	return err
}

// transferOften does one operation. A read that meets a write of the same
// sectors on its way may find new data with old checksums: it looks again.
func (m *fileMedium) transferOften(io *block.IO) error {
	own := &scratch{}
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
	list := own.sized(io.N)
	buf := list[0]
	if !io.Write {
		if err := readFull(m.f, io.Vec, int64(io.Off)); err != nil {
			return err
		}
		if err := readFull(m.sums, list, sumAt(io.Off)); err != nil {
			return err
		}
		return m.verify(io, buf)
	}
	if uint64(len(io.Sums)) == io.N/block.SectorSize {
		for i, crc := range io.Sums {
			le.PutUint32(buf[i*sumBytes:], stored(crc))
		}
	} else {
		eachSector(io.Vec, func(i int, crc uint32) { le.PutUint32(buf[i*sumBytes:], stored(crc)) })
	}
	if err := writeFull(m.f, io.Vec, int64(io.Off)); err != nil {
		return err
	}
	return writeFull(m.sums, list, sumAt(io.Off))
}

// eachSector calls fn with the checksum of each sector of a list of buffers.
func eachSector(vec [][]byte, fn func(i int, crc uint32)) {
	i, in, crc := 0, 0, uint32(0)
	for _, b := range vec {
		for ; in == 0 && len(b) >= block.SectorSize; b = b[block.SectorSize:] {
			fn(i, crc32c.Sector(b))
			i++
		}
		for len(b) > 0 {
			n := min(len(b), block.SectorSize-in)
			crc = crc32.Update(crc, castagnoli, b[:n])
			b = b[n:]
			if in += n; in == block.SectorSize {
				fn(i, crc)
				i, in, crc = i+1, 0, 0
			}
		}
	}
}

// verify compares what was read with its checksums. A checksum that differs by a
// single bit was flipped itself: damage of the data changes half of the bits.
func (m *fileMedium) verify(io *block.IO, sums []byte) error {
	if allMatch(io.Vec, sums) {
		return nil
	}
	var bad *block.ChecksumError
	eachSector(io.Vec, func(i int, crc uint32) {
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

// Sync waits for the disk on a worker: the data, then its checksums.
func (m *fileMedium) Sync(done func(error)) {
	if m.s.instant {
		done(nil)
		return
	}
	m.s.enqueue(job{f: m, fn: func() {
		err := errors.Join(m.f.Sync(), m.sums.Sync())
		m.s.exec.Post(func() { done(err) })
	}})
}
