// Package uring is a submission and a completion queue that the process shares with the kernel
// (io_uring), as far as files need it: reads and writes, many with one system call. The facts are
// those of io_uring_setup(2), io_uring_enter(2) and of <linux/io_uring.h>.
//
// # Concurrency
//
// A ring belongs to one goroutine at a time. The caller keeps what it queued reachable, and where it
// is, until its answer was reaped: a buffer must not be on a stack.
package uring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations, of enum io_uring_op.
const (
	opReadv  = 1
	opWritev = 2
	opRead   = 22
	opWrite  = 23
)

// Flags of io_uring_setup and io_uring_enter, and what mmap takes for an offset.
const (
	setupCQSize    = 1 << 3
	setupClamp     = 1 << 4
	enterGetEvents = 1 << 0
	offRings       = 0
	offEntries     = 0x10000000
)

// Features that Open insists on: queues in one mapping; no answer is ever dropped; what a
// submission refers to, but for buffers, is the caller's again when Submit returns; OpRead and
// OpWrite (5.6); and kernel threads that are those of this process, whose memory does not count
// for RLIMIT_MEMLOCK (5.12).
const needed = featSingleMmap | featNoDrop | featSubmitStable | featRWCurPos | featNativeWorkers

const (
	featSingleMmap    = 1 << 0
	featNoDrop        = 1 << 1
	featSubmitStable  = 1 << 2
	featRWCurPos      = 1 << 3
	featNativeWorkers = 1 << 9
)

// entry is a submission (struct io_uring_sqe).
type entry struct {
	op    uint8
	flags uint8
	prio  uint16
	fd    int32
	off   uint64
	addr  uint64
	len   uint32
	rw    uint32
	user  uint64
	_     [24]byte
}

// answer is a completion (struct io_uring_cqe).
type answer struct {
	user  uint64
	res   int32
	flags uint32
}

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFd uint32
	_                                                                  [3]uint32
	sq                                                                 struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, answers, flags, _ uint32
		_                                                      uint64
	}
}

// Ring is a pair of queues. See the package for who may call what.
type Ring struct {
	// Fault, unless it is nil, is asked before each call, and fails it by an error: for tests of those who
	// use a ring. It is set before the first use.
	Fault func() error

	fd int

	rings, submissions []byte // mapped
	entries            []entry
	answers            []answer
	vecs               [][]unix.Iovec // what entries point to

	sqHead, sqTail *atomic.Uint32
	cqHead, cqTail *atomic.Uint32
	tail           uint32 // of what is queued; the kernel has seen what lies before sqTail
}

// enterCall is io_uring_enter; tests replace it.
var enterCall = func(fd int, submit, wait, flags uint32) (int, error) {
	n, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), uintptr(flags), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// setupCall is io_uring_setup; tests replace it.
