package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/arraysim/arraysim/internal/block"
)

// FilesOptions configure a Files store.
type FilesOptions struct {
	// Workers is the number of goroutines that do what may wait for a disk (2).
	Workers int
	// FS is the file system; nil is the machine's, [OS].
	FS FS
	// Later does what may wait for a disk in the place of goroutines, on the executor: a
	// store in virtual time.
	Later func(fn func())
	// Notice hears in one line of what takes long or was mended while the store opens.
	Notice func(line string)
}

// Files is a store in a folder:
//
//	lock             held while a process has the store open
//	nvram            the write cache, mapped into memory, fully allocated
//	mdisk/NAME.img   a sparse file a back-end disk
//	mdisk/NAME.sum   the checksums of its sectors, see medium.go
//	meta/            checkpoints and objects (Pebble)
//	meta.copy/       the same once more
//
// What may wait for a disk is done by worker goroutines, in batches; reads that the
// page cache can answer are done at once.
type Files struct {
	exec    block.Executor
	opt     FilesOptions
	fs      FS
	dir     string
	lock    io.Closer
	instant bool // nothing here ever waits for a disk, and a sync does nothing

	media   []*fileMedium
	made    map[string]*fileMedium // that no pool has opened yet
	region  *mapped
	meta    *metaCopies
	renewed int // copies of the meta store that were made anew

	vecs sync.Mutex // guards the buffers of reads that workers have
	mu   sync.Mutex // guards jobs and stop
	cond *sync.Cond
	jobs []job
	stop bool
	wg   sync.WaitGroup

	closing atomic.Bool // a full disk is not waited for any more
}

var _ block.Store = (*Files)(nil)

// job is what a worker does: fn, or the transfers of one medium. f is the medium that either uses.
type job struct {
	f   *fileMedium
	ios []*block.IO
	fn  func()
}

// errWaits: the file system cannot read without waiting.
var errWaits = errors.New("reading may wait for the disk")

// OpenFiles opens or creates the store in dir. It fails if another process has it open.
func OpenFiles(exec block.Executor, dir string, opt FilesOptions) (*Files, error) {
	if opt.FS == nil {
		opt.FS = OS
	}
	fs := opt.FS
	if err := fs.MkdirAll(filepath.Join(dir, "mdisk"), 0o700); err != nil {
		return nil, fmt.Errorf("the data folder cannot be made: %w", err)
	}
	lock, err := lockFolder(fs, dir)
	if err != nil {
		return nil, err
	}
	s := &Files{exec: exec, opt: opt, fs: fs, dir: dir, lock: lock, instant: fs.Instant(dir), made: map[string]*fileMedium{}}
	s.cond = sync.NewCond(&s.mu)
	if opt.Later == nil {
		if opt.Workers == 0 {
			opt.Workers = 2
		}
		for range opt.Workers {
			s.wg.Add(1)
			go s.work()
		}
	}
	return s, nil
}

// Payload is true: a folder keeps everything.
func (s *Files) Payload() bool { return true }

// Close ends the workers, closes what was opened and unlocks the folder.
func (s *Files) Close() error {
	s.closing.Store(true)
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
		err = errors.Join(err, m.close())
	}
	for _, m := range s.made {
		err = errors.Join(err, m.close())
	}
	if s.region != nil {
		err = errors.Join(err, s.region.m.Unmap())
	}
	return errors.Join(err, s.lock.Close())
}

// Renewed returns how many copies of the meta store were damaged or too old, and were made anew.
func (s *Files) Renewed() int { return s.renewed }

func (s *Files) notice(format string, args ...any) {
	if s.opt.Notice != nil {
		s.opt.Notice(fmt.Sprintf(format, args...))
	}
}

func (s *Files) enqueue(j job) {
	if j.f != nil {
		j.f.users.Add(1)
	}
	if s.opt.Later != nil {
		s.opt.Later(func() { s.do(j, nil) })
		return
	}
	s.mu.Lock()
	s.jobs = append(s.jobs, j)
	s.mu.Unlock()
	s.cond.Signal()
}

