package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// flock is flock(2); tests replace it.
var flock = unix.Flock

// lockFolder keeps other processes out. The lock is of the open file (flock), so
// that it ends with the process and also keeps out a second store of the same one.
func lockFolder(fs FS, dir string) (io.Closer, error) {
	path := filepath.Join(dir, "lock")
	if fs != OS {
		return fs.Lock(path)
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data folder cannot be locked: %w", err)
	}
	err = block.Again(func() error { return flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("the data folder %s is in use by another arraysim; stop that one, or choose another folder with --data", dir)
	default:
		err = fmt.Errorf("the data folder %s cannot be locked: %w; choose one with --data on a file system that has locks", dir, err)
	}
	return nil, errors.Join(err, lock.Close())
}
