package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// FilesOptions configure a Files store.
type FilesOptions struct {
	// NoRing keeps what waits for a disk away from io_uring: goroutines do it all. NeedRing has the store
	// not open where the kernel gives no ring.
	NoRing, NeedRing bool
	// Direct has the data of mdisks written past the page cache (direct.go), where a ring can. That is for
	// mdisks whose files have their blocks: writes into holes are slower that way.
	Direct bool
	// Stores is how many stores the process has, this one included, which share the files that it may have open; 0 is
	// one.
	Stores int
	// FS is the file system; nil is the machine's, [OS].
	FS FS
	// Later does what may wait for a disk in the place of goroutines, on the executor: a
	// store in virtual time.
	Later func(fn func())
	// CloseTime is how long Close waits for disks; 0 is a minute.
	CloseTime time.Duration
	// Notice hears in one line of what takes long or was mended while the store opens, and of what is done
	// without later: on the executor then.
	Notice func(line string)
}

// Files is a store in a folder:
//
//	lock             held while a process has the store open
//	nvram            the write cache, mapped into memory, fully allocated; nvram.new while it is made
//	mdisk/NAME.img   a sparse file a back-end disk
//	mdisk/NAME.sum   the checksums of its sectors, see medium.go
//	meta/            checkpoints and objects (Pebble)
//	meta.copy/       the same once more
//
// Reads that the page cache can answer are done at once. What may wait for a disk is done by
// io_uring (ring.go), or by goroutines (pool.go): syncs always, transfers where the kernel has no rings
// or the ring did not do them. Each mdisk has its own queue and its own lines.
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

	aside      block.Asider  // does beside the core what waits for no disk; nil: nobody does
	freeGroups *group        // only touched on the executor
	groups     int           // that have not ended; only touched on the executor
	groupsEnd  chan struct{} // closed when the last one has, while Close waits

	pool           pool
	ring           *ring   // nil: there is none
	names, flushes line    // of files that come and go; of NVRAM
	prepares       line    // of pages of NVRAM
	lookups        [2]line // of entries in each copy of the meta store: one whose disk hangs holds up no other

	// Transfers that may wait for a disk: see queue.go. What has no guard is only touched on the executor.
	free       *xfer
	freeCount  int // of them
	bufs       buffers
	begin, try []*xfer // for Submit, while it does not run
	endMu      sync.Mutex
	done       []*xfer // have ended, and are not finished; guarded by endMu
	spare      []*xfer // for done, while it is finished
	finishFn   func()

	cold     [][]byte // buffers for hotSums; only touched on the executor
	hotParts int      // and how many there are
	hotMore  int      // of these, above hotOwn of each mdisk

	closed  bool                   // nothing begins any more; only touched on the executor
	closing atomic.Bool            // a full disk is not waited for any more
	closes  atomic.Pointer[string] // what Close is at
	starts  startWaits             // for a full disk

	noticing sync.Mutex // one notice at a time: copies of the meta store have goroutines
}

var _ block.Store = (*Files)(nil)

// ErrClosed is the error of all that is asked of a store that was closed.
var ErrClosed = errors.New("the store is closed")

// errWaits: the file system cannot read without waiting.
var errWaits = errors.New("reading may wait for the disk")

