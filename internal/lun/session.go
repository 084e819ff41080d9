package lun

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// Times say how long a session waits for its target; a zero means the default.
type Times struct {
	// Login is for a connection and its login (5 s).
	Login time.Duration
	// Ping: a target that has sent nothing for so long (2 s) is asked whether it is there, and has the time Pong (3 s) to
	// answer. Then the connection is given up.
	Ping, Pong time.Duration
	// Command is how long a command waits for a session (60 s), and, if it is Timed, for its
	// answer: then the connection is given up for it, because nothing else makes a target let go of
	// its buffers. A command that was withdrawn has this time to end.
	Command time.Duration
	// Sync is the time for a command that empties a cache; zero: as long as the target answers
	// pings.
	Sync time.Duration
}

func (t *Times) fill() {
	for _, d := range []struct {
		at   *time.Duration
		kept time.Duration
	}{{&t.Login, 5 * time.Second}, {&t.Ping, 2 * time.Second}, {&t.Pong, 3 * time.Second}, {&t.Command, 60 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.kept
		}
	}
}

const (
	redialEvery = 200 * time.Millisecond
	// looks is how often in the time that a command may take it is looked who is overdue.
	looks = 20
)

var (
	errOverdue   = errors.New("lun: the target did not answer in time")
	errCancelled = errors.New("lun: the command was withdrawn")
)

// Session is an iSCSI session that is restored when its connection goes. A command that was under way then is sent again
// on the next connection: the target has ended the old session's tasks before it lets us
// in (RFC 7143 6.3.5), and what a cache sends below can be repeated, but for Command.Once.
type Session struct {
	a     iscsi.Address
	cfg   iscsi.ClientConfig
	times Times
	mu    sync.Mutex    // before the connection's own lock
	in    connection    // guarded by mu; nil while there is none
	wait  []*Command    // guarded by mu: for a session
	under []*Command    // guarded by mu: sent
	quit  bool          // guarded by mu
	over  chan struct{} // closed by Close
}

// connection is what a session needs of an iscsi.Initiator. None of it calls Done from inside
// Start.
type connection interface {
	Start(*iscsi.Command)
	Abort(*iscsi.Command)
	Drop(why error)
	Close()
}

// Dial opens a session. owner names what it is for, such as the path of a flash device: the
// next session of the same owner takes the place of this one, also after the process died,
// and finds that none of its commands is still under way.
func Dial(a iscsi.Address, initiator, owner string, times Times) (*Session, error) {
	h := fnv(initiator + " " + owner + " " + a.Portal + " " + a.Target + " " + strconv.FormatUint(a.LUN, 16))
	times.fill()
	s := &Session{a: a, times: times, over: make(chan struct{}), cfg: iscsi.ClientConfig{Initiator: initiator, Target: a.Target, CHAP: a.CHAP,
		ISID: [6]byte{0x80, byte(h), byte(h >> 8), byte(h >> 16), byte(h >> 24), byte(h >> 32)}}}
	in, err := s.login()
	if err != nil {
		return nil, err
	}
	s.in = in
	go s.watch()
	return s, nil
}

// login makes a connection. A target that says nothing costs the time Login, twice at most.
func (s *Session) login() (*iscsi.Initiator, error) {
	nc, err := net.DialTimeout("tcp", s.a.Portal, s.times.Login)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(s.times.Login)); err != nil {
		nc.Close()
		return nil, err
	}
	in, err := iscsi.NewInitiator(nc, s.cfg)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		in.Close()
		return nil, err
	}
	in.Watch(s.times.Ping, s.times.Pong)
	return in, nil
}

// Start implements Transport.
func (s *Session) Start(c *Command) {
	c.Status, c.Sense, c.InLen, c.Lost = 0, nil, 0, nil // of an earlier try
	limit := s.times.Command
	c.bounded = c.Timed
	if c.Sync && s.times.Sync > 0 {
		limit, c.bounded = s.times.Sync, true
	}
	c.due = time.Now().Add(limit)
	s.start(c)
}

