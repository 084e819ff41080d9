package store

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/store/uring"
)

// descriptor is a DataFile whose transfers a ring may carry out.
type descriptor interface {
	Descriptor() int
}

// Sizes of the rings: a transfer takes two places, and two answers. They take 16 KiB for places and
// 64 KiB for answers.
const (
	ringPlaces  = 256  // submissions that one call takes
	ringAnswers = 4096 // that are outstanding, of all mdisks
)

// Reads that the page cache may answer: from ringBatch on a ring costs less than a call each. One
// call has ringPart of them: the kernel begins to read what it does not have, and hands that to the
// disk at the end of the call, which would be idle for longer ones.
const (
	ringBatch = 4
	ringPart  = 8
)

// ringTries is how often in a row the kernel may take and bring nothing until the ring is given up: for
// a tenth of a second, in which goroutines do what comes back.
const ringTries = 100

// openURing is uring.Open; tests replace it.
var openURing = uring.Open

// ring carries out reads by io_uring, data and checksums of many with one system call, and writes past
// the page cache (direct.go). It has two
// rings. That of reads which must not wait is the executor's. The other one belongs to a goroutine
// that hands over what has begun and waits for answers with the same call; it is woken there by an
// eventfd, and parks when nothing is under way. Writes through the page cache go to the pool: the kernel
// would give those of a file to a thread of its own, one after the other, which costs more than to
// call it.
//
// What it does not end as it should, for whatever reason, a goroutine of the pool does once more, and
// what that says counts: the ring knows no errors. A ring whose calls fail again and again is given up,
// and goroutines do all from then on.
type ring struct {
	s    *Files
	now  *uring.Ring
	deep *uring.Ring
	kick chan struct{} // wakes it when it is parked
	bell int           // an eventfd, wakes it when it waits in the kernel
	over chan struct{} // closed: it has ended

	misses int    // calls of now in a row that failed; only touched on the executor
	calls  uint64 // of now, to know their answers by; only touched on the executor

	// The goroutine's own:
	armed  bool // a read of the bell is under way
	ended  []*xfer
	wrote  []*fileMedium // that have writes among these
	failed int           // calls in a row that failed

	mu      sync.Mutex
	state   ringState // guarded by mu
	pending []*xfer   // begun, and not handed over; guarded by mu
	slots   []*xfer   // under way; guarded by mu
	free    []uint32  // slots; guarded by mu
	closed  bool      // nothing begins any more; guarded by mu
	dead    bool      // it was given up; guarded by mu
}

// ringState is what the ring's goroutine does.
type ringState uint8

const (
	ringWorks  ringState = iota // it will look at pending before it waits
	ringParked                  // it has nothing to do, and hears a kick
	ringWaits                   // it is in the kernel, and hears the bell
)

// userBell is the answer of the bell.
const userBell = ^uint64(0)

// rung is what rings read from their bells; nobody looks at it. It is no memory of Go's heap, which
// could be somebody else's when the kernel ends that read: a ring is closed over one.
var rung [8]byte

// openRing returns an error where the kernel gives no ring.
func openRing(s *Files, places, answers int) (*ring, error) {
	r := &ring{s: s, kick: make(chan struct{}, 1), over: make(chan struct{})}
	var err error
	if r.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if r.now, err = openURing(places, places); err != nil {
		unix.Close(r.bell)
		return nil, err
	}
	if r.deep, err = openURing(places, answers); err != nil {
		r.now.Close()
		unix.Close(r.bell)
		return nil, err
	}
	r.slots = make([]*xfer, (r.deep.Answers()-1)/2) // one answer is the bell's
	for i := range r.slots {
		r.free = append(r.free, uint32(i))
	}
	go r.run()
	return r, nil
}

