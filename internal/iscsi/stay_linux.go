package iscsi

import (
	"io"
	"runtime"
	"syscall"
	"time"
)

// A reader waits for its peer at the gate of its socket, where it costs no thread, or it stays: it
// waits in the system call that reads. One that stays needs one call to read and one to answer,
// however the two sides meet: no poll before the one, no read that finds nothing after the other,
// no thread that is woken while another is at work. But it keeps one of the runtime's processors,
// which others have to take from it. So few may stay at a time, each only while nothing that it has
// is in progress elsewhere, and for no longer than stayTimeout without a word from its peer.

const (
	// A reader whose stay was short waits for as many reads before the next one, twice as many each
	// time.
	firstPause = 8
	maxPause   = 4096
	longStay   = 256 // reads
)

// stay is what a reader knows of its stays.
type stay struct {
	on     bool
	reads  int       // of this stay
	pause  int       // after it, in reads; 0: firstPause
	since  int       // reads since the last one
	rested time.Time // when others could last run
	mine   uint64    // bytes that came to this connection, and
	all    uint64    // to all of the portal, by then
}

// readSocket reads and works off what comes until the connection fails or somebody kicks. All of it
// happens inside one wait at the gate, so that waiting is all that the runtime is asked for.
func (c *conn) readSocket(s *socket) error {
	var end error
	err := s.in.wait(func(uintptr) bool {
		var more bool
		more, end = c.readReady(s)
		return !more
	})
	if end != nil {
		return end
	}
	return err
}

// readReady reads until nothing is there, and longer if the reader may stay. It returns false when
// the connection fails or somebody kicks.
func (c *conn) readReady(s *socket) (more bool, err error) {
	defer c.leaveStay(s) // at an end, where nobody needs the gate
	for {
		direct, rest := c.rx.space()
		c.rx.into = append(append(c.rx.into[:0], direct...), rest)
		n, asked, errno := s.receive(c.rx.into, c.stay.on)
		stays := false
		switch {
		case errno == syscall.EAGAIN && !c.stay.on:
			return true, nil
		case errno == syscall.EAGAIN: // the stay was in vain
		case errno != 0:
			return false, errno
		case n == 0:
			return false, io.EOF
		default:
			if err := c.received(direct, n); err != nil {
				return false, err
			}
			// Less than was asked for: there is nothing more, and what follows would be a wait.
			stays = n < asked && c.mayStay(s)
		}
		kicked := c.stopping.Load() || c.aborting.Load() || c.reset.Load() || c.look.Load() || c.unhushed()
		if !stays || kicked {
			if err := c.leaveStay(s); err != nil {
				return false, err
			}
		}
		if kicked {
			return false, errKicked
		}
	}
}

// mayStay decides whether the reader waits in the socket, or goes on to if it does.
func (c *conn) mayStay(s *socket) bool {
	y := &c.stay
	if !c.onlyPeerOwes() {
		return false
	}
	if y.on {
		if y.reads++; y.reads == longStay {
			y.pause = 0
		}
		if now := time.Now(); now.Sub(y.rested) > restEvery {
			if c.crowded() {
				y.pause = maxPause
				return false
			}
			runtime.Gosched()
			y.rested = now
		}
		return true
	}
	if y.since++; y.since < max(y.pause, firstPause) {
		return false
	}
	y.since = 0
	p := c.portal
	if p.staying.Add(1) > p.stays || s.in.set(s.fd, false) != nil {
		p.staying.Add(-1)
		return false
	}
	y.on, y.reads, y.rested = true, 0, time.Now()
	y.mine, y.all = c.count.rx.Load(), p.count.rx.Load()
	return true
}

// crowded tells whether other sessions that have no place to stay are at work: they would get less
// of the processors than this one.
func (c *conn) crowded() bool {
	y, p := &c.stay, c.portal
	mine, all := c.count.rx.Load(), p.count.rx.Load()
	others := all - y.all - (mine - y.mine)
	crowded := p.staying.Load() >= p.stays && others > (mine-y.mine)/8
	y.mine, y.all = mine, all
	return crowded
}

// leaveStay ends a stay, if there is one. Its error says that the gate is shut for good: whoever
// waits there waits for ever.
//
// The reader reads once more, without a wait, before it waits at a gate that was opened again; for
// what came while it was shut woke nobody. (The kernel wakes for that when it opens the gate, but the
// runtime forgets it if a wait begins only then.) So who calls this goes on to read, or ends the
// wait; and the next wait begins with a read.
func (c *conn) leaveStay(s *socket) error {
	y := &c.stay
	if !y.on {
		return nil
	}
	y.on = false
	c.portal.staying.Add(-1)
	y.pause = min(max(2*y.pause, firstPause), maxPause)
	return s.in.set(s.fd, true)
}

// onlyPeerOwes tells whether all that is in progress waits for the peer alone.
func (c *conn) onlyPeerOwes() bool {
	own := len(c.open)
	if c.cur != nil && c.act == actCommand {
		own++
	}
	return int(c.inflight.Load()) == own && len(c.waiting) == 0
}
