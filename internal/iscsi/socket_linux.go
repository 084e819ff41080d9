package iscsi

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxIovec = 1024 // IOV_MAX
	// stayTimeout is how long a reader that stays waits in its socket; the kernel rounds it up to its tick.
	stayTimeout = 2 * time.Millisecond
	// restEvery is how often a reader that stays lets other goroutines run. The runtime takes the
	// processor from one that has not done so for 10 ms, and then looks for more to take every 20 µs.
	restEvery = 4 * time.Millisecond
	// shortCall is up to how many bytes are moved without a word to the runtime. It lends the processor
	// to others in calls that it knows of, and wakes its watcher for that: dearer than the call. A data
	// segment of 256 KiB is short, with what is asked for beyond it.
	shortCall = 256<<10 + afterLarge
	// tellEvery is how many reads in a row may pass without such a word. The watcher sleeps while the
	// runtime has nothing to do, and only a call that it knows of wakes it: without one a reader whose
	// peer never pauses would keep its processor from all others.
	tellEvery = 32
)

// socket is the way to the peer after login. The runtime's poller has let go of it: that wakes a
// thread whenever something comes, also while the reader is at work and will read it anyway. A
// goroutine that waits does so at a gate, and the reader may wait in the socket itself (stay_linux.go).
type socket struct {
	fd  int
	sys socketCalls
	in  *gate // something can be read
	out *gate // something can be written

	receiving struct {
		n   uint // reads so far
		iov [8]unix.Iovec
		msg unix.Msghdr
	}
	sending struct { // belongs to the holder of the sending token
		iov   [maxIovec]unix.Iovec
		msg   unix.Msghdr
		vec   [][]byte // of one who waits
		n     int
		errno syscall.Errno
		again func(uintptr) bool // sendAgain; made once, for it is an allocation
	}
}

// socketCalls are the system calls for data. A test counts them.
type socketCalls interface {
	// receive waits for data when wait is set, for stayTimeout at most. room is the length of the message. tell
	// has the runtime know of the call.
	receive(fd int, msg *unix.Msghdr, room int, tell, wait bool) (int, syscall.Errno)
	// send never waits.
	send(fd int, msg *unix.Msghdr, tell bool) (int, syscall.Errno)
}

// newSocket takes a connection over; nil, and it stays as it is, where it has no descriptor, or with an
// error, as when the process has none left. All that a socket will ever need is made here.
func newSocket(nc net.Conn, sys socketCalls) (*socket, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{sys: sys}
	s.sending.again = s.sendAgain
	if sys == nil {
		s.sys = kernel{}
	}
	var ferr error
	err = raw.Control(func(old uintptr) { s.fd, ferr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, ferr); err != nil {
		return nil, err
	}
	if err = s.prepare(); err != nil {
		s.Close()
		return nil, err
	}
	nc.Close() // its descriptor; the socket lives on in ours
	return s, nil
}

// prepare makes what the socket waits with. What it leaves undone or half done is closed by Close.
func (s *socket) prepare() (err error) {
	if s.in, err = newGate(s.fd, unix.EPOLLIN); err != nil {
		return err
	}
	if s.out, err = newGate(s.fd, unix.EPOLLOUT); err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(int64(stayTimeout))
	if err = unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	return unix.SetNonblock(s.fd, false) // the last: nc, if it stays, needs it as it was
}

// gate is where a goroutine waits for one socket without a thread: an epoll instance that has
// this socket alone, and that the runtime's poller watches.
type gate struct {
	ep   int // f's descriptor; only while f is open
	f    *os.File
	raw  syscall.RawConn
	open uint32 // the events that open it
}

func newGate(fd int, events uint32) (*gate, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	event := unix.EpollEvent{Events: events}
	if err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &event); err == nil {
		err = unix.SetNonblock(ep, true) // else the runtime does not watch it
	}
	if err != nil {
		unix.Close(ep)
		return nil, err
	}
	g := &gate{ep: ep, f: os.NewFile(uintptr(ep), "gate"), open: events}
	if err = g.f.SetReadDeadline(time.Time{}); err == nil { // does the runtime watch it?
		g.raw, err = g.f.SyscallConn()
	}
	if err != nil {
		g.f.Close()
		return nil, err
	}
	return g, nil
}

// set shuts the gate, so that what comes wakes nobody, or opens it again.
func (g *gate) set(fd int, open bool) error {
	var event unix.EpollEvent
	if open {
		event.Events = g.open
	}
	return unix.EpollCtl(g.ep, unix.EPOLL_CTL_MOD, fd, &event)
}

// wait calls ready until it returns true, each time that the socket may be ready.
func (g *gate) wait(ready func(uintptr) bool) error { return g.raw.Read(ready) }

// point makes a message of a list of buffers, as far as it has room for them, and returns their length.
func point(msg *unix.Msghdr, iov []unix.Iovec, vec [][]byte) (n int) {
	k := 0
	for _, b := range vec {
		if k == len(iov) {
			break
		}
		if len(b) > 0 {
			iov[k].Base = &b[0]
			iov[k].SetLen(len(b))
			n += len(b)
			k++
		}
	}
	msg.Iov = &iov[0]
	msg.SetIovlen(k)
	return n
}

