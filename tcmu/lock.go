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

// lockFile is a file that is locked until release or the end of the process, though nothing may refer to it any more: so it is no
// [os.File], which the garbage collector closes.
type lockFile struct{ fd int }

// ErrOtherServer means that another process answers the kernel.
var ErrOtherServer = errors.New("another process serves TCMU devices")

// takeLock locks the file in the way that conflicts with a lock of a whole file by
// fcntl(F_SETLK), but belongs to the open file instead of the process.
func takeLock(path string) (*lockFile, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tcmu: lock file: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
	if err == nil {
		return &lockFile{fd}, nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("tcmu: %w: %s is locked; if that is tcmu-runner, run: systemctl disable --now tcmu-runner", ErrOtherServer, path)
	}
	return nil, fmt.Errorf("tcmu: locking %s: %w", path, err)
}

func (l *lockFile) release() {
	if l != nil && l.fd >= 0 {
		unix.Close(l.fd)
		l.fd = -1 // the number is another file's soon
	}
}
