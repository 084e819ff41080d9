package iscsi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Sessions outlive what carries out their commands: a portal is held, its nexuses are closed, and made anew at other handlers.
//
//	Hold --> Detach --> Rehome
//	  +-------------------> Release
//
// While it is held, connections go on: logins wait, pings are answered, write data is collected, and commands and task
// management functions wait at their connection, in order. How many the window bounds.

// home is what carries out the commands of a target.
type home struct {
	handler Handler
	exec    block.Executor
}

func newHome(h Handler) *home { return &home{h, h.Exec()} }

// hold is a time in which a portal is held.
type hold struct{ opened chan struct{} }

// pending is what waits at a connection while its portal is held: commands, and then a task management function.
type pending struct {
	tasks    []*scsi.Task
	fn       scsi.TMF
	lun, tag uint64
	answer   func(scsi.TMFResponse)
}

// holdTick is how often Hold looks, spareTime how long it spares sessions that have nothing to be waited for.
const (
	holdTick  = 2 * time.Millisecond
	spareTime = time.Second
)

// ErrReleased is the error of Hold and Detach where somebody has released the portal meanwhile.
var ErrReleased = errors.New("iscsi: the portal was released meanwhile")

// Hold has commands wait that come from now on, and returns when those before them have ended and been answered. Where they
// have not when ctx ends, the portal goes on and the error says whose. With cut such sessions are ended instead, whose commands
// may still be with what carries them out, and the error is that of a session that does not even end. A session without commands,
// whose reader has not said so yet because it had no processor, has some time more. On a portal that is held already it waits for
// the same, and whoever gives up first releases the portal for all.
func (p *Portal) Hold(ctx context.Context, cut bool) error {
	p.mu.Lock()
	g := p.holding.Load()
	if g == nil {
		g = &hold{opened: make(chan struct{})}
		p.holding.Store(g)
	}
	p.mu.Unlock()
	t := time.NewTicker(holdTick)
	defer t.Stop()
	late := ctx.Done()
	var spared, end <-chan time.Time
	for {
		busy := p.kickBusy(g)
		if end != nil {
			busy = unended(busy)
		}
		switch {
		case p.holding.Load() != g:
			return ErrReleased
		case len(busy) == 0:
			return nil
		}
		select {
		case <-t.C:
			continue
		case <-late:
			late, spared, end = nil, time.After(spareTime), time.After(spareTime+2*farewellLimit)
		case <-spared:
			spared = nil
		case <-end:
			cut = false
		}
		if !cut {
			p.releaseFrom(g)
			return fmt.Errorf("commands of %s do not end, and of %d sessions in all", busy[0].initiator, len(busy))
		}
		for _, s := range busy {
			if spared == nil || s.conn.atWork() {
				s.conn.abort(errHeld)
			}
		}
	}
}

var errHeld = violation(ErrTimeout, 0, "the session does not read its answers while its array moves")

// kickBusy has the readers of sessions look whether their commands have ended, and returns those of which that is not known.
func (p *Portal) kickBusy(g *hold) (busy []*session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		if s.target != nil && s.conn.quiet.Load() != g {
			s.conn.kick()
			busy = append(busy, s)
		}
	}
	return busy
}

// unended leaves out the sessions that have ended, though commands of them may be with what carries them out. Preconditions: mu
// is not held, for an executor may be waited for with a session's homeMu held.
func unended(list []*session) []*session {
	return slices.DeleteFunc(list, func(s *session) bool {
		s.homeMu.Lock()
		defer s.homeMu.Unlock()
		return s.over
	})
}

// hush notes, for Hold, that no command of the connection is with the SCSI layer or being answered.
func (c *conn) hush() {
	g := c.portal.holding.Load()
	if g == nil || c.quiet.Load() == g {
		return
	}
	waiting := len(c.batch) + len(c.open)
	if c.cur != nil && c.open[c.cur.itt] != c.cur {
		waiting++
	}
	for i := range c.pending {
		waiting += len(c.pending[i].tasks)
	}
	if int(c.inflight.Load()) == waiting && c.manages.Load() == 0 {
		c.quiet.Store(g)
	}
}

// atWork reports whether the connection has commands or functions, wherever they are.
func (c *conn) atWork() bool { return c.inflight.Load()+c.manages.Load()+c.deferred.Load() > 0 }

// unhushed reports whether Hold waits for the connection.
func (c *conn) unhushed() bool {
	g := c.portal.holding.Load()
	return g != nil && c.quiet.Load() != g
}

// awaitOpened has a login wait for the end of a hold.
func (c *conn) awaitOpened(g *hold, limit *time.Timer) error {
	select {
	case <-g.opened:
		return nil
	case <-c.gone: // it makes room for others
		return c.abortedBy()
	case <-limit.C:
		return violation(ErrLogin, 0, "the executor of commands is about to change")
	case <-c.portal.stop:
		return ErrClosed
	}
}

// OnHold reports whether the portal is held.
func (p *Portal) OnHold() bool { return p.holding.Load() != nil }

// Release has held commands carried out, by what carried them out before. It does nothing where that is gone, or the portal is
// not held.
func (p *Portal) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.detached {
		p.release()
	}
}