// OpenFiles opens or creates the store in dir. It fails if another process has it open.
func OpenFiles(exec block.Executor, dir string, opt FilesOptions) (*Files, error) {
	if opt.FS == nil {
		opt.FS = OS
	}
	fs := opt.FS
	mdisks := filepath.Join(dir, "mdisk")
	if err := errors.Join(makeFolder(fs, dir, true), makeFolder(fs, mdisks, false)); err != nil {
		return nil, fmt.Errorf("the data folder cannot be created: %w; choose another with --data", err)
	}
	lock, err := lockFolder(fs, dir)
	if err != nil {
		return nil, err
	}
	if err := syncFolder(fs, mdisks); err != nil { // who gave them their names may have died before
		return nil, errors.Join(fmt.Errorf("the names of mdisks cannot be saved durably: %w", err), lock.Close())
	}
	s := &Files{exec: exec, opt: opt, fs: fs, dir: dir, lock: lock, instant: fs.Instant(dir), made: map[string]*fileMedium{}}
	s.names, s.flushes = line{limit: 1, first: true, name: "the folder of mdisks"}, line{limit: 1, first: true, name: "NVRAM"}
	s.prepares = line{limit: 1, first: true, name: "NVRAM"}
	for i := range s.lookups {
		s.lookups[i] = line{limit: lookupThreads, first: true, name: metaName(i)}
	}
	s.finishFn = s.finish
	if s.instant && opt.Later == nil {
		s.aside, _ = exec.(block.Asider)
	}
	if opt.Later == nil && !opt.NoRing && !s.instant {
		if s.ring, err = openRing(s, ringPlaces, ringAnswers); err != nil {
			if s.ring = nil; opt.NeedRing { // else goroutines do as well
				return nil, errors.Join(fmt.Errorf("the kernel offers no io_uring: %w; write aio: auto or aio: threads", err), lock.Close())
			}
		}
	}
	return s, nil
}

// Payload is true: a folder keeps everything.
func (s *Files) Payload() bool { return true }

// Renewed returns how many copies of the meta store were damaged or too old, and were made anew.
func (s *Files) Renewed() int { return s.renewed }

func (s *Files) notice(format string, args ...any) {
	if s.opt.Notice != nil {
		s.noticing.Lock()
		defer s.noticing.Unlock()
		s.opt.Notice(fmt.Sprintf(format, args...))
	}
}

// call has fn, which may wait for a disk, called off the executor, in a line, and then done on the
// executor, never from inside. m, unless it is nil, stays open until fn returns.
func (s *Files) call(l *line, m *fileMedium, fn func() error, done func(error)) {
	if s.closed {
		s.exec.Post(func() { done(ErrClosed) })
		return
	}
	if m != nil && m.gone { // its descriptors may be another file's by now
		s.exec.Post(func() { done(errAbandoned) })
		return
	}
	if m != nil {
		m.users.Add(1)
	}
	work := func() {
		err := ErrClosed
		if s.opt.Later == nil || !s.closed { // else on the executor, and too late
			err = fn()
		}
		if m != nil {
			_ = m.release()
		}
		s.exec.Post(func() { done(err) })
	}
	if s.opt.Later != nil {
		s.opt.Later(work)
		return
	}
	s.pool.put(l, job{fn: work}) // it is not closed before s is
}

// Region maps the NVRAM file. A new one gets its name when it is whole, so that a crash in between starts anew.
func (s *Files) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	if s.closed {
		return nil, false, ErrClosed
	}
	size := l.Size()
	path, fresh, err := s.findRegion(filepath.Join(s.dir, name), size)
	if err != nil {
		return nil, false, err
	}
	tmp := path
	if fresh {
		tmp += newSuffix
	}
	f, err := s.fs.OpenData(tmp)
	if err != nil {
		return nil, false, fmt.Errorf("the write cache file cannot be opened: %w", err)
	}
	defer f.Close()
	m, err := f.Map(size)
	if err != nil {
		if fresh {
			s.fs.Remove(tmp)
		}
		return nil, false, fmt.Errorf("the write cache needs %d MiB in %s: %w; make room or set a smaller cache size", size>>20, s.dir, err)
	}
	s.region = &mapped{LocalMemory: block.NewLocalMemory(m.Bytes(), l), s: s, m: m, layout: l}
	if fresh {
		if err := s.named(f, tmp, path); err != nil {
			return nil, false, fmt.Errorf("the write cache file cannot be saved durably: %w", err)
		}
	}
	return s.region, fresh, nil
}