// readNow reads what the page cache has of one mdisk, with one call for many. It brings these reads
// to the front of the list and returns how many they are.
func (r *ring) readNow(m *fileMedium, list []*xfer) (hits int) {
	for at := 0; at < len(list); {
		part := list[at:min(at+ringPart, at+r.now.Room()/2, len(list))]
		r.calls++
		user := r.calls * (2 * ringPart)
		for i, x := range part {
			x.got = [2]int32{-1, -1}
			x.findSums()
			if len(x.io.Vec) == 0 || len(x.io.Vec) > uring.IovMax {
				continue
			}
			r.now.Read(m.fds[0], x.io.Vec, int64(x.io.Off), unix.RWF_NOWAIT, user+uint64(i)<<1)
			if x.known {
				x.got[1] = int32(len(x.own.list[0]))
				continue
			}
			r.now.Read(m.fds[1], x.own.sized(x.io.N), sumAt(x.io.Off), unix.RWF_NOWAIT, user+uint64(i)<<1|1)
		}
		// What it did not take is no hit; what it took has ended, for that must not wait.
		if err := r.now.SubmitAndWait(r.now.Queued(), func(uint64) {}); err != nil {
			r.misses++
		} else {
			r.misses = 0
		}
		r.now.Reap(func(u uint64, res int32) {
			if i := u - user; i < uint64(2*len(part)) { // else it is an earlier call's, which was given up
				part[i>>1].got[i&1] = res
			}
		})
		for i, x := range part {
			if x.got[0] == -int32(unix.EOPNOTSUPP) {
				m.alwaysWaits()
			}
			if !x.whole() {
				continue
			}
			if m.verify(x.io, x.own.list[0]) != nil {
				if x.known {
					m.hot.drop(x.io.Off, x.io.N)
				}
				continue
			}
			list[at+i], list[hits] = list[hits], x
			hits++
		}
		at += len(part)
	}
	return hits
}

// whole tells whether data and checksums were moved, all of them.
func (x *xfer) whole() bool {
	return x.got[0] >= 0 && uint64(x.got[0]) == x.io.N && int(x.got[1]) == len(x.own.list[0])
}

// begin takes the transfers that the ring carries out; it returns the list without them.
func (r *ring) begin(list []*xfer) []*xfer {
	left, n := list[:0], 0
	r.mu.Lock()
	for _, x := range list {
		switch {
		case x == nil:
		case !x.m.rings || r.closed || r.dead || x.io.Write && !x.bypasses() || len(r.pending) >= len(r.free):
			left = append(left, x)
		default:
			r.pending = append(r.pending, x)
			n++
		}
	}
	if n > 0 {
		r.wake()
	}
	r.mu.Unlock()
	return left
}

// wake has the goroutine look. Preconditions: mu is held.
func (r *ring) wake() {
	switch r.state {
	case ringParked:
		r.kick <- struct{}{}
	case ringWaits:
		one := [8]byte{1}
		_, _ = unix.Write(r.bell, one[:]) // it fails only when the bell has rung 2^64 times
	}
	r.state = ringWorks
}

// run is the goroutine. It keeps its thread: the kernel ends reads, and the one of the bell, in the
// thread that submitted them, and cannot while that thread waits for a disk on behalf of another goroutine.
func (r *ring) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.over)
	r.mu.Lock()
	for {
		for len(r.pending) == 0 && len(r.free) == len(r.slots) {
			if r.closed {
				r.mu.Unlock()
				return
			}
			r.state = ringParked
			r.mu.Unlock()
			<-r.kick
			r.mu.Lock()
		}
		r.fill()
		wait := 0
		if len(r.pending) == 0 { // what found no place in this call does not wait for answers
			wait, r.state = 1, ringWaits
		}
		r.mu.Unlock()
		var back []uint64
		err := r.deep.SubmitAndWait(wait, func(user uint64) { back = append(back, user) })
		r.mu.Lock()
		r.state = ringWorks
		for _, user := range back {
			r.answer(user, -int32(unix.EAGAIN))
		}
		n := r.deep.Reap(r.answer)
		r.mu.Unlock()
		r.end() // before a pause: nobody waits for it
		switch {
		case err == nil:
			r.failed = 0
		case n > 0: // it still brings something
		case r.failed+1 < ringTries:
			r.failed++
			time.Sleep(time.Millisecond) // the kernel has no memory now, perhaps
		default:
			r.giveUp(err)
			return
		}
		r.mu.Lock()
	}
}

// giveUp ends a ring that does not work any more. What the kernel has of its reads may come at any time,
// so that their buffers are never used again.
func (r *ring) giveUp(err error) {
	r.mu.Lock()
	list := r.pending
	writes := 0
	for i, x := range r.slots {
		switch {
		case x == nil:
			continue
		case x.io.Write:
			writes++
			continue
		}
		lost.Lock()
		lost.bufs = append(lost.bufs, x.buf, x.own.list[0])
		lost.Unlock()
		x.own = scratch{}
		x.buf = make([]byte, len(x.buf))
		x.list[0] = x.buf[:x.io.N]
		list = append(list, x)
		r.slots[i] = nil
	}
	r.dead, r.pending = true, nil
	r.mu.Unlock()
	for _, x := range list {
		if !x.io.Write {
			x.mistrust()
		}
		x.toPool()
	}
	r.s.exec.Post(func() {
		r.s.notice("io_uring has failed %d times in a row, and is not used until the next start: %v; goroutines replace it", ringTries, err)
	})
	r.drain(writes)
}

