package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/vfs"
)

// frozenFS is the file system of a meta store that outlives its disk. Pebble ends the process when its log or its manifest
// cannot be written. Here the first operation that fails freezes the store instead: from then on nothing reaches
// the disk, which stays as the death of the process at that moment would leave it, Pebble goes on in memory, and every commit
// fails with that error. The next start finds the last checkpoint before it.
type frozenFS struct {
	vfs.FS
	memory *vfs.MemFS // what Pebble does afterwards

	mu    sync.Mutex
	armed bool  // guarded by mu: errors freeze; until the store is open they are simply its errors
	err   error // guarded by mu
}

func newFrozenFS(fs vfs.FS) *frozenFS { return &frozenFS{FS: fs, memory: vfs.NewMem()} }

// failure returns why the store is frozen, nil if it is not.
func (f *frozenFS) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *frozenFS) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

// freeze takes an error for the last one.
func (f *frozenFS) freeze(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed && f.err == nil {
		f.err = err
	}
}

// do carries out an operation on the disk, and tells whether its outcome counts. When it does not, the store is frozen. usual is an
// error that means no trouble.
func (f *frozenFS) do(op func() error, usual error) (counts bool, err error) {
	if f.failure() != nil {
		return false, nil
	}
	err = op()
	if err == nil || usual != nil && errors.Is(err, usual) {
		return true, err
	}
	f.freeze(err)
	return f.failure() == nil, err
}

// made opens a file by op; when the disk fails, one in memory.
func (f *frozenFS) made(name string, op func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	counts, err := f.do(func() (err error) { file, err = op(); return err }, nil)
	switch {
	case counts && err != nil:
		return nil, err
	case counts:
		return &frozenFile{file, f}, nil
	}
	if err := f.memory.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	return f.memory.Create(name)
}

func (f *frozenFS) Create(name string) (vfs.File, error) {
	return f.made(name, func() (vfs.File, error) { return f.FS.Create(name) })
}

func (f *frozenFS) OpenReadWrite(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.made(name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, opts...) })
}

func (f *frozenFS) ReuseForWrite(from, to string) (vfs.File, error) {
	return f.made(to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to) })
}

// Open opens a file for reading: that in memory if there is one.
func (f *frozenFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if f.failure() != nil {
		if file, err := f.memory.Open(name, opts...); err == nil {
			return file, nil
		}
	}
	file, err := f.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return &frozenFile{file, f}, nil
}

func (f *frozenFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &frozenFile{file, f}, nil
}

func (f *frozenFS) Stat(name string) (os.FileInfo, error) {
	if f.failure() != nil {
		if info, err := f.memory.Stat(name); err == nil {
			return info, nil
		}
	}
	return f.FS.Stat(name)
}

// change carries out a change of names, on the disk or in memory; there a name may be missing.
func (f *frozenFS) change(usual error, disk, memory func() error) error {
	if counts, err := f.do(disk, usual); counts {
		return err
	}
	_ = memory()
	return nil
}

func (f *frozenFS) Remove(name string) error {
	return f.change(os.ErrNotExist, func() error { return f.FS.Remove(name) }, func() error { return f.memory.Remove(name) })
}

func (f *frozenFS) RemoveAll(name string) error {
	return f.change(os.ErrNotExist, func() error { return f.FS.RemoveAll(name) }, func() error { return f.memory.RemoveAll(name) })
}

func (f *frozenFS) Rename(from, to string) error {
	return f.change(nil, func() error { return f.FS.Rename(from, to) }, func() error { return f.memory.Rename(from, to) })
}

func (f *frozenFS) Link(from, to string) error {
	return f.change(os.ErrExist, func() error { return f.FS.Link(from, to) }, func() error { return f.memory.Link(from, to) })
}

func (f *frozenFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(os.ErrExist, func() error { return f.FS.MkdirAll(dir, perm) }, func() error { return f.memory.MkdirAll(dir, perm) })
}

// frozenFile is a file on the disk.
type frozenFile struct {
	vfs.File
	f *frozenFS
}

func (x *frozenFile) Write(b []byte) (int, error) {
	n := len(b)
	if counts, err := x.f.do(func() (err error) { n, err = x.File.Write(b); return err }, nil); counts {
		return n, err
	}
	return len(b), nil
}

func (x *frozenFile) WriteAt(b []byte, off int64) (int, error) {
	n := len(b)
	if counts, err := x.f.do(func() (err error) { n, err = x.File.WriteAt(b, off); return err }, nil); counts {
		return n, err
	}
	return len(b), nil
}

// settle is an operation without a result.
func (x *frozenFile) settle(op func() error) error {
	if counts, err := x.f.do(op, nil); counts {
		return err
	}
	return nil
}

func (x *frozenFile) Sync() error     { return x.settle(x.File.Sync) }
func (x *frozenFile) SyncData() error { return x.settle(x.File.SyncData) }

func (x *frozenFile) SyncTo(length int64) (full bool, err error) {
	err = x.settle(func() (err error) { full, err = x.File.SyncTo(length); return err })
	return full, err
}

func (x *frozenFile) Preallocate(off, length int64) error {
	return x.settle(func() error { return x.File.Preallocate(off, length) })
}

// rereadPause slows down those who read what a frozen store left half written, and try again at once.
const rereadPause = 100 * time.Millisecond

func (x *frozenFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := x.File.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) && x.f.failure() != nil {
		time.Sleep(rereadPause)
	}
	return n, err
}

// Fd hides the descriptor: Pebble would sync by it.
func (x *frozenFile) Fd() uintptr { return vfs.InvalidFd }
