package tcmu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// uio is the Link of a real device.
type uio struct {
	file *os.File
	mem  []byte
	// stop is an eventfd that ends Wait. fds, which Wait alone uses, are that and the device.
	stop *os.File
	fds  [2]unix.PollFd
}

// openUIO opens and maps /dev/uioN. It fails with EBUSY while another process has
// the device open.
func (t tree) openUIO(minor uint32) (Link, error) {
	size, err := t.mapSize(minor)
	if err != nil {
		return nil, err
	}
	path := t.path("dev", uioName(minor))
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	// A thread waits for the device: by way of the runtime's poller, a command at
	// an idle device would cost a second thread's waking and two more system calls.
	file := os.NewFile(uintptr(fd), path)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		file.Close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	stop := os.NewFile(uintptr(event), "eventfd")
	// The driver takes a mapping of all of it only. Pages of the data area appear
	// as commands use them, so nothing is populated.
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		stop.Close()
		file.Close()
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	u := &uio{file: file, mem: mem, stop: stop}
	u.fds = [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(event), Events: unix.POLLIN}}
	return u, nil
}

func uioName(minor uint32) string { return "uio" + strconv.FormatUint(uint64(minor), 10) }

func (t tree) mapSize(minor uint32) (int, error) {
	text, err := t.read(t.path("sys/class/uio", uioName(minor), "maps/map0/size"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 62)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("tcmu: %s has a map of %q bytes", uioName(minor), text)
	}
	return int(n), nil
}

func (u *uio) Memory() []byte { return u.mem }

// Wait waits until the number of events is another than that of the last read, and
// reads it.
func (u *uio) Wait() error {
	for {
		u.fds[0].Revents, u.fds[1].Revents = 0, 0
		if _, err := unix.Poll(u.fds[:], -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return os.NewSyscallError("poll", err)
		}
		if u.fds[1].Revents != 0 {
			return os.ErrClosed
		}
		var count [4]byte
		n, err := u.file.Read(count[:])
		if err == nil && n != len(count) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
}

// kick is what Notify writes: only the length matters.
var kick = []byte{0, 0, 0, 0}

func (u *uio) Notify() error {
	_, err := u.file.Write(kick)
	return err
}

// Stop leaves the file open: commands that are in progress still notify.
func (u *uio) Stop() error {
	_, err := u.stop.Write([]byte{1, 7: 1}) // a number above 0 in either byte order
	return err
}

func (u *uio) Close() error {
	err := unix.Munmap(u.mem)
	u.mem = nil
	return errors.Join(err, u.file.Close(), u.stop.Close())
}