// findRegion returns where the NVRAM file lies, which may be behind a symbolic link, and whether it has to
// be made. What a crash has left of one that was being made is removed.
func (s *Files) findRegion(link string, size int) (path string, fresh bool, err error) {
	path, err = s.fs.Resolve(link)
	if err != nil {
		return "", false, fmt.Errorf("the write cache file cannot be found: %w", err)
	}
	info, err := s.fs.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", false, fmt.Errorf("the write cache file cannot be examined: %w", err)
	}
	fresh = err != nil || info.Size() == 0
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", false, fmt.Errorf("the write cache %s is not a file; remove it, or link it to a file", path)
	case !fresh && info.Size() != int64(size):
		return "", false, fmt.Errorf("the write cache file %s has %d bytes, the configuration asks for %d: %w; restore the former cache size", path, info.Size(), size, block.ErrSize)
	}
	if err := errors.Join(s.removeOld(path+newSuffix), s.removeOld(link+newSuffix)); fresh && err != nil {
		return "", false, err
	} else if err != nil {
		s.notice("the remains of an unfinished write cache take room, and cannot be removed: %v", err)
	}
	// Who gave it its name may have died before that was durable; the data folder was synced.
	if dir := filepath.Dir(path); !fresh && dir != filepath.Dir(link) {
		if err := syncOthers(s.fs, dir); err != nil {
			return "", false, fmt.Errorf("the name of the write cache file cannot be saved durably: %w", err)
		}
	}
	return path, fresh, nil
}

// pageBytes is the size of a page buffer of NVRAM.
const pageBytes = 4096

// mapped is NVRAM in a file: its pages are the kernel's, so that they outlive the process. A flush that failed leaves pages that the kernel takes for clean, so
// that the next flush writes all of it, as if it were new.
type mapped struct {
	block.LocalMemory
	s *Files
	m Mapping
	// tracker is told of what is written, nil: nobody is.
	tracker Tracker
	layout  block.RegionLayout

	mu    sync.Mutex
	ready []piece // made ready since the last flush began; guarded by mu

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
	r.unprepare()
	if all {
		r.m.Dirty(0, n)
	}
	return r.m.Flush(0, n)
}

// prepare makes a piece ready, and notes that.
func (r *mapped) prepare(p preparer, off, n int) {
	p.Prepare(off, n)
	r.mu.Lock()
	r.ready = append(r.ready, piece{off, n})
	r.mu.Unlock()
}

// unprepare takes back what was made ready: the flush would do that page by page, and tell other
// processors each time.
func (r *mapped) unprepare() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.ready {
		r.m.(preparer).Unprepare(x.off, x.n)
	}
	r.ready = r.ready[:0]
}

// piece is bytes of the mapping.
type piece struct{ off, n int }

// Prepare has the pages mapped so that who writes there meets no fault.
func (r *mapped) Prepare(pages []uint32, done func()) {
	p, ok := r.m.(preparer)
	if !ok || r.s.instant {
		done()
		return
	}
	from := r.layout.Offset(block.PartPages)
	r.s.call(&r.s.prepares, nil, func() error {
		for len(pages) > 0 {
			n := 1
			for n < len(pages) && pages[n] == pages[n-1]+1 {
				n++
			}
			r.prepare(p, from+int(pages[0])*pageBytes, n*pageBytes)
			pages = pages[n:]
		}
		return nil
	}, func(error) { done() })
}

func (r *mapped) Boot() uint64 { return r.s.fs.Boot() }

func (r *mapped) FlushNow() error {
	if r.s.closed {
		return ErrClosed
	}
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
	if r.s.instant && !r.s.closed {
		done(nil)
		return
	}
	all := r.distrusted
	r.distrusted = false
	r.s.call(&r.s.flushes, nil, func() error { return r.flush(all) }, func(err error) {
		r.distrusted = r.distrusted || err != nil
		done(err)
	})
}
