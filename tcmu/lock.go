package tcmu

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockPath is the file that tcmu-runner locks while it runs. Holding it keeps
// tcmu-runner from starting later, whose answers to the kernel would come first.
const lockPath = "/run/tcmu.lock"

type lockFile struct{ f *os.File }

// ErrOtherServer means that another process answers the kernel.
var ErrOtherServer = errors.New("another process serves TCMU devices")

// takeLock locks the file in the way that conflicts with a lock of a whole file by
// fcntl(F_SETLK), but belongs to the open file instead of the process.
func takeLock(path string) (*lockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tcmu: lock file: %w", err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if err == nil {
		return &lockFile{f}, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("tcmu: %w: %s is locked; if that is tcmu-runner, run: systemctl disable --now tcmu-runner", ErrOtherServer, path)
	}
	return nil, fmt.Errorf("tcmu: locking %s: %w", path, err)
}

func (l *lockFile) release() {
	if l != nil {
		l.f.Close()
	}
}
