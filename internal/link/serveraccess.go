package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// addPorts shows the target ports of a node, which cannot be used yet.
func (s *Server) addPorts(n Node) {
	for _, t := range s.cfg.Targets {
		t.Exec().Lock()
		t.AddPorts(n.AccessPorts(scsi.AccessUnavailable))
		t.Exec().Unlock()
	}
}

// show has hosts told that a node's ports can be used.
func (s *Server) show(n *nodeState, node Node) {
	s.accessMu.Lock()
	defer s.accessMu.Unlock()
	n.shown = true
	s.setAccess(n, node, true)
}

// hide does the opposite once the node has been away for long enough: one that links again at once disturbs nobody.
func (s *Server) hide(n *nodeState) {
	if !s.begin() {
		return
	}
	go func() {
		defer s.wg.Done()
		t := time.NewTimer(s.times.away)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.stop:
			return
		}
		s.accessMu.Lock()
		defer s.accessMu.Unlock()
		s.mu.Lock()
		l, node := s.linkOf(n), n.Node
		s.mu.Unlock()
		if n.shown && l == nil {
			n.shown = false
			s.setAccess(n, node, false)
		}
	}()
}

// setAccess puts the target ports of a node into a state. Hosts hear of it by a unit attention condition. What an administrator
// has set stays beside it: an unavailable port gets that back. Preconditions: accessMu is held.
func (s *Server) setAccess(n *nodeState, node Node, linked bool) {
	for i, t := range s.cfg.Targets {
		t.Exec().Lock()
		for _, g := range t.Groups() {
			port := int(g.ID) - int(FirstPort(node.ID))
			gone := port >= node.Ports // the node had it at an earlier link
			if port < 0 || port >= portsOfNode || gone && g.State == scsi.AccessUnavailable {
				continue
			}
			key, state := [2]int{i, port}, scsi.AccessUnavailable
			if linked && !gone {
				if g.State != scsi.AccessUnavailable {
					continue
				}
				var set bool
				if state, set = n.states[key]; !set {
					state = scsi.AccessNonOptimized
				}
			} else {
				if n.states == nil {
					n.states = map[[2]int]scsi.AccessState{}
				}
				n.states[key] = g.State
			}
			_ = t.SetAccess(g.ID, state) // the group is there, and the state one that a group can have
		}
		t.Exec().Unlock()
	}
}

// stranger is a connection that has not proved that it has the secret, or not said who it is.
type stranger struct {
	conn net.Conn
	host string
}

// meet notes a stranger. Where there are too many, the oldest one of the host that has the most of them goes: who fills the
// house keeps nobody out for long who has the secret.
func (s *Server) meet(conn net.Conn) {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing { // who closes all strangers has been here
		conn.Close()
		return
	}
	s.strangers = append(s.strangers, stranger{conn, host})
	if len(s.strangers) <= maxStrangers {
		return
	}
	of := map[string]int{}
	for _, x := range s.strangers {
		of[x.host]++
	}
	worst := slices.IndexFunc(s.strangers, func(x stranger) bool {
		for _, n := range of {
			if of[x.host] < n {
				return false
			}
		}
		return true
	})
	s.strangers[worst].conn.Close()
	s.strangers = slices.Delete(s.strangers, worst, worst+1)
}

// know ends that a connection is a stranger's.
func (s *Server) know(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strangers = slices.DeleteFunc(s.strangers, func(x stranger) bool { return x.conn == conn })
}

// admit gives a link its place, once the former one of the same process has ended with all that
// came over it; the node is told so meanwhile, and holds what it has on its way. Two processes that
// call themselves the same node would end each other's for ever: the second is refused while the
// first is there.
func (s *Server) admit(l *serverLink) error {
	patience := time.NewTimer(admitTime)
	defer patience.Stop()
	again := time.NewTicker(s.times.ping)
	defer again.Stop()
	defer s.waitNoMore(l)
	for waits := false; ; waits = true {
		old, err := s.place(l, waits)
		if old == nil {
			return err
		}
		old.kill(errReplaced)
		l.raw.SetDeadline(time.Now().Add(handshakeTime))
		if _, err := l.conn.Write(appendEmpty(nil, kindBusy)); err != nil {
			return err
		}
		select {
		case <-old.gone:
		case <-again.C:
		case <-l.gone:
			return errReplaced
		case <-patience.C:
			return errors.New("the former link does not end: some of its commands are in progress")
		case <-s.stop:
			return ErrClosed
		}
	}
}

// place notes a link, or returns the former one that is in its way. Of a node's connections the
// last one alone waits for the end of that: a node makes one at a time, and who makes many would
// have the owner hold them all.
func (s *Server) place(l *serverLink, waits bool) (former *serverLink, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former, last := s.links[l.node.ID], s.waiting[l.node.ID]
	switch {
	case former != nil && former.process != l.process:
		return nil, fmt.Errorf("node %d is linked by another process; give each node its own node.id", l.node.ID)
	case waits && last != l:
		return nil, errReplaced
	case !waits && last != nil:
		last.raw.Close()
		close(last.gone)
	}
	if former == nil {
		delete(s.waiting, l.node.ID)
		return nil, s.enter(l)
	}
	s.waiting[l.node.ID] = l
	return former, nil
}

// waitNoMore ends that a link waits for its place.
func (s *Server) waitNoMore(l *serverLink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[l.node.ID] == l {
		delete(s.waiting, l.node.ID)
	}
}
