package iscsi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Portal serves targets to initiators. Its methods may be called from any
// goroutine that does not hold an executor of its targets.
type Portal struct {
	cfg     Config
	limits  Limits
	log     *slog.Logger
	targets map[string]*target // by folded name
	order   []*target

	errors errorCounters
	count  struct{ rx, tx atomic.Uint64 }
	budget budget

	holding atomic.Pointer[hold] // not nil: the portal is held; written with mu held
	stays   int32                // how many readers may stay, see stay
	staying atomic.Int32         // how many do

	mu        sync.Mutex              // never held while an executor is taken
	listeners []listener              // guarded by mu; by group
	conns     map[*conn]bool          // guarded by mu
	sessions  map[sessionKey]*session // guarded by mu
	lastTSIH  uint16                  // guarded by mu
	arrivals  uint64                  // guarded by mu
	closing   bool                    // guarded by mu
	detached  bool                    // guarded by mu: sessions have no nexus until Rehome
	wg        sync.WaitGroup
	stop      chan struct{} // closed by Shutdown
	hurry     chan struct{} // closed when a Shutdown waits no longer
	hurried   sync.Once     // of hurry
}

// New makes a portal. It fails when the configuration makes no sense.
func New(cfg Config) (*Portal, error) {
	p := &Portal{
		cfg:      cfg,
		limits:   cfg.Limits,
		log:      cfg.Log,
		targets:  make(map[string]*target),
		conns:    make(map[*conn]bool),
		sessions: make(map[sessionKey]*session),
		stop:     make(chan struct{}),
		hurry:    make(chan struct{}),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if err := p.limits.fill(); err != nil {
		return nil, err
	}
	p.budget.init(&p.limits)
	if p.stays = int32(cfg.stays); cfg.stays == 0 {
		p.stays = int32(runtime.GOMAXPROCS(0) / 2)
	}
	var err error
	if p.cfg.DiscoveryCHAP, err = cfg.DiscoveryCHAP.prepared(); err != nil {
		return nil, fmt.Errorf("iscsi: discovery: %w", err)
	}
	for _, tc := range cfg.Targets {
		t, err := newTarget(tc)
		if err != nil {
			return nil, err
		}
		if p.targets[FoldName(t.Name)] != nil {
			return nil, errors.New("iscsi: target " + t.Name + " is configured twice")
		}
		p.targets[FoldName(t.Name)] = t
		p.order = append(p.order, t)
	}
	return p, nil
}

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("iscsi: portal is closed")

// listener is one network portal, with the tag of its portal group, which is also
// its relative target port.
type listener struct {
	net.Listener
	group uint16
}

// Serve is ServePort for portal group 1.
func (p *Portal) Serve(l net.Listener) error { return p.ServePort(l, 1) }

// ServePort accepts connections from l until Shutdown, which closes l. Several
// listeners may be served at a time. Those of one group are one target port to SCSI;
// group is the portal group tag and the relative target port identifier, from 1.
func (p *Portal) ServePort(l net.Listener, group uint16) error { return p.AddPort(l, group)() }

// AddPort is ServePort in two steps: discovery shows the address as soon as it returns, and serve accepts connections. So
// whoever adds all addresses first shows no host only some of them.
func (p *Portal) AddPort(l net.Listener, group uint16) (serve func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		l.Close()
		return func() error { return ErrClosed }
	}
	if len(p.listeners) == 0 {
		p.wg.Go(p.ticker)
	}
	p.listeners = append(p.listeners, listener{l, group})
	slices.SortStableFunc(p.listeners, func(a, b listener) int { return int(a.group) - int(b.group) })
	return func() error { return p.accept(l, group) }
}