// drain waits for the writes of a ring that was given up: the kernel reads their pages, which must not
// become others' meanwhile. It says that they have ended although no call asks.
func (r *ring) drain(writes int) {
	for writes > 0 {
		time.Sleep(time.Millisecond)
		r.mu.Lock()
		r.deep.Reap(r.answer)
		r.mu.Unlock()
		writes -= len(r.ended)
		r.end()
	}
}

// lost are buffers that the kernel may write to, although nobody knows when: they are kept, or they would
// be somebody else's.
var lost struct {
	sync.Mutex
	bufs [][]byte // guarded by the mutex
}

// fill queues what there is a place for. Preconditions: mu is held.
func (r *ring) fill() {
	if !r.armed {
		r.deep.Read(r.bell, [][]byte{rung[:]}, 0, 0, userBell)
		r.armed = true
	}
	n := min(len(r.pending), r.deep.Room()/2)
	for _, x := range r.pending[:n] {
		at := r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
		r.slots[at] = x
		x.wants = 2
		user := uint64(at) << 1
		if x.io.Write {
			x.wants, x.got[1] = 1, 0
			r.deep.Write(x.m.past.fd, x.io.Vec, int64(x.io.Off), 0, user)
			continue
		}
		r.deep.Read(x.m.fds[0], x.list[:], int64(x.io.Off), 0, user)
		if x.known {
			x.wants, x.got[1] = 1, int32(len(x.own.list[0]))
			continue
		}
		r.deep.Read(x.m.fds[1], x.own.sized(x.io.N), sumAt(x.io.Off), 0, user|1)
	}
	left := copy(r.pending, r.pending[n:])
	clear(r.pending[left:])
	r.pending = r.pending[:left]
}

// answer takes an answer, and with the second one the transfer from its slot. Preconditions: mu is
// held.
func (r *ring) answer(user uint64, res int32) {
	if user == userBell {
		r.armed = false
		return
	}
	at := user >> 1
	x := r.slots[at]
	if x == nil { // a read of a ring that was given up
		return
	}
	x.got[user&1] = res
	if x.wants--; x.wants == 0 {
		r.slots[at] = nil
		r.free = append(r.free, uint32(at))
		r.ended = append(r.ended, x)
	}
}

// end ends the transfers that have both answers.
func (r *ring) end() {
	n := 0
	for _, x := range r.ended {
		if x.io.Write {
			r.endWrite(x)
			continue
		}
		if x.whole() && x.m.verify(&x.inner, x.own.list[0]) == nil {
			x.copyOut()
			r.ended[n] = x
			n++
			continue
		}
		x.mistrust()
		x.toPool()
	}
	if n > 0 {
		r.s.ended(r.ended[:n])
	}
	r.ended = emptied(r.ended)
	for _, m := range r.wrote {
		m.written(m.past.ended)
		m.past.ended = emptied(m.past.ended)
	}
	clear(r.wrote)
	r.wrote = r.wrote[:0]
}

// endWrite takes a write: its checksums are written with those of others of its mdisk that have
// ended now.
func (r *ring) endWrite(x *xfer) {
	if x.got[0] < 0 || uint64(x.got[0]) != x.io.N {
		x.toPool()
		return
	}
	p := &x.m.past
	if len(p.ended) == 0 {
		r.wrote = append(r.wrote, x.m)
	}
	p.ended = append(p.ended, x)
}

// busy returns the names of mdisks that have something under way.
func (r *ring) busy() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.slots {
		if x != nil {
			names = append(names, "mdisk "+x.m.name)
		}
	}
	return names
}

// close waits for what is under way, and ends the goroutine.
func (r *ring) close() error {
	r.mu.Lock()
	r.closed = true
	r.wake()
	r.mu.Unlock()
	<-r.over
	if err := errors.Join(r.deep.Close(), r.now.Close(), unix.Close(r.bell)); err != nil {
		return fmt.Errorf("io_uring: %w", err)
	}
	return nil
}