// start sends a command, or keeps it for the next session.
func (s *Session) start(c *Command) {
	s.mu.Lock()
	in := s.in
	switch {
	case s.quit || c.withdrawn:
		c.Lost = net.ErrClosed
		if c.withdrawn {
			c.Lost = errCancelled
		}
		s.mu.Unlock()
		go c.Done(c)
		return
	case in == nil:
		s.wait = append(s.wait, c)
		s.mu.Unlock()
		return
	}
	x := &iscsi.Command{LUN: s.a.LUN, CDB: c.CDB, Out: c.Out, In: c.In}
	c.sent, c.place = x, len(s.under)
	s.under = append(s.under, c)
	x.Done = func(x *iscsi.Command) {
		if s.ended(in, c, x.Lost) {
			return
		}
		c.Status, c.Sense, c.InLen, c.Lost = x.Status, x.Sense, x.InLen, x.Lost
		c.Done(c)
	}
	in.Start(x) // with mu held: whoever withdraws it from now on must find it there
	s.mu.Unlock()
}

// ended takes a command off the list of those under way, and reports whether it is kept for the next connection, which it has begun
// to make.
func (s *Session) ended(in connection, c *Command, lost error) (kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.under) - 1
	moved := s.under[last]
	s.under[c.place], moved.place = moved, c.place
	s.under[last], s.under = nil, s.under[:last]
	c.sent = nil
	if lost == nil || errors.Is(lost, iscsi.ErrAborted) {
		return false
	}
	return s.again(in, c)
}

// again keeps a command for the next connection. The caller holds mu.
func (s *Session) again(in connection, c *Command) bool {
	if s.quit {
		return false
	}
	if s.in == in {
		s.in = nil
		go s.redial()
	}
	if c.Once || c.withdrawn || !time.Now().Before(c.due) {
		return false
	}
	if s.in != nil { // it is there already
		go s.start(c)
		return true
	}
	s.wait = append(s.wait, c)
	return true
}

// redial makes the next connection. A target that refuses us for good ends what waits; what waits too long ends by watch.
func (s *Session) redial() {
	for {
		in, err := s.login()
		s.mu.Lock()
		if s.quit {
			s.mu.Unlock()
			if in != nil {
				in.Close()
			}
			return
		}
		var refused *iscsi.LoginError
		var list []*Command
		if err == nil {
			s.in = in
		}
		if err == nil || errors.As(err, &refused) && refused.Status>>8 == 2 {
			list, s.wait = s.wait, nil
		}
		s.mu.Unlock()
		for _, c := range list {
			if err == nil {
				s.start(c)
				continue
			}
			c.Lost = err
			c.Done(c)
		}
		if err == nil {
			return
		}
		select {
		case <-s.over:
			return
		case <-time.After(redialEvery):
		}
	}
}

// watch ends what has waited too long: for a session at once, for an answer with its connection.
func (s *Session) watch() {
	t := time.NewTicker(s.times.Command / looks)
	defer t.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-t.C:
		}
		now := time.Now()
		var drop connection
		s.mu.Lock()
		late := s.takeWaiting(func(c *Command) bool { return now.After(c.due) })
		if slices.ContainsFunc(s.under, func(c *Command) bool { return c.bounded && now.After(c.due) }) {
			drop = s.in
		}
		s.mu.Unlock()
		for _, c := range late {
			c.Lost = errOverdue
			c.Done(c)
		}
		if drop != nil {
			drop.Drop(errOverdue)
		}
	}
}

// takeWaiting takes commands out of those that wait for a session. The caller holds mu.
func (s *Session) takeWaiting(which func(*Command) bool) (taken []*Command) {
	s.wait = slices.DeleteFunc(s.wait, func(c *Command) bool {
		if which(c) {
			taken = append(taken, c)
			return true
		}
		return false
	})
	return taken
}

// Cancel implements Transport.
func (s *Session) Cancel(c *Command) {
	s.mu.Lock()
	c.withdrawn = true
	if !c.bounded {
		c.bounded, c.due = true, time.Now().Add(s.times.Command)
	}
	in, x := s.in, c.sent
	waited := s.takeWaiting(func(w *Command) bool { return w == c })
	s.mu.Unlock()
	if len(waited) > 0 {
		c.Lost = errCancelled
		go c.Done(c)
	} else if in != nil && x != nil {
		in.Abort(x)
	}
}

// Close implements Transport. What waits for a session ends.
func (s *Session) Close() {
	s.mu.Lock()
	if s.quit {
		s.mu.Unlock()
		return
	}
	s.quit = true
	in := s.in
	s.in = nil
	list := s.wait
	s.wait = nil
	close(s.over)
	s.mu.Unlock()
	for _, c := range list {
		c.Lost = net.ErrClosed
		go c.Done(c)
	}
	if in != nil {
		in.Close()
	}
}