// receive reads into vec and tells how much it asked for. It waits for stayTimeout at most, and
// without wait not at all; EAGAIN says that there is nothing, or that a signal ended the wait: were
// that repeated, signals in a row would keep the reader from all that it is kicked for.
func (s *socket) receive(vec [][]byte, wait bool) (n, asked int, errno syscall.Errno) {
	r := &s.receiving
	asked = point(&r.msg, r.iov[:], vec)
	r.n++
	tell := wait || asked > shortCall || r.n%tellEvery == 0
	for {
		n, errno = s.sys.receive(s.fd, &r.msg, asked, tell, wait)
		if errno == syscall.EINTR && wait {
			errno = syscall.EAGAIN
		}
		if errno != syscall.EINTR {
			return n, asked, errno
		}
	}
}

// send writes what the socket takes of vec now.
func (s *socket) send(vec [][]byte) (n int, errno syscall.Errno) {
	w := &s.sending
	total := point(&w.msg, w.iov[:], vec)
	for {
		n, errno = s.sys.send(s.fd, &w.msg, total > shortCall)
		if errno != syscall.EINTR {
			return n, errno
		}
	}
}

// kernel is the real socketCalls.
type kernel struct{}

func (kernel) receive(fd int, msg *unix.Msghdr, _ int, tell, wait bool) (int, syscall.Errno) {
	var n uintptr
	var errno syscall.Errno
	var flags uintptr
	if !wait {
		flags = unix.MSG_DONTWAIT
	}
	one := msg.Iovlen == 1
	switch {
	case tell && one:
		n, _, errno = syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(msg.Iov.Base)), uintptr(msg.Iov.Len), flags, 0, 0)
	case tell:
		n, _, errno = syscall.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)), flags)
	case one:
		n, _, errno = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(msg.Iov.Base)), uintptr(msg.Iov.Len), flags, 0, 0)
	default:
		n, _, errno = syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)), flags)
	}
	return int(n), errno
}

func (kernel) send(fd int, msg *unix.Msghdr, tell bool) (int, syscall.Errno) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	var n uintptr
	var errno syscall.Errno
	if tell {
		n, _, errno = syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)), flags)
	} else {
		n, _, errno = syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(msg)), flags)
	}
	return int(n), errno
}

// write writes what it can of vec. Without wait it returns errWouldBlock when the socket takes nothing.
func (s *socket) write(vec [][]byte, wait bool) (int, error) {
	n, errno := s.send(vec)
	switch {
	case errno == syscall.EAGAIN && wait:
		return s.writeLater(vec)
	case errno == syscall.EAGAIN:
		return 0, errWouldBlock
	case errno != 0:
		return 0, errno
	}
	return n, nil
}

// writeLater is write once the socket has room.
func (s *socket) writeLater(vec [][]byte) (int, error) {
	w := &s.sending
	w.vec = vec
	err := s.out.wait(w.again)
	w.vec = nil
	switch {
	case err != nil:
		return 0, err
	case w.errno != 0:
		return 0, w.errno
	}
	return w.n, nil
}

// sendAgain returns false when there is still no room.
func (s *socket) sendAgain(uintptr) bool {
	w := &s.sending
	w.n, w.errno = s.send(w.vec)
	return w.errno != syscall.EAGAIN
}

// unacked returns how many bytes that were written the peer has not acknowledged; false: the kernel does not say it, or the
// socket is closed. Anybody may call it.
func (s *socket) unacked() (n uint64, ok bool) {
	// The gate is closed before the descriptor, and not while somebody is in here.
	err := s.in.raw.Control(func(uintptr) {
		v, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ)
		n, ok = uint64(max(v, 0)), err == nil
	})
	return n, ok && err == nil
}

// SetReadDeadline ends the waits of the reader at time t; one that stays notices later.
func (s *socket) SetReadDeadline(t time.Time) error { return s.in.f.SetReadDeadline(t) }

// SetWriteDeadline ends the waits of whoever sends at time t.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.out.f.SetReadDeadline(t) }

// SetDeadline is both.
func (s *socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// Read implements io.Reader, for the reader.
func (s *socket) Read(b []byte) (n int, err error) {
	var errno syscall.Errno
	err = s.in.wait(func(uintptr) bool {
		n, _, errno = s.receive([][]byte{b}, false)
		return errno != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// CloseWrite tells the peer that nothing more comes.
func (s *socket) CloseWrite() error { return unix.Shutdown(s.fd, unix.SHUT_WR) }

// Close ends it. Preconditions: nobody reads or writes any more. Who sets a deadline still is told
// that it is closed.
func (s *socket) Close() (err error) {
	for _, g := range []*gate{s.in, s.out} {
		if g != nil {
			err = errors.Join(err, g.f.Close())
		}
	}
	if errors.Is(err, os.ErrClosed) { // the descriptor may be another's by now
		return err
	}
	return errors.Join(err, unix.Close(s.fd))
}
