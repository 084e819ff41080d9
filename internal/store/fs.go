package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
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
	// Resolve returns the path that a chain of symbolic links leads to, be there a file or not; path itself
	// where it is none.
	Resolve(path string) (string, error)
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

// preparer is a Mapping of memory that is written with less effort where it was made ready.
type preparer interface {
	Prepare(off, n int)
	// Unprepare takes that back.
	Unprepare(off, n int)
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
	var fs unix.Statfs_t
	err = block.Again(func() error { return unix.Fstatfs(int(f.Fd()), &fs) })
	known := err == nil
	return &osFile{f: f, fd: int(f.Fd()), parts: known && fs.Type == unix.EXT4_SUPER_MAGIC,
		memory: known && fs.Type == unix.TMPFS_MAGIC, folios: known && fs.Type != unix.TMPFS_MAGIC}, nil
}

// mostLinks is how many symbolic links lead to a file at most, as in the kernel (path_resolution(7)).
const mostLinks = 40

func (osFS) Resolve(path string) (string, error) {
	for range mostLinks {
		to, err := os.Readlink(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) { // there is nothing, or no link
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + "/" + to
		}
		path = follow(to)
	}
	return "", &os.PathError{Op: "readlink", Path: path, Err: unix.ELOOP}
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
	// parts: the file system keeps a list of the blocks in each folio of the page cache, and goes
	// through all of it for each that is written.
	parts bool
	// memory: it is a file in memory, which is never written back.
	memory bool
	// folios: it has a page cache of folios, as all have but for tmpfs.
	folios bool

	punching atomic.Int32 // calls of Punch under way: writes wait for them
	view     []byte       // see View
}

// partBytes is what is written by one call there, and into a new file that is mapped: the kernel makes
// no larger folios of it then. A page that is written into a folio of 256 KiB costs more than twice the
// processor time of one that is written into a folio of its own, and one call for all of 256 KiB no less
// than eight calls.
const partBytes = 32 << 10

// Descriptor returns the number by which a ring knows the file.
func (o *osFile) Descriptor() int { return o.fd }

func (o *osFile) Readv(vec [][]byte, off int64) (int, error) {
	if n, ok, err := o.short(unix.SYS_PREADV, vec, off); ok {
		return n, err
	}
	return unix.Preadv(o.fd, vec, off)
}

func (o *osFile) Writev(vec [][]byte, off int64) (n int, err error) {
	if n, ok, err := o.short(unix.SYS_PWRITEV, vec, off); ok {
		return n, err
	}
	if !o.parts {
		return unix.Pwritev(o.fd, vec, off)
	}
	var buf [partBytes / 4096][]byte
	in := 0 // bytes of the first buffer that are written
	for len(vec) > 0 {
		list, left := buf[:0], partBytes-int((off+int64(n))%partBytes)
		for len(vec) > 0 && left > 0 {
			b := vec[0][in:]
			if len(b) > left {
				b = b[:left]
				in += left
			} else {
				vec, in = vec[1:], 0
			}
			left -= len(b)
			list = append(list, b)
		}
		want := partBytes - int((off+int64(n))%partBytes) - left
		got, err := unix.Pwritev(o.fd, list, off+int64(n))
		if got > 0 {
			n += got
		}
		switch {
		case got >= want:
		case n > 0:
			return n, nil // whoever goes on from there meets the error again
		default:
			return 0, err
		}
	}
	return n, nil
}

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
	o.punching.Add(1)
	defer o.punching.Add(-1)
	err := block.Again(func() error {
		return unix.Fallocate(o.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return fmt.Errorf("%w (%w)", errors.ErrUnsupported, err)
	}
	return err
}

// BeginSync has the kernel begin to write what a Sync would wait for. What goes wrong the Sync says.
func (o *osFile) BeginSync() { _ = unix.SyncFileRange(o.fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) }

func (o *osFile) Sync() error  { return block.Again(func() error { return unix.Fdatasync(o.fd) }) }
func (o *osFile) Close() error { return errors.Join(o.unview(), o.f.Close()) }

// Map allocates first: a full disk must not show as a SIGBUS later.
//
// What a file system keeps in one folio of the page cache (ext4 since Linux 6.16, xfs) a flush writes
// as a whole: where folios are as large as the kernel likes, 30 pages for each that was changed. So a
// new file is written by parts, which makes folios of that size. What comes from the disk lies in
// single pages if it is read because it will be needed, or by chance (MADV_RANDOM).
//
// A file in memory is in place for writes from the start. On a disk all of it would have to be written
// back first.
func (o *osFile) Map(size int) (Mapping, error) {
	had, err := o.Size()
	if err != nil {
		return nil, err
	}
	if err := block.Allocate(o.fd, int64(size)); err != nil {
		return nil, err
	}
	if o.folios {
		zeros := [][]byte{make([]byte, partBytes)}
		for at := had &^ (partBytes - 1); at < int64(size) && had < int64(size); at += partBytes {
			from := max(at, had)
			zeros[0] = zeros[0][:min(at+partBytes, int64(size))-from]
			if err := writeFull(o, zeros, from); err != nil {
				return nil, errors.Join(err, o.Truncate(had))
			}
			zeros[0] = zeros[0][:partBytes]
		}
	}
	b, err := unix.Mmap(o.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	if o.memory {
		if err := block.WriteAhead(b); err != nil {
			return nil, errors.Join(fmt.Errorf("it cannot be mapped for writes: %w; raise vm.max_map_count", err), unix.Munmap(b))
		}
		return osMapping(b), nil
	}
	_ = unix.Madvise(b, unix.MADV_RANDOM)
	const part = 16 << 20 // a signal ends a call, and the next one goes through all of it again
	for at := 0; at < size; at += part {
		end := min(at+part, size)
		// Both only save time later. Linux has the second one since 5.14.
		_ = unix.Fadvise(o.fd, int64(at), int64(end-at), unix.FADV_WILLNEED)
		_ = block.Again(func() error { return unix.Madvise(b[at:end], unix.MADV_POPULATE_READ) })
	}
	return osMapping(b), nil
}

type osMapping []byte

func (m osMapping) Bytes() []byte { return m }
func (m osMapping) Unmap() error  { return unix.Munmap(m) }

// Prepare has the kernel do now, for all pages in one call, what it does at the first write to each
// behind a flush. Linux can since 5.14.
func (m osMapping) Prepare(off, n int) { _ = unix.Madvise(m[off:off+n], unix.MADV_POPULATE_WRITE) }

// Unprepare takes the pages from the process, which finds them in the page cache again.
func (m osMapping) Unprepare(off, n int) { _ = unix.Madvise(m[off:off+n], unix.MADV_DONTNEED) }

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