// releaseFrom is Release for whoever gives up a hold: it leaves a later one alone.
func (p *Portal) releaseFrom(g *hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.detached && p.holding.Load() == g {
		p.release()
	}
}

// release ends the hold. Preconditions: mu is held.
func (p *Portal) release() {
	g := p.holding.Swap(nil)
	if g == nil {
		return
	}
	close(g.opened)
	for _, s := range p.sessions { // connections that log in have no commands, and a deadline of their own
		if s.target != nil {
			s.conn.kick()
		}
	}
}

// Detach closes the nexuses of all sessions, which stay, and returns when they are gone, or with ctx's error: then all sessions
// that have not ended are detached all the same, unless their commands had not ended by then, and whoever waits in Hold has not
// heard so either. ErrReleased says that somebody has released the portal before. Preconditions: the portal is held, though
// Hold need not have returned.
func (p *Portal) Detach(ctx context.Context) error {
	if err := p.awaitQuiet(ctx); err != nil {
		return err
	}
	var gone []chan struct{}
	for _, s := range p.normal() {
		s.homeMu.Lock()
		switch {
		case s.over: // it is being closed
			gone = append(gone, s.closed)
		case s.nexus != nil:
			ch := make(chan struct{})
			gone = append(gone, ch)
			s.exec.Lock()
			s.nexus.OnReset(func() {})
			s.nexus.Close(func() { close(ch) })
			s.exec.Unlock()
			s.nexus = nil
		}
		s.homeMu.Unlock()
	}
	for _, ch := range gone {
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// awaitQuiet has nobody release the portal any more, and waits until nothing is under way: who has called Hold may wait for that
// as well, and give up. On an error the portal may still be held, and is to be released.
func (p *Portal) awaitQuiet(ctx context.Context) error {
	p.mu.Lock()
	p.detached = true
	g := p.holding.Load()
	p.mu.Unlock()
	t := time.NewTicker(holdTick)
	defer t.Stop()
	err := error(nil)
	if g == nil {
		err = ErrReleased
	}
	for err == nil && len(unended(p.kickBusy(g))) > 0 {
		select {
		case <-t.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		p.mu.Lock()
		p.detached = false
		p.mu.Unlock()
	}
	return err
}

// Rehome has the targets' commands carried out by other handlers, in the order of Config.Targets, and the portal go on. opened
// is called for each session's new nexus, with its executor held; it may be nil. A session that Detach has not detached is cut
// off. Preconditions: Detach or Hold has returned.
func (p *Portal) Rehome(handlers []Handler, opened func(Nexus)) {
	p.mu.Lock()
	for i, t := range p.order {
		t.home.Store(newHome(handlers[i]))
	}
	p.mu.Unlock()
	for _, s := range p.normal() {
		s.homeMu.Lock()
		h := s.target.home.Load()
		switch {
		case s.over:
		case s.nexus == nil:
			h.exec.Lock()
			s.open(h)
			if opened != nil {
				opened(s.nexus)
			}
			h.exec.Unlock()
		case s.home != h:
			s.conn.abort(errHeld)
		}
		s.homeMu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detached = false
	p.release()
}

// normal lists the sessions with targets.
func (p *Portal) normal() (list []*session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		if s.target != nil {
			list = append(list, s)
		}
	}
	return list
}

// open makes the session's nexus. Preconditions: homeMu and the executor of the home are held.
func (s *session) open(h *home) {
	s.home, s.exec, s.nexus = h, h.exec, h.handler.OpenNexus(s.initiator, s.port, s.key.group)
	s.nexus.OnReset(s.conn.coldReset)
	s.nexus.CountRemaps(func() uint64 { return s.remaps.Add(1) }, s.remaps.Load())
}

// catchUp hands over what has waited while the portal was held.
func (c *conn) catchUp() {
	for i := range c.pending {
		q := &c.pending[i]
		c.hand(q.tasks)
		c.manageNow(q.fn, q.lun, q.tag, q.answer)
	}
	c.pending = nil
	c.deferred.Store(0)
}

// hand gives tasks to the SCSI layer.
func (c *conn) hand(tasks []*scsi.Task) {
	s := c.session
	s.exec.Lock()
	s.nexus.Submit(tasks)
	s.exec.Unlock()
}

func (c *conn) manageNow(fn scsi.TMF, lun, tag uint64, answer func(scsi.TMFResponse)) {
	c.manages.Add(1)
	s := c.session
	s.exec.Lock()
	s.nexus.Manage(fn, lun, tag, func(r scsi.TMFResponse) {
		answer(r)
		c.manages.Add(-1)
	})
	s.exec.Unlock()
}

// dropPending ends what has waited for the SCSI layer, with the session.
func (c *conn) dropPending() {
	for i := range c.pending {
		releaseAll(c.pending[i].tasks)
	}
	releaseAll(c.batch)
	c.pending, c.batch = nil, nil
}

func releaseAll(tasks []*scsi.Task) {
	for _, t := range tasks {
		t.Ctx.(*command).release()
	}
}
