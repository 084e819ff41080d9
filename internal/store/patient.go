package store

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/vfs"
	"golang.org/x/sys/unix"
)

// patientFS is the file system of the meta store: while the disk is full, a write waits
// for room. Pebble would end the process at the first write of its log that fails.
type patientFS struct {
	vfs.FS
	closing *atomic.Bool
}

// fullPause is the time between two tries.
const fullPause = 200 * time.Millisecond

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

// wait tells whether to try again after an error.
func (f *patientFile) wait(err error) bool {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || f.p.closing.Load() {
		return false
	}
	time.Sleep(fullPause)
	return true
}

// Write goes on behind what was written before the disk was full.
func (f *patientFile) Write(b []byte) (int, error) {
	done := 0
	for {
		n, err := f.File.Write(b[done:])
		if done += n; err == nil || !f.wait(err) {
			return done, err
		}
	}
}

func (f *patientFile) Preallocate(off, n int64) error {
	// Room that is not there now may be there when it is needed.
	if err := f.File.Preallocate(off, n); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return nil
}
