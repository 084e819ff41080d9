package lun

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// Address is where an iSCSI logical unit is.
type Address struct {
	Portal, Target string
	LUN            uint64 // as on the wire
	CHAP           *iscsi.CHAP
}

// ParseAddress reads iscsi://[user[%secret]@]host[:port]/iqn/lun.
func ParseAddress(s string) (Address, error) {
	var a Address
	bad := fmt.Errorf("%q is no address of a LUN; write it as iscsi://[user[%%secret]@]host[:port]/iqn/lun", s)
	rest, ok := strings.CutPrefix(s, "iscsi://")
	if !ok {
		return a, bad
	}
	if cred, host, ok := strings.Cut(rest, "@"); ok {
		user, secret, _ := strings.Cut(cred, "%")
		if plain, err := url.PathUnescape(secret); err == nil {
			secret = plain
		}
		a.CHAP = &iscsi.CHAP{User: user, Secret: []byte(secret)}
		rest = host
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return a, bad
	}
	n, err := strconv.ParseUint(parts[2], 10, 14)
	if err != nil {
		return a, bad
	}
	a.Portal, a.Target = parts[0], parts[1]
	if _, _, err := net.SplitHostPort(a.Portal); err != nil {
		a.Portal = net.JoinHostPort(strings.Trim(a.Portal, "[]"), "3260")
	}
	// SAM-5 4.7: peripheral device addressing below 256, flat space above.
	if a.LUN = n << 48; n >= 256 {
		a.LUN |= 1 << 62
	}
	return a, nil
}

// Times of a session's recovery. A command that was under way when the connection went is sent again
// on the next one: the target has ended the old session's tasks before it lets us
// in (RFC 7143 6.3.5), and what a cache sends below can be repeated, but for Command.Once.
const (
	dialTimeout  = 5 * time.Second
	redialEvery  = 200 * time.Millisecond
	recoverLimit = 60 * time.Second
)

// Session is an iSCSI session that is restored when its connection goes.
type Session struct {
	a    Address
	cfg  iscsi.ClientConfig
	mu   sync.Mutex
	in   *iscsi.Initiator // guarded by mu; nil while there is none
	wait []*Command       // guarded by mu
	down time.Time        // guarded by mu
	quit bool             // guarded by mu
}

// Dial opens a session. owner names what it is for, such as the path of a flash device: the
// next session of the same owner takes the place of this one, also after the process died,
// and finds that none of its commands is still under way.
func Dial(a Address, initiator, owner string) (*Session, error) {
	h := fnv(owner + " " + a.Portal + " " + a.Target + " " + strconv.FormatUint(a.LUN, 16))
	s := &Session{a: a, cfg: iscsi.ClientConfig{Initiator: initiator, Target: a.Target, CHAP: a.CHAP,
		ISID: [6]byte{0x80, byte(h), byte(h >> 8), byte(h >> 16), byte(h >> 24), byte(h >> 32)}}}
	in, err := s.login()
	if err != nil {
		return nil, err
	}
	s.in = in
	return s, nil
}

func (s *Session) login() (*iscsi.Initiator, error) {
	nc, err := net.DialTimeout("tcp", s.a.Portal, dialTimeout)
	if err != nil {
		return nil, err
	}
	return iscsi.NewInitiator(nc, s.cfg)
}

// Start implements Transport.
func (s *Session) Start(c *Command) {
	s.mu.Lock()
	in := s.in
	if in == nil {
		if s.quit {
			s.mu.Unlock()
			c.Lost = net.ErrClosed
			go c.Done(c)
			return
		}
		s.wait = append(s.wait, c)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	x := &iscsi.Command{LUN: s.a.LUN, CDB: c.CDB, Out: c.Out, In: c.In}
	x.Done = func(x *iscsi.Command) {
		if x.Lost != nil && s.again(in, c) {
			return
		}
		c.Status, c.Sense, c.InLen, c.Lost = x.Status, x.Sense, x.InLen, x.Lost
		c.Done(c)
	}
	in.Start(x)
}

// again keeps a command for the next connection, which it has begun to make.
func (s *Session) again(in *iscsi.Initiator, c *Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quit {
		return false
	}
	if s.in == in {
		s.in, s.down = nil, time.Now()
		go s.redial()
	}
	if c.Once {
		return false
	}
	if s.in != nil { // it is there already
		go s.Start(c)
		return true
	}
	s.wait = append(s.wait, c)
	return true
}

func (s *Session) redial() {
	for {
		in, err := s.login()
		s.mu.Lock()
		var refused *iscsi.LoginError
		if err == nil && !s.quit {
			s.in = in
		}
		if err == nil || s.quit || errors.As(err, &refused) && refused.Status>>8 == 2 || time.Since(s.down) > recoverLimit {
			list := s.wait
			s.wait = nil
			if err != nil {
				s.down = time.Now()
			}
			s.mu.Unlock()
			for _, c := range list {
				if err == nil {
					s.Start(c)
					continue
				}
				c.Lost = err
				c.Done(c)
			}
			if err == nil {
				return
			}
		} else {
			s.mu.Unlock()
		}
		s.mu.Lock()
		quit := s.quit
		s.mu.Unlock()
		if quit {
			return
		}
		time.Sleep(redialEvery)
	}
}

// Close implements Transport.
func (s *Session) Close() {
	s.mu.Lock()
	s.quit = true
	in := s.in
	s.in = nil
	s.mu.Unlock()
	if in != nil {
		in.Close()
	}
}
