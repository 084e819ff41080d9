package tcmu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uio is the Link of a real device.
type uio struct {
	file *os.File
	fd   int // of file
	mem  []byte
	stop *os.File // an eventfd that ends Wait

	using sync.RWMutex // Notify holds it shared, since the file's own count does not know of its calls

	gate  int // an epoll instance with both; the first Wait makes it
	waits int // of the device; Wait's own
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
	return &uio{file: file, fd: fd, mem: mem, stop: stop}, nil
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

// countEvery is the number of waits after which the number of events is read. The driver tells by
// that number alone whether there was one: it must not come round, after 2^32, to the one of the last
// read.
const countEvery = 1 << 10

// Wait waits for an event behind those of the Waits before it. The device is watched for its edges,
// so that none has to be read: one system call for a wait instead of two.
func (u *uio) Wait() error {
	if u.gate == 0 {
		if err := u.open(); err != nil {
			return err
		}
	}
	var events [2]unix.EpollEvent
	for {
		n, err := unix.EpollWait(u.gate, events[:], -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("epoll_wait", err)
		}
		for _, e := range events[:n] {
			if e.Fd != int32(u.fd) {
				return os.ErrClosed
			}
		}
		if u.waits++; u.waits%countEvery == 0 || events[0].Events != unix.EPOLLIN {
			return u.count() // or it says why there will be no event any more
		}
		return nil
	}
}

// open makes the gate.
func (u *uio) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create", err)
	}
	u.gate = fd
	stop := int(u.stop.Fd())
	for _, e := range []unix.EpollEvent{{Fd: int32(u.fd), Events: unix.EPOLLIN | unix.EPOLLET}, {Fd: int32(stop), Events: unix.EPOLLIN}} {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, int(e.Fd), &e); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	return nil
}

// count reads the number of events, of which there is one.
func (u *uio) count() error {
	fds := []unix.PollFd{{Fd: int32(u.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n == 0 || err != nil {
		return nil //nolint:nilerr // it can be read after the next wait as well
	}
	var count [4]byte
	n, err := u.file.Read(count[:])
	if err == nil && n != len(count) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// kick is what Notify writes: only the length matters.
var kick = []byte{0, 0, 0, 0}

// Notify takes as long as the kernel needs to take the completions of a portion, and waits for
// nobody. So the runtime is not told of it: at a call that it knows of it wakes its watcher.
func (u *uio) Notify() error {
	u.using.RLock()
	defer u.using.RUnlock()
	if u.mem == nil {
		return os.ErrClosed
	}
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(u.fd), uintptr(unsafe.Pointer(&kick[0])), uintptr(len(kick)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return &os.PathError{Op: "write", Path: u.file.Name(), Err: errno}
		}
	}
}

// Stop leaves the file open: commands that are in progress still notify.
func (u *uio) Stop() error {
	_, err := u.stop.Write([]byte{1, 7: 1}) // a number above 0 in either byte order
	return err
}

// Close waits for those who notify: the descriptor may be another file's afterwards.
func (u *uio) Close() error {
	u.using.Lock()
	defer u.using.Unlock()
	err := unix.Munmap(u.mem)
	u.mem = nil
	if u.gate != 0 {
		err = errors.Join(err, unix.Close(u.gate))
	}
	return errors.Join(err, u.file.Close(), u.stop.Close())
}
