package link

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// An array moves from its owner to another node without an error at hosts: the owner has all nodes hold what their hosts send,
// carries out what they sent before, and ends the links. What is held goes to the next owner when that welcomes the node, or is
// answered as in a transition where that takes too long.

// Pause has all nodes hold what their hosts send, for so long at most, and returns when nothing of them is under way any more.
// Nobody links from then on. Where that is not so when ctx ends, or a node says that it cannot be, what was held goes on, and
// the error says of which node.
func (s *Server) Pause(ctx context.Context, limit time.Duration) error {
	s.mu.Lock()
	s.pausing = true
	s.pauses++
	number, links := s.pauses, s.sorted()
	s.mu.Unlock()
	for _, l := range links {
		l.mu.Lock()
		l.pause, l.paused, l.refuses = number, false, ""
		l.mu.Unlock()
		l.enqueue(sending{kind: kindPause, number: number, limit: limit})
	}
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		err := error(nil)
		for _, l := range links {
			if err = l.unquiet(); err != nil {
				break
			}
		}
		if err == nil {
			return nil
		}
		if r, ok := err.(refusesPause); ok {
			s.Resume()
			return r
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			s.Resume()
			return err
		}
	}
}

// Resume ends a pause: the array stays.
func (s *Server) Resume() {
	s.mu.Lock()
	s.pausing = false
	links := s.sorted()
	s.mu.Unlock()
	for _, l := range links {
		l.enqueue(sending{kind: kindGo})
	}
}

// sorted lists the links by node. Preconditions: mu is held.
func (s *Server) sorted() (list []*serverLink) {
	for _, l := range s.links {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *serverLink) int { return int(a.node.ID) - int(b.node.ID) })
	return list
}

// refusesPause is why a node does not hold what its hosts send.
type refusesPause struct {
	n   Node
	why string
}

func (r refusesPause) Error() string { return fmt.Sprintf("node %d %s: %s", r.n.ID, r.n.Name, r.why) }

// unquiet says that something of a link is under way; nil: nothing is, also of one that has ended.
func (l *serverLink) unquiet() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead: // nothing more comes by it, but what it has brought may be carried out
		select {
		case <-l.gone:
			return nil
		default:
			return fmt.Errorf("node %d %s: commands of its link, which has ended, do not end", l.node.ID, l.node.Name)
		}
	case l.refuses != "":
		return refusesPause{l.node, l.refuses}
	case !l.paused:
		return fmt.Errorf("node %d %s: commands of its hosts do not end", l.node.ID, l.node.Name)
	case l.commands > 0 || l.manages > 0 || len(l.queue) > 0:
		return fmt.Errorf("node %d %s: commands that it has forwarded do not end", l.node.ID, l.node.Name)
	}
	return nil
}

func (l *serverLink) heardPaused(body []byte) error {
	number, why, err := parsePaused(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && number == l.pause {
		l.paused, l.refuses = why == "", why
	}
	return err
}

// pause has what hosts send wait, and tells the owner when nothing of them is under way. Where hosts were to go on before that
// is so they go on then: what holds them may have begun behind that word. A later owner numbers its pauses anew, and does not
// hear of this one. No owner has hosts wait for longer than maxPause: it may have died since.
func (l *clientLink) pause(number uint32, limit time.Duration) error {
	c := l.c
	if c.pauses.Add(1) > maxPauses {
		c.pauses.Add(-1)
		return broke("more than %d pauses at a time", maxPauses)
	}
	limit = min(limit, maxPause)
	c.moving.Store(true)
	goes := c.goes.Load()
	answer := func(err error) {
		c.pauses.Add(-1)
		if err == nil && c.goes.Load() != goes && c.cfg.Go != nil {
			c.cfg.Go()
		}
		it := item{kind: kindPaused, slot: number}
		if err != nil {
			if it.why = err.Error(); it.why == "" {
				it.why = "it cannot hold what its hosts send"
			}
		}
		c.exec.Lock()
		defer c.exec.Unlock()
		select {
		case <-l.quit:
			return
		default:
		}
		if c.up {
			c.send(it)
		}
	}
	if c.cfg.Hold == nil {
		go answer(nil)
		return nil
	}
	c.cfg.Hold(limit, answer)
	return nil
}

// goOn has what hosts send go on.
func (c *Client) goOn() {
	c.goes.Add(1)
	if c.cfg.Go != nil {
		c.cfg.Go()
	}
}
