package iscsi

import (
	"io"
	"net"
	"syscall"
	"unsafe"
)

const maxIovec = 1024 // IOV_MAX

// rawConn returns the way to the descriptor of a stream socket.
func rawConn(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// readSome reads and works off what comes until the connection fails. All of it
// happens inside one call of raw.Read, so that waiting is all that the runtime is
// asked for.
func (c *conn) readSome() error {
	if c.raw == nil {
		return c.readPlain()
	}
	var end error
	err := c.raw.Read(func(fd uintptr) bool {
		for {
			direct, rest := c.rx.space()
			n, errno := readv(fd, direct, rest)
			switch {
			case errno == syscall.EAGAIN:
				return false
			case errno == syscall.EINTR:
				continue
			case errno != 0:
				end = errno
				return true
			case n == 0:
				end = io.EOF
				return true
			}
			if end = c.received(direct, n); end != nil {
				return true
			}
			if c.stopping.Load() || c.aborting.Load() || c.reset.Load() || c.look.Load() {
				end = errKicked
				return true
			}
		}
	})
	if end != nil {
		return end
	}
	return err
}

// write writes what it can of vec. Without wait it returns errWouldBlock when
// the socket takes nothing.
func (c *conn) write(vec [][]byte, wait bool) (n int, err error) {
	if c.raw == nil {
		return c.writePlain(vec, wait)
	}
	w := &c.out.sys
	w.vec, w.wait, w.n, w.errno = vec, wait, 0, 0
	if w.fn == nil {
		w.fn = w.call // once: a method value is an allocation
	}
	err = c.raw.Write(w.fn)
	w.vec = nil
	switch {
	case err != nil:
		return 0, err
	case w.errno != 0:
		return 0, w.errno
	case w.n == 0:
		return 0, errWouldBlock
	}
	return w.n, nil
}

// sysWrite is one call of writev. It belongs to the holder of the sending token.
type sysWrite struct {
	vec   [][]byte
	wait  bool
	n     int
	errno syscall.Errno
	fn    func(fd uintptr) bool
	iov   [maxIovec]syscall.Iovec
}

// call writes once; it returns false to be called again when the socket has room.
func (w *sysWrite) call(fd uintptr) bool {
	k := 0
	for _, b := range w.vec {
		if k == len(w.iov) {
			break
		}
		if len(b) > 0 {
			w.iov[k].Base = &b[0]
			w.iov[k].SetLen(len(b))
			k++
		}
	}
	for {
		n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&w.iov[0])), uintptr(k))
		switch errno {
		case 0:
			w.n = int(n)
			return true
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return !w.wait
		}
		w.errno = errno
		return true
	}
}

func readv(fd uintptr, direct [][]byte, rest []byte) (int, syscall.Errno) {
	if len(direct) == 0 {
		n, _, errno := syscall.Syscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)))
		return int(n), errno
	}
	var iov [8]syscall.Iovec
	k := 0
	for ; k < len(direct) && k < len(iov)-1; k++ {
		iov[k].Base = &direct[k][0]
		iov[k].SetLen(len(direct[k]))
	}
	if k == len(direct) {
		iov[k].Base = &rest[0]
		iov[k].SetLen(len(rest))
		k++
	}
	n, _, errno := syscall.Syscall(syscall.SYS_READV, fd, uintptr(unsafe.Pointer(&iov[0])), uintptr(k))
	return int(n), errno
}
