package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/vfs"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// patientFS is the file system of a copy of the meta store: while the disk is full, a write waits for room. Pebble would end
// the process at the first write of its log that fails.
type patientFS struct {
	vfs.FS
	*patience
}

// fullPause is the time between two tries.
const fullPause = 200 * time.Millisecond

// startPatience is how long all waits of a start may last together.
var startPatience = 20 * time.Second

// patience is how long a copy waits for room. A running array's waits for ever, beside the executor. While an array is
// being opened everything waits for the copy, and who looks at that has to hear why: the start is refused then, or goes on
// without the copy.
type patience struct {
	s        *Files
	starting atomic.Int32 // calls under way that a start waits for
}

// hurry begins a call that a start waits for; who calls it calls end behind it.
func (p *patience) hurry() (end func()) {
	p.starting.Add(1)
	return func() { p.starting.Add(-1) }
}

// commitInTime is CommitNow for a start.
func (m *pebbleMeta) commitInTime(batch []block.KV) error {
	defer m.p.hurry()()
	return m.CommitNow(batch)
}

// wait tells whether to try again after an error, and waits.
func (p *patience) wait(err error) (again bool) {
	if !isFull(err) || p.s.closing.Load() || p.starting.Load() > 0 && !p.s.starts.mayWait(p.s) {
		return false
	}
	time.Sleep(fullPause)
	return true
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// startWaits are the waits of a start for room.
type startWaits struct {
	mu    sync.Mutex
	until time.Time // zero: there was none; guarded by mu
}

// mayWait reports whether a start may wait longer. In virtual time nobody makes room meanwhile.
func (w *startWaits) mayWait(s *Files) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.opt.Later != nil {
		return false
	}
	if w.until.IsZero() {
		w.until = time.Now().Add(startPatience)
		s.notice("the file system is full; the start waits up to %v for room for the checkpoints", startPatience)
	}
	return time.Now().Before(w.until)
}

func (p patientFS) Create(name string) (vfs.File, error) { return p.file(p.FS.Create(name)) }

func (p patientFS) OpenReadWrite(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return p.file(p.FS.OpenReadWrite(name, opts...))
}

func (p patientFS) ReuseForWrite(from, to string) (vfs.File, error) {
	return p.file(p.FS.ReuseForWrite(from, to))
}

func (p patientFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &patientFile{f, p}, nil
}

type patientFile struct {
	vfs.File
	p patientFS
}

// Write goes on behind what was written before the disk was full.
func (f *patientFile) Write(b []byte) (int, error) {
	done := 0
	for {
		n, err := f.File.Write(b[done:])
		if done += n; err == nil {
			return done, nil
		}
		if !f.p.wait(err) {
			if isFull(err) {
				err = fmt.Errorf("%w; make room in the file system", err)
			}
			return done, err
		}
	}
}

func (f *patientFile) Preallocate(off, n int64) error {
	// Room that is not there now may be there when it is needed.
	if err := f.File.Preallocate(off, n); !isFull(err) {
		return err
	}
	return nil
}
