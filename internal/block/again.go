package block

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Again makes a system call until no signal interrupts it. Most calls go on by themselves
// behind a signal, but not all, and the Go runtime signals any thread that it wants to stop for a moment.
func Again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// Allocate gives the first size bytes of a file room on its disk, and the file at least
// that size. Errors are those of fallocate(2); the file is as long as before then.
//
// The tmpfs of Linux 6.1 gives back all that a call has got when a signal interrupts it, so that a long
// one might never end: the parts become shorter then.
func Allocate(fd int, size int64) error {
	return allocate(fd, size, func(at, n int64) error { return unix.Fallocate(fd, 0, at, n) })
}

func allocate(fd int, size int64, call func(at, n int64) error) error {
	var before unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return err
	}
	step := size // all in one call at first: what can never fit is refused before any of it is taken
	for at := int64(0); at < size; {
		n := min(step, size-at)
		switch err := call(at, n); {
		case err == nil:
			at += n
		case err == unix.EINTR:
			step = max(step/2, 4096)
		case before.Size < size:
			return errors.Join(err, Again(func() error { return unix.Ftruncate(fd, before.Size) }))
		default:
			return err
		}
	}
	return nil
}