func (s *Files) work() {
	defer s.wg.Done()
	var buf readBuf
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
		s.do(j, &buf)
		s.mu.Lock()
	}
}

// do does a job; buf is a worker's, nil on the executor.
func (s *Files) do(j job, buf *readBuf) {
	if j.f != nil {
		defer j.f.release()
	}
	if j.fn != nil {
		j.fn()
		return
	}
	for _, io := range j.ios {
		io.Err = j.f.transfer(io, buf)
	}
	s.exec.Post(func() {
		for _, io := range j.ios {
			io.Done(io)
		}
	})
}

// syncFolder makes names in a folder survive power loss.
func (s *Files) syncFolder(dir string) error {
	d, err := s.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Region maps the NVRAM file.
func (s *Files) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	size := l.Size()
	path := filepath.Join(s.dir, name)
	f, err := s.fs.OpenData(path)
	if err != nil {
		return nil, false, fmt.Errorf("the write cache file cannot be opened: %w", err)
	}
	defer f.Close()
	have, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	fresh := have == 0
	if !fresh && have != int64(size) {
		return nil, false, fmt.Errorf("the write cache file %s has %d bytes, the configuration asks for %d: %w; set cache size back to what it was", path, have, size, block.ErrSize)
	}
	m, err := f.Map(size)
	if err != nil {
		if fresh {
			s.fs.Remove(path)
		}
		return nil, false, fmt.Errorf("the write cache needs %d MiB in %s: %w; make room or set a smaller cache size", size>>20, s.dir, err)
	}
	s.region = &mapped{LocalMemory: block.NewLocalMemory(m.Bytes(), l), s: s, m: m, layout: l}
	if fresh {
		if err := errors.Join(f.Sync(), s.syncFolder(s.dir)); err != nil {
			return nil, false, fmt.Errorf("the write cache file cannot be made durable: %w", err)
		}
	}
	return s.region, fresh, nil
}

// mapped is NVRAM in a file: its pages are the kernel's, so that they outlive the process. A flush that failed leaves pages that the kernel takes for clean, so
// that the next flush writes all of it, as if it were new.
type mapped struct {
	block.LocalMemory
	s *Files
	m Mapping
	// tracker is told of what is written, nil: nobody is.
	tracker Tracker
	layout  block.RegionLayout
	// distrusted: the medium may lack pages that the kernel takes for clean.
	distrusted bool
}

// Distrust has the next flush write everything.
func (r *mapped) Distrust() { r.distrusted = true }

// Listen wants to hear of writes where the file system does not see them. Workers would flush while the executor
// writes what it has announced: theirs compare.
func (r *mapped) Listen() bool {
	t, ok := r.m.(Tracker)
	if !ok || r.s.opt.Later == nil {
		return false
	}
	t.Track(r.layout.Offset(block.PartCounters), r.layout.Counters) // they count in place, and nobody says so
	r.tracker = t
	return true
}

// Announce tells the file system.
func (r *mapped) Announce(p block.Part, off, n int) {
	if r.tracker != nil {
		r.tracker.Wrote(r.layout.Offset(p)+off, n)
	}
}

// Append tells the file system, too.
func (r *mapped) Append(at int, record []byte) {
	r.Announce(block.PartLog, at, len(record))
	r.LocalMemory.Append(at, record)
}

// flush writes what has changed, and everything where it has to.
func (r *mapped) flush(all bool) error {
	n := len(r.m.Bytes())
	if all {
		r.m.Dirty(0, n)
	}
	return r.m.Flush(0, n)
}

func (r *mapped) Boot() uint64 { return r.s.fs.Boot() }

func (r *mapped) FlushNow() error {
	if r.s.instant {
		return nil
	}
	all := r.distrusted
	r.distrusted = false
	err := r.flush(all)
	r.distrusted = err != nil
	return err
}

func (r *mapped) Flush(done func(error)) {
	if r.s.instant {
		done(nil)
		return
	}
	all := r.distrusted
	r.distrusted = false
	r.s.enqueue(job{fn: func() {
		err := r.flush(all)
		r.s.exec.Post(func() {
			r.distrusted = r.distrusted || err != nil
			done(err)
		})
	}})
}
