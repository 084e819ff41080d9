package store

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("the data folder %s is in use by another arraysim; stop that one, or choose another folder with --data", dir)
	}
	return lock, nil
}
