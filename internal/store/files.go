package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// FilesOptions configure a Files store.
type FilesOptions struct {
	// Workers is the number of goroutines that do what may wait for a disk (2).
	Workers int
}

// Files is a store in a folder:
//
//	lock        held while a process has the store open
//	nvram       the write cache, mapped into memory, fully allocated
//	mdisk/      a sparse file a back-end disk
//	meta/       checkpoints and objects (Pebble)
//
// What may wait for a disk is done by worker goroutines, in batches; reads that the
// page cache can answer are done at once.
type Files struct {
	exec  block.Executor
	dir   string
	lock  *os.File
	tmpfs bool // nothing here ever waits for a disk, and a sync does nothing

	media  []*fileMedium
	region []byte
	meta   *pebbleMeta

	mu   sync.Mutex // guards jobs and stop
	cond *sync.Cond
	jobs []job
	stop bool
	wg   sync.WaitGroup
}

var _ block.Store = (*Files)(nil)

// job is what a worker does: the transfers of one medium, or fn.
type job struct {
	f   *fileMedium
	ios []*block.IO
	fn  func()
}

// OpenFiles opens or creates the store in dir. It fails if another process has it open.
func OpenFiles(exec block.Executor, dir string, opt FilesOptions) (*Files, error) {
	if err := os.MkdirAll(filepath.Join(dir, "mdisk"), 0o700); err != nil {
		return nil, fmt.Errorf("the data folder cannot be made: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data folder cannot be locked: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("the data folder %s is in use by another arraysim; stop that one, or choose another folder with --data", dir)
	}
	s := &Files{exec: exec, dir: dir, lock: lock}
	s.cond = sync.NewCond(&s.mu)
	var fs unix.Statfs_t
	s.tmpfs = unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
	if opt.Workers == 0 {
		opt.Workers = 2
	}
	for range opt.Workers {
		s.wg.Add(1)
		go s.work()
	}
	return s, nil
}

// Payload is true: a folder keeps everything.
func (s *Files) Payload() bool { return true }

// Close ends the workers, closes what was opened and unlocks the folder.
func (s *Files) Close() error {
	s.mu.Lock()
	s.stop = true
	s.cond.Broadcast()
	s.mu.Unlock()
	s.wg.Wait()
	var err error
	if s.meta != nil {
		err = s.meta.close()
	}
	for _, m := range s.media {
		err = errors.Join(err, m.f.Close())
	}
	if s.region != nil {
		err = errors.Join(err, unix.Munmap(s.region))
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Files) enqueue(j job) {
	s.mu.Lock()
	s.jobs = append(s.jobs, j)
	s.mu.Unlock()
	s.cond.Signal()
}

func (s *Files) work() {
	defer s.wg.Done()
	s.mu.Lock()
	for {
		for len(s.jobs) == 0 && !s.stop {
			s.cond.Wait()
		}
		if len(s.jobs) == 0 {
			s.mu.Unlock()
			return
		}
		j := s.jobs[0]
		s.jobs[0] = job{}
		if s.jobs = s.jobs[1:]; len(s.jobs) == 0 {
			s.jobs = nil
		}
		s.mu.Unlock()
		if j.fn != nil {
			j.fn()
		} else {
			for _, io := range j.ios {
				io.Err = j.f.transfer(io)
			}
			s.exec.Post(func() {
				for _, io := range j.ios {
					io.Done(io)
				}
			})
		}
		s.mu.Lock()
	}
}

func (s *Files) mdiskPath(name string) string { return filepath.Join(s.dir, "mdisk", name+".img") }

// Medium opens or creates the file of an mdisk.
func (s *Files) Medium(name string, size uint64) (block.Medium, error) {
	f, err := os.OpenFile(s.mdiskPath(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("mdisk %s cannot be opened: %w", name, err)
	}
	st, err := f.Stat()
	if err == nil && st.Size() == 0 {
		err = f.Truncate(int64(size))
	} else if err == nil && st.Size() != int64(size) {
		err = fmt.Errorf("its file has %d bytes, it should have %d; restore it from a copy", st.Size(), size)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("mdisk %s: %w", name, err)
	}
	m := &fileMedium{s: s, f: f, fd: int(f.Fd()), size: size}
	s.media = append(s.media, m)
	return m, nil
}

// RemoveMedium deletes the file of an mdisk.
func (s *Files) RemoveMedium(name string) error { return os.Remove(s.mdiskPath(name)) }

// fileMedium is one sparse file.
type fileMedium struct {
	s    *Files
	f    *os.File
	fd   int
	size uint64
	// waits: the file system cannot read without waiting (no RWF_NOWAIT); only touched on the executor.
	waits bool
}

func (m *fileMedium) Size() uint64 { return m.size }

// smallBatch is the number of bytes that are written at once where nothing waits
// for a disk: waking a worker would cost more.
const smallBatch = 64 << 10

// Submit does at once what cannot wait, and hands the rest to a worker, as one batch.
func (m *fileMedium) Submit(ios []*block.IO) {
	var rest []*block.IO
	budget := uint64(0)
	if m.s.tmpfs {
		budget = smallBatch
	}
	for _, io := range ios {
		switch {
		case !io.Write && m.readNow(io):
			io.Done(io)
			continue
		case io.Write && io.N <= budget:
			budget -= io.N
			io.Err = m.transfer(io)
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
	if m.s.tmpfs {
		io.Err = m.transfer(io)
		return true
	}
	if m.waits {
		return false
	}
	n, err := unix.Preadv2(m.fd, io.Vec, int64(io.Off), unix.RWF_NOWAIT)
	switch {
	case err == nil && uint64(n) == io.N:
		return true
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
		m.waits = true
	}
	return false
}

// maxVec is the number of buffers that one system call takes (IOV_MAX).
const maxVec = 1024

// transfer does one operation, whole.
func (m *fileMedium) transfer(io *block.IO) error {
	off, vec := int64(io.Off), io.Vec
	for len(vec) > 0 {
		var n int
		var err error
		some := vec[:min(len(vec), maxVec)]
		if io.Write {
			n, err = unix.Pwritev(m.fd, some, off)
		} else {
			n, err = unix.Preadv(m.fd, some, off)
		}
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("%s ends at byte %d", m.f.Name(), off)
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

// Sync waits for the disk on a worker.
func (m *fileMedium) Sync(done func(error)) {
	if m.s.tmpfs {
		done(nil)
		return
	}
	m.s.enqueue(job{fn: func() {
		err := unix.Fdatasync(m.fd)
		m.s.exec.Post(func() { done(err) })
	}})
}

// Region maps the NVRAM file.
func (s *Files) Region(name string, size int) (block.Region, bool, error) {
	path := filepath.Join(s.dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("the write cache file cannot be opened: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	fresh := st.Size() == 0
	if !fresh && st.Size() != int64(size) {
		return nil, false, fmt.Errorf("the write cache file %s has %d bytes, the configuration asks for %d; set cache size back to what it was", path, st.Size(), size)
	}
	// All of it is allocated now: a full disk must not show as a SIGBUS later.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
		if fresh {
			os.Remove(path)
		}
		return nil, false, fmt.Errorf("the write cache needs %d MiB in %s: %w; make room or set a smaller cache size", size>>20, s.dir, err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, false, fmt.Errorf("the write cache file cannot be mapped: %w", err)
	}
	s.region = b
	return &mapped{s, b}, fresh, nil
}

type mapped struct {
	s *Files
	b []byte
}

func (r *mapped) Bytes() []byte { return r.b }

func (r *mapped) Flush(off, n int, done func(error)) {
	if r.s.tmpfs {
		done(nil)
		return
	}
	const page = 4096
	end := min((off+n+page-1)&^(page-1), len(r.b))
	off &^= page - 1
	r.s.enqueue(job{fn: func() {
		err := unix.Msync(r.b[off:end], unix.MS_SYNC)
		r.s.exec.Post(func() { done(err) })
	}})
}
