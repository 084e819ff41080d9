package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

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
	view  view
	hot   hotSums // only touched on the executor
	// gone: it is removed; its files are closed when what is under way has ended. Only touched on the executor.
	gone bool
	// fds are the descriptors of both files; rings: a ring may have them, only touched on the executor.
	fds   [2]int
	rings bool
	// discarded are the bytes that Discard has discarded; only touched on the executor.
	discarded uint64
	// users are the transfers and calls under way, and the pool until it removes the mdisk; the last one
	// closes it.
	users atomic.Int32

	queue // of its transfers; only touched on the executor
	// The lines of what may wait for the disk, each for itself: a read is not behind a sync.
	reads, writes, marks, syncs, holes line

	past bypassing

	vecs sync.RWMutex // guards the buffers of reads under way; who reads into them holds it shared
}

func (s *Files) mdiskPath(name string) string { return filepath.Join(s.dir, "mdisk", name+".img") }
func (s *Files) sumPath(name string) string   { return filepath.Join(s.dir, "mdisk", name+".sum") }

// Medium opens or creates the files of an mdisk, or hands out what MakeMedium made. A start that tries the other copy of the
// meta store asks once more for what the first try has opened, and gets it: its lock is ours already, and a second
// descriptor would outlive the mdisk. What else is open under the name is let go, as it is no pool's.
func (s *Files) Medium(name string, size uint64) (block.Medium, error) {
	if s.closed {
		return nil, ErrClosed
	}
	m := s.made[name]
	delete(s.made, name)
	if at := slices.IndexFunc(s.media, func(o *fileMedium) bool { return o.name == name }); at >= 0 {
		old := s.media[at]
		if m == nil && old.size == size {
			return old, nil
		}
		s.media = slices.Delete(s.media, at, at+1)
		old.gone = true
		old.cool()
		_ = old.release() // nothing was written to it
	}
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
	of := "mdisk " + name
	m := &fileMedium{s: s, name: name, f: f, size: size, reads: line{limit: readThreads, name: of}, writes: line{limit: writeThreads, name: of},
		marks: line{limit: 1, name: of}, syncs: line{limit: 1, name: of}, holes: line{limit: 1, name: of}}
	m.users.Store(1)
	if err := m.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("mdisk %s: %w", name, err), m.close())
	}
	m.openView()
	data, ok := m.f.(descriptor)
	sums, ok2 := m.sums.(descriptor)
	if m.rings = ok && ok2; m.rings {
		m.fds = [2]int{data.Descriptor(), sums.Descriptor()}
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
	if err == nil {
		err = m.openBypass() // before anything is read
	}
	if err != nil {
		return err
	}
	_, err = m.s.fs.Stat(m.s.sumPath(m.name))
	if errors.Is(err, os.ErrNotExist) {
		if have != 0 {
			m.s.notice("mdisk %s has no checksums, because an older version created it: they are computed from its data now", m.name)
		}
		return m.makeSums()
	}
	if err != nil {
		return fmt.Errorf("its checksums cannot be examined: %w", err)
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
		return fmt.Errorf("the file of its checksums has %d bytes, it should have %d; restore it from a copy, or remove it to have it rebuilt from the current data", have, want)
	case le.Uint32(h[12:]) != crc32.Checksum(h[:12], castagnoli) && !mendBit(h):
		return fmt.Errorf("the file of its checksums has a damaged header; restore it from a copy, or remove it to have it rebuilt from the current data")
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
	tmp := path + newSuffix
	if err := m.s.removeOld(tmp); err != nil {
		return err
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
		err = m.s.named(f, tmp, path)
	}
	if err != nil {
		return fmt.Errorf("its checksums cannot be created: %w", err)
	}
	return nil
}

func (m *fileMedium) close() error {
	err := m.f.Close()
	for _, f := range []DataFile{m.sums, m.past.file} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

func (m *fileMedium) Size() uint64 { return m.size }

// beginner is a DataFile that can begin a Sync without waiting for its end.
type beginner interface {
	BeginSync()
}

// Sync waits for the disk, in a line of its own: the data, then its checksums, both of which are
// on their way at the same time.
func (m *fileMedium) Sync(done func(error)) {
	if m.s.instant && !m.s.closed {
		done(nil)
		return
	}
	m.s.call(&m.syncs, m, func() error {
		if b, ok := m.sums.(beginner); ok {
			b.BeginSync()
		}
		return errors.Join(m.f.Sync(), m.sums.Sync())
	}, done)
}