// accept starts connections until Shutdown.
func (p *Portal) accept(l net.Listener, group uint16) error {
	for {
		nc, err := l.Accept()
		if err != nil {
			p.mu.Lock()
			closing := p.closing
			p.mu.Unlock()
			if closing {
				return ErrClosed
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of descriptors, or a connection that ended before it was taken.
			p.log.Warn("iscsi: accept", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		p.start(nc, group)
	}
}

// start serves one connection in the background.
func (p *Portal) start(nc net.Conn, group uint16) {
	c := newConn(p, nc, group)
	p.mu.Lock()
	p.arrivals++
	c.arrival = p.arrivals
	if !p.closing && len(p.conns) >= p.limits.MaxConnections {
		p.evict()
	}
	if p.closing || len(p.conns) >= p.limits.MaxConnections {
		p.mu.Unlock()
		p.errors[ErrLimit].Add(1)
		p.log.Warn("iscsi: connection refused", "peer", nc.RemoteAddr().String(), "limit", p.limits.MaxConnections)
		nc.Close()
		return
	}
	p.conns[c] = true
	p.wg.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.wg.Done()
		c.serve()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
}

// evict cuts off the oldest connection that has not logged in: a flood of mute ones
// must not keep others out until they time out. Preconditions: p.mu is held.
func (p *Portal) evict() {
	var oldest *conn
	for c := range p.conns {
		if !c.inSession && (oldest == nil || c.arrival < oldest.arrival) {
			oldest = c
		}
	}
	if oldest != nil {
		delete(p.conns, oldest)
		p.errors[ErrLimit].Add(1)
		oldest.abort(violation(ErrLimit, 0, "the portal has %d connections, and this one has not logged in", p.limits.MaxConnections))
	}
}

// Shutdown stops accepting, lets commands in progress end, tells initiators that
// their sessions end, and closes all connections. It returns when that is done,
// or earlier with ctx's error; then connections are cut off.
func (p *Portal) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	first := !p.closing
	p.closing = true
	for _, l := range p.listeners {
		l.Close()
	}
	for c := range p.conns {
		c.stopping.Store(true)
		c.kick()
	}
	p.mu.Unlock()
	if first {
		close(p.stop)
	}
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.hurried.Do(func() { close(p.hurry) })
	for c := range p.conns {
		c.abort(ErrClosed)
	}
	p.mu.Unlock()
	return ctx.Err()
}

// session is an iSCSI session, which has one connection here.
type session struct {
	key       sessionKey
	target    *target // nil in a discovery session
	initiator string
	alias     string
	isid      [6]byte
	tsih      uint16
	conn      *conn
	port      string // name of the initiator's port
	since     time.Time
	remaps    atomic.Uint64 // changes of its LUNs, and aborts by others there, of whichever nexus

	// homeMu guards over and home, and nexus and exec against all but the reader, which uses them while the portal is not held. It is
	// taken before the executor.
	homeMu sync.Mutex
	nexus  Nexus // nil in a discovery session, and between Detach and Rehome
	exec   block.Executor
	home   *home         // at which nexus is or was
	over   bool          // its nexus is closed for good
	closed chan struct{} // closed when its nexus is gone
	ended  bool          // a discovery session that is told to end; guarded by the portal's mu
}

// sessionKey is what a login reinstates (RFC 7143 6.3.5).
type sessionKey struct {
	initiator, target string
	isid              [6]byte
	group             uint16   // the target's end of the nexus
	discovery         *session // tells discovery sessions apart
}

// openSession makes the session of a login that is complete. An older session of
// the same initiator port ends first.
func (p *Portal) openSession(l *login, c *conn, deadline time.Time) (status uint16, err error) {
	s := &session{target: l.target, initiator: l.initiator, alias: l.alias, isid: l.isid, conn: c, port: l.port(), since: time.Now(), closed: make(chan struct{})}
	s.key = sessionKey{initiator: FoldName(l.initiator), isid: l.isid, group: c.group}
	if l.target != nil {
		s.key.target = FoldName(l.target.Name)
	} else {
		s.key.discovery = s
	}
	if l.tsih != 0 {
		p.mu.Lock()
		old := p.sessions[s.key]
		p.mu.Unlock()
		if old == nil || old.tsih != l.tsih {
			return loginNoSession, violation(ErrLogin, 0, "session %d does not exist", l.tsih)
		}
		return loginTooManyConns, violation(ErrLogin, 0, "second connection for session %d", l.tsih)
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	waited := false
	for {
		p.mu.Lock()
		if g := p.holding.Load(); g != nil && s.target != nil {
			old := p.sessions[s.key]
			p.mu.Unlock()
			// What it has sent is not to be carried out when the hold ends: its host has given it up, unless it is the younger one.
			if old != nil && !waited && old.conn.arrival < c.arrival {
				old.conn.abort(errReinstated)
			}
			waited = true
			if err := c.awaitOpened(g, timer); err != nil {
				return loginUnavailable, err
			}
			continue
		}
		old := p.sessions[s.key]
		if old == nil {
			if status, err := p.admit(s); err != nil {
				p.mu.Unlock()
				return status, err
			}
			p.sessions[s.key] = s
			c.inSession = true
			s.tsih = p.newTSIH()
			p.mu.Unlock()
			break
		}
		p.mu.Unlock()
		if waited && old.conn.arrival > c.arrival { // its host has given this one up, and is there by that one
			return loginUnavailable, violation(ErrLogin, 0, "a younger login of the same initiator port came first")
		}
		old.conn.abort(errReinstated)
		select {
		case <-old.closed:
		case <-c.gone:
			return loginUnavailable, c.abortedBy()
		case <-timer.C:
			return loginUnavailable, violation(ErrLogin, 0, "the session to reinstate does not end")
		case <-p.hurry:
			return loginUnavailable, ErrClosed
		}
	}
	if s.target != nil {
		s.homeMu.Lock()
		if s.nexus == nil { // Rehome has not come first
			h := s.target.home.Load()
			h.exec.Lock()
			s.open(h)
			h.exec.Unlock()
		}
		s.homeMu.Unlock()
	}
	c.session = s
	return loginOK, nil
}

// admit says whether there may be another session. Of the discovery sessions the oldest makes room: one is over in a
// moment, unless it is there to keep others out. Preconditions: mu is held.
func (p *Portal) admit(s *session) (status uint16, err error) {
	if p.closing {
		return loginNoResources, ErrClosed
	}
	normal, own, discovery := 0, 0, 0
	var oldest *session
	for _, o := range p.sessions {
		if o.target != nil {
			normal++
			if o.key.initiator == s.key.initiator {
				own++
			}
			continue
		}
		if o.ended {
			continue
		}
		discovery++
		if oldest == nil || o.conn.arrival < oldest.conn.arrival {
			oldest = o
		}
	}
	switch {
	case s.target != nil && normal >= p.limits.MaxSessions:
		return loginNoResources, violation(ErrLimit, 0, "%d sessions are open", p.limits.MaxSessions)
	case s.target != nil && own >= p.limits.initiatorSessions():
		return loginNoResources, violation(ErrLimit, 0, "the initiator has %d sessions open", own)
	case s.target == nil && discovery >= p.limits.MaxDiscovery:
		p.errors[ErrLimit].Add(1)
		oldest.ended = true
		oldest.conn.abort(violation(ErrLimit, 0, "there are %d younger discovery sessions", p.limits.MaxDiscovery))
	}
	return loginOK, nil
}

var errReinstated = errors.New("iscsi: the initiator reinstated the session")

// newTSIH returns a number that no session has. Preconditions: mu is held and
// there are fewer than 65535 sessions.
func (p *Portal) newTSIH() uint16 {
	for {
		p.lastTSIH++
		used := p.lastTSIH == 0
		for _, s := range p.sessions {
			used = used || s.tsih == p.lastTSIH
		}
		if !used {
			return p.lastTSIH
		}
	}
}

// end closes the session's nexus; the channel is closed when its tasks are gone
// and the initiator may open the session anew.
func (s *session) end(p *Portal) <-chan struct{} {
	gone := func() {
		p.mu.Lock()
		delete(p.sessions, s.key)
		p.mu.Unlock()
		close(s.closed)
	}
	s.homeMu.Lock()
	defer s.homeMu.Unlock()
	if s.over = true; s.nexus == nil {
		gone()
		return s.closed
	}
	s.exec.Lock()
	s.nexus.Close(gone)
	s.exec.Unlock()
	return s.closed
}

// SessionInfo is a snapshot of a session.
type SessionInfo struct {
	Initiator, Alias string
	ISID             [6]byte
	TSIH             uint16
	Target           string // empty in a discovery session
	Address          string // of the initiator
	Since            time.Time
	Commands         uint64
	Busy             int // commands in progress
	ReceivedBytes    uint64
	SentBytes        uint64
}

// Sessions returns the open sessions, by initiator and start.
func (p *Portal) Sessions() []SessionInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]SessionInfo, 0, len(p.sessions))
	for _, s := range p.sessions {
		info := SessionInfo{Initiator: s.initiator, Alias: s.alias, ISID: s.isid, TSIH: s.tsih, Since: s.since,
			Address: s.conn.nc.RemoteAddr().String(), Commands: s.conn.count.commands.Load(), Busy: int(s.conn.inflight.Load()),
			ReceivedBytes: s.conn.count.rx.Load(), SentBytes: s.conn.count.tx.Load()}
		if s.target != nil {
			info.Target = s.target.Name
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b SessionInfo) int {
		if d := strings.Compare(a.Initiator, b.Initiator); d != 0 {
			return d
		}
		return a.Since.Compare(b.Since)
	})
	return list
}

// Emit implements metrics.Source.
func (p *Portal) Emit(e metrics.Emitter) {
	p.mu.Lock()
	conns, sessions := len(p.conns), len(p.sessions)
	p.mu.Unlock()
	e.Value(metrics.ISCSIConnections, float64(conns))
	e.Value(metrics.ISCSISessions, float64(sessions))
	e.Value(metrics.ISCSIReceived, float64(p.count.rx.Load()))
	e.Value(metrics.ISCSISent, float64(p.count.tx.Load()))
	for k := range numErrorKinds {
		e.Value(metrics.ISCSIErrors, float64(p.errors[k].Load()), k.String())
	}
}
