package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cockroachdb/pebble/vfs"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// FS is the file system under a [Files] store: [OS] in production, a simulated
// one, whose power can be cut, in tests. The names of Pebble's interface serve for folders
// and for the meta store's files.
type FS interface {
	vfs.FS
	// OpenData opens or creates a file of sectors.
	OpenData(path string) (DataFile, error)
	// Instant tells that nothing in dir ever waits for a disk, and that a sync does nothing.
	Instant(dir string) bool
	// Boot identifies the present start of the machine: with another value, power
	// may have been lost since. 0: it is not known.
	Boot() uint64
}

// DataFile is a file that is read and written by vectors, as preadv(2) and
// pwritev(2) do: an operation may be shorter than asked.
type DataFile interface {
	Readv(vec [][]byte, off int64) (int, error)
	Writev(vec [][]byte, off int64) (int, error)
	// ReadNow is Readv that fails instead of waiting; errWaits if it cannot do that.
	ReadNow(vec [][]byte, off int64) (int, error)
	Size() (int64, error)
	Truncate(size int64) error
	// NextData returns where the next data at or behind off begins, and where it
	// ends; off == end when there is none.
	NextData(off int64) (start, end int64, err error)
	// Sync makes what was written survive power loss.
	Sync() error
	// Punch makes zeros of [off, off+n) and gives back the blocks that lie in it; the size stays.
	// errors.ErrUnsupported: the file system cannot, and nothing has changed.
	Punch(off, n int64) error
	// Map allocates the first size bytes and maps them into memory.
	Map(size int) (Mapping, error)
	Close() error
}

// Mapping is a file in memory.
type Mapping interface {
	Bytes() []byte
	// Flush makes [off, off+n) survive power loss. When it fails, the kernel takes for written what
	// is not: another Flush does nothing for it.
	Flush(off, n int) error
	// Dirty has the next Flush write [off, off+n) in any case. The bytes may be written to meanwhile.
	Dirty(off, n int)
	Unmap() error
}

// Tracker is a Mapping of a file system without an MMU, which does not see what its program writes.
type Tracker interface {
	Mapping
	// Track says that from now on Wrote tells of all that is written, before the Flush that takes it, but for
	// [off, off+n).
	Track(off, n int)
	Wrote(off, n int)
}

// OS is the file system of the machine.
var OS FS = osFS{vfs.Default}

type osFS struct{ vfs.FS }

func (osFS) OpenData(path string) (DataFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &osFile{f, int(f.Fd())}, nil
}

func (osFS) Instant(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

func (osFS) Boot() uint64 { return boot() }

// Boot identifies the present start of the machine; 0: it is not known.
func Boot() uint64 { return boot() }

// boot is read once: each write of the NVRAM's state asks for it.
var boot = sync.OnceValue(func() uint64 {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64() | 1
})

type osFile struct {
	f  *os.File
	fd int
}

func (o *osFile) Readv(vec [][]byte, off int64) (int, error)  { return unix.Preadv(o.fd, vec, off) }
func (o *osFile) Writev(vec [][]byte, off int64) (int, error) { return unix.Pwritev(o.fd, vec, off) }

func (o *osFile) ReadNow(vec [][]byte, off int64) (int, error) {
	n, err := unix.Preadv2(o.fd, vec, off, unix.RWF_NOWAIT)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return 0, errWaits
	}
	return n, err
}

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o *osFile) Truncate(size int64) error { return o.f.Truncate(size) }

func (o *osFile) NextData(off int64) (start, end int64, err error) {
	start, err = unix.Seek(o.fd, off, unix.SEEK_DATA)
	if err == unix.ENXIO {
		return off, off, nil
	}
	if err != nil {
		return 0, 0, err
	}
	end, err = unix.Seek(o.fd, start, unix.SEEK_HOLE)
	return start, end, err
}

func (o *osFile) Punch(off, n int64) error {
	err := block.Again(func() error {
		return unix.Fallocate(o.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return fmt.Errorf("%w (%w)", errors.ErrUnsupported, err)
	}
	return err
}

func (o *osFile) Sync() error  { return block.Again(func() error { return unix.Fdatasync(o.fd) }) }
func (o *osFile) Close() error { return o.f.Close() }

// Map allocates first: a full disk must not show as a SIGBUS later.
func (o *osFile) Map(size int) (Mapping, error) {
	if err := block.Allocate(o.fd, int64(size)); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(o.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	return osMapping(b), nil
}

type osMapping []byte

func (m osMapping) Bytes() []byte { return m }
func (m osMapping) Unmap() error  { return unix.Munmap(m) }

// Dirty writes a word of each page as it is. The addition is atomic, so that nothing is lost of
// what others write to the same word.
func (m osMapping) Dirty(off, n int) {
	const page = 4096
	for at := off &^ (page - 1); at < min(off+n, len(m)); at += page {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&m[at])), 0)
	}
}

func (m osMapping) Flush(off, n int) error {
	const page = 4096
	end := min((off+n+page-1)&^(page-1), len(m))
	off &^= page - 1
	return block.Again(func() error { return unix.Msync(m[off:end], unix.MS_SYNC) })
}

var le = binary.LittleEndian