var setupCall = func(entries uint32, p *params) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// Open makes a ring that takes so many submissions at once, and has room for so many answers; both
// are rounded up to powers of two. It fails where the kernel has no rings or too old ones (ENOSYS,
// or features that are missing), where it must not hand them out (EPERM of a seccomp filter or of
// kernel.io_uring_disabled), or where memory is short (ENOMEM).
func Open(submissions, answers int) (*Ring, error) {
	p := params{flags: setupCQSize | setupClamp, cqEntries: uint32(answers)}
	fd, err := setupCall(uint32(submissions), &p)
	if err != nil {
		return nil, fmt.Errorf("io_uring_setup: %w", err)
	}
	r := &Ring{fd: fd}
	if err := r.open(&p); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Ring) open(p *params) (err error) {
	if p.features&needed != needed {
		return fmt.Errorf("the kernel's io_uring lacks features: it has %#x, %#x are needed: %w", p.features, needed, unix.ENOSYS)
	}
	size := max(p.sq.array+p.sqEntries*4, p.cq.answers+p.cqEntries*uint32(unsafe.Sizeof(answer{})))
	const shared, access = unix.MAP_SHARED | unix.MAP_POPULATE, unix.PROT_READ | unix.PROT_WRITE
	if r.rings, err = unix.Mmap(r.fd, offRings, int(size), access, shared); err != nil {
		return fmt.Errorf("mmap of io_uring: %w", err)
	}
	if r.submissions, err = unix.Mmap(r.fd, offEntries, int(p.sqEntries)*int(unsafe.Sizeof(entry{})), access, shared); err != nil {
		return fmt.Errorf("mmap of io_uring: %w", err)
	}
	word := func(off uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqHead, r.sqTail, r.cqHead, r.cqTail = word(p.sq.head), word(p.sq.tail), word(p.cq.head), word(p.cq.tail)
	r.tail = r.sqTail.Load()
	r.entries = unsafe.Slice((*entry)(unsafe.Pointer(&r.submissions[0])), p.sqEntries)
	r.answers = unsafe.Slice((*answer)(unsafe.Pointer(&r.rings[p.cq.answers])), p.cqEntries)
	r.vecs = make([][]unix.Iovec, p.sqEntries)
	for i := range p.sqEntries {
		word(p.sq.array + i*4).Store(i) // each place has its own entry
	}
	return nil
}

// Close ends the ring. What the kernel has under way goes on: it may still touch
// its buffers. Whoever queued it has to have reaped it before.
func (r *Ring) Close() error {
	err := unix.Close(r.fd)
	for _, m := range [][]byte{r.submissions, r.rings} {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	return err
}

// Room returns how many submissions can be queued before the next Submit.
func (r *Ring) Room() int { return len(r.entries) - int(r.tail-r.sqHead.Load()) }

// Queued returns how many submissions the next Submit has.
func (r *Ring) Queued() int { return int(r.tail - r.sqHead.Load()) }

// Answers returns how many answers the ring has room for.
func (r *Ring) Answers() int { return len(r.answers) }

// IovMax is the number of buffers that one submission takes.
const IovMax = 1024

// Read queues a read into a list of at least one buffer and at most IovMax, with flags of preadv2
// (RWF_NOWAIT); user comes back with its answer. Preconditions: there is Room.
func (r *Ring) Read(fd int, vec [][]byte, off int64, flags int, user uint64) {
	r.queue(opRead, opReadv, fd, vec, off, flags, user)
}

// Write queues a write; see Read.
func (r *Ring) Write(fd int, vec [][]byte, off int64, flags int, user uint64) {
	r.queue(opWrite, opWritev, fd, vec, off, flags, user)
}

func (r *Ring) queue(one, many uint8, fd int, vec [][]byte, off int64, flags int, user uint64) {
	at := r.tail & uint32(len(r.entries)-1)
	e := &r.entries[at]
	*e = entry{op: one, fd: int32(fd), off: uint64(off), rw: uint32(flags), user: user}
	if len(vec) == 1 {
		e.addr, e.len = address(unsafe.SliceData(vec[0])), uint32(len(vec[0]))
	} else {
		list := r.vecs[at][:0]
		for _, b := range vec {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			list = append(list, v)
		}
		r.vecs[at] = list
		e.op, e.addr, e.len = many, address(unsafe.SliceData(list)), uint32(len(list))
	}
	r.tail++
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// Submit hands what is queued to the kernel. On an error it calls back for each submission that the
// kernel did not take: they are queued no more.
func (r *Ring) Submit(back func(user uint64)) error {
	return r.enter(0, 0, back)
}

// SubmitAndWait is Submit that returns when there are at least n answers.
func (r *Ring) SubmitAndWait(n int, back func(user uint64)) error {
	return r.enter(uint32(n), enterGetEvents, back)
}

func (r *Ring) enter(wait, flags uint32, back func(user uint64)) error {
	r.sqTail.Store(r.tail)
	for {
		left := r.tail - r.sqHead.Load()
		if left == 0 && (wait == 0 || uint32(r.ready()) >= wait) {
			return nil
		}
		n, err := r.call(left, wait, flags)
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0 && left != 0:
			err = unix.EAGAIN // it takes nothing, and does not say why
			fallthrough
		case err != nil:
			return r.takeBack(err, back)
		}
	}
}

func (r *Ring) call(submit, wait, flags uint32) (int, error) {
	if r.Fault != nil {
		if err := r.Fault(); err != nil {
			return 0, err
		}
	}
	return enterCall(r.fd, submit, wait, flags)
}

// takeBack ends a submission that failed.
func (r *Ring) takeBack(err error, back func(user uint64)) error {
	head := r.sqHead.Load()
	r.sqTail.Store(head) // nobody in the kernel looks there but within a call
	for ; head != r.tail; r.tail-- {
		back(r.entries[(r.tail-1)&uint32(len(r.entries)-1)].user)
	}
	return fmt.Errorf("io_uring_enter: %w", err)
}

// ready returns how many answers there are.
func (r *Ring) ready() int { return int(r.cqTail.Load() - r.cqHead.Load()) }

// Reap takes the answers that are there: res is what the system call would return, or the negative
// number of its error. It returns how many there were.
func (r *Ring) Reap(fn func(user uint64, res int32)) int {
	head := r.cqHead.Load()
	n := int(r.cqTail.Load() - head)
	for range n {
		a := r.answers[head&uint32(len(r.answers)-1)]
		head++
		r.cqHead.Store(head)
		fn(a.user, a.res)
	}
	return n
}
