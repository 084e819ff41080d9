package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/uring"
)

// Writes past the page cache (O_DIRECT). The kernel writes back what lies in the page cache with
// some sixteen transfers under way, and a page costs it twice the processor time there. A ring has
// as many writes under way as the queue begins, and what a sync waits for is the disk's cache alone.
//
// All writes of an mdisk's data go that way, or none: a page that others had written to the page
// cache would stay there when a write past it ends. Reads go through the page cache all the same: the
// kernel takes out of it what is written. Checksums, which are 32 bytes a page, are written into the
// page cache, many transfers by one goroutine, in the order of their addresses.

// bypasser is a DataFile that can be written past the page cache.
type bypasser interface {
	// Bypass returns the same file, to be written that way, or nil where that cannot be. It waits for
	// writes of an earlier process that are still under way, for what the kernel has of a ring outlives its
	// process.
	Bypass() (DataFile, error)
	// Await waits in the same way, and nothing else.
	Await() error
}

// ownTime is how long an earlier process's writes are waited for.
const ownTime = 30 * time.Second

// own takes the lock of an open file. A write that a ring has under way holds the file open, so that
// the lock ends behind the last one. Only files that are written past the page cache keep it: a read of an
// earlier process that never ends does no harm. It reports whether there is a lock.
func own(fd int) (locked bool, err error) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := block.Again(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		switch {
		case err == nil:
			return true, nil
		case err != unix.EWOULDBLOCK: // a file system without locks, or one that has none now
			return false, nil
		case time.Since(begin) > ownTime:
			return false, errors.New("its file is locked: writes of an earlier process have not ended, or another program has it; check the disk, or end that program")
		}
	}
}

// Await takes the lock of the file for a moment.
func (o *osFile) Await() error {
	f, err := os.OpenFile(o.f.Name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = own(int(f.Fd()))
	return errors.Join(err, f.Close())
}

// Bypass opens the file once more, with O_DIRECT. It does not where blocks are larger than our sectors: a
// write that has to go through the page cache for that would have its errors, and those of others, told
// to who asks first. Nor does it where there are no locks.
func (o *osFile) Bypass() (DataFile, error) {
	f, err := os.OpenFile(o.f.Name(), os.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) { // the file system has no such writes
		return nil, o.Await()
	}
	if err != nil {
		return nil, err
	}
	locked, err := own(int(f.Fd()))
	if err == nil && locked && sectorsDirect(int(f.Fd())) {
		return &osFile{f: f, fd: int(f.Fd())}, nil
	}
	return nil, errors.Join(err, f.Close())
}

// sectorsDirect reports whether a single sector of a file that was opened with O_DIRECT can be read into
// memory that begins at a multiple of sectors, and of nothing more.
func sectorsDirect(fd int) bool {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer unix.Munmap(mem)
	err = block.Again(func() error {
		_, err := unix.Pread(fd, mem[block.SectorSize:2*block.SectorSize], block.SectorSize)
		return err
	})
	return err == nil
}

// bypassing is what an mdisk has that is written past the page cache.
type bypassing struct {
	file DataFile // nil: it is not
	fd   int

	ended []*xfer // the ring's, while it ends writes

	mu     sync.Mutex
	unsaid []*xfer // whose data is written, and whose checksums are not; guarded by mu
	busy   bool    // a job has been queued that will look at unsaid; guarded by mu
	work   []*xfer // for the job
	buf    scratch // the job's
}

// openBypass has the mdisk's data written past the page cache, if that is asked for and can be.
func (m *fileMedium) openBypass() error {
	b, ok := m.f.(bypasser)
	if !ok {
		return nil
	}
	if m.s.ring == nil || !m.s.opt.Direct {
		return b.Await()
	}
	f, err := b.Bypass()
	switch {
	case err != nil:
		return fmt.Errorf("its file cannot be opened to be written past the page cache: %w", err)
	case f == nil:
		m.s.notice("mdisk %s is written through the page cache: its file system or disk cannot write single sectors past it", m.name)
		return nil
	}
	m.past.file, m.past.fd = f, f.(descriptor).Descriptor()
	m.writes.limit = readThreads // where the ring is gone each waits for the disk
	return nil
}

// writeData writes the data of a transfer. What lies in memory as the kernel cannot write it past the
// page cache, which NVRAM does not, is copied first.
func (m *fileMedium) writeData(io *block.IO) error {
	if m.past.file == nil {
		return writeFull(m.f, io.Vec, int64(io.Off))
	}
	err := writeFull(m.past.file, io.Vec, int64(io.Off))
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	buf := make([]byte, io.N+block.SectorSize)
	if in := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % block.SectorSize; in > 0 {
		buf = buf[block.SectorSize-in:]
	}
	at := 0
	for _, b := range io.Vec {
		at += copy(buf[at:], b)
	}
	return writeFull(m.past.file, [][]byte{buf[:io.N]}, int64(io.Off))
}

// bypasses tells whether a ring takes a write.
func (x *xfer) bypasses() bool {
	return x.m.past.file != nil && len(x.io.Vec) > 0 && len(x.io.Vec) <= uring.IovMax
}

// written takes writes whose data a ring has written. Their checksums are written by a goroutine,
// with those of all that come meanwhile.
func (m *fileMedium) written(list []*xfer) {
	p := &m.past
	p.mu.Lock()
	p.unsaid = append(p.unsaid, list...)
	begins := !p.busy
	p.busy = true
	p.mu.Unlock()
	if begins && !m.s.pool.put(&m.marks, job{fn: m.writeSums}) {
		m.writeSums() // the pool is closed: it is done all the same, for the data is there
	}
}

// writeSums writes the checksums of what was written past the page cache, until there are none.
func (m *fileMedium) writeSums() {
	p := &m.past
	for {
		p.mu.Lock()
		p.work, p.unsaid = p.unsaid, emptied(p.work)
		p.busy = len(p.work) > 0
		p.mu.Unlock()
		if len(p.work) == 0 {
			return
		}
		slices.SortFunc(p.work, func(x, y *xfer) int {
			if x.io.Off < y.io.Off {
				return -1
			}
			return 1
		})
		for list := p.work; len(list) > 0; {
			n := 1
			for n < len(list) && list[n].io.Off == list[n-1].io.Off+list[n-1].io.N {
				n++
			}
			err := m.writeSumsOf(list[:n])
			for _, x := range list[:n] {
				x.err = err
			}
			list = list[n:]
		}
		m.s.ended(p.work)
	}
}

// writeSumsOf writes the checksums of transfers one behind the other.
func (m *fileMedium) writeSumsOf(list []*xfer) error {
	if len(list) == 1 {
		return writeFull(m.sums, list[0].own.of(list[0].io), sumAt(list[0].io.Off))
	}
	last := list[len(list)-1].io
	all := m.past.buf.sized(last.Off + last.N - list[0].io.Off)
	at := 0
	for _, x := range list {
		at += copy(all[0][at:], x.own.of(x.io)[0])
	}
	return writeFull(m.sums, all, sumAt(list[0].io.Off))
}
