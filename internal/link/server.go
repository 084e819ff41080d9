package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
)

// ServerConfig describes the owner's end of links.
type ServerConfig struct {
	Self    Node
	Targets []*scsi.Target // of the I/O groups
	Secret  []byte
	// Known are nodes whose ports are shown from the start, as unavailable until they have linked.
	Known []Node
	// Array tells the array from all others, and Epoch its present owner from former ones, where there are epochs: nodes refuse
	// another array, and a lower epoch.
	Array string
	Epoch uint64
	// Copies are other arrays, whose copies may read from this one.
	Copies []CopySecret
	// Allowed lists the initiators that may log in; empty allows all.
	Allowed []string
	// Policy says in any words who may log in, and where: nodes of which it differs are warned of.
	Policy string
	Log    *slog.Logger

	times times  // zero: those of the package; for tests
	clock *clock // nil: that of the machine; for tests
}

// times are the times of a link, see the constants.
type times struct{ ping, silent, fresh, hold, away, retry, held time.Duration }

func (t times) filled() times {
	if t == (times{}) {
		return times{pingTime, silentTime, freshTime, holdTime, awayTime, retryTime, heldTime}
	}
	if t.held == 0 {
		t.held = heldTime
	}
	return t
}

// Server is the owner's end: it carries out what other nodes forward. Its methods may be called from any goroutine that holds
// no executor of its targets.
type Server struct {
	cfg     ServerConfig
	tls     *tls.Config
	times   times
	process incarnation
	clock   *clock
	policy  digest
	allowed map[string]bool // nil: all
	// lendings are the arrays that may copy from this one.
	lendings []*lending

	refused atomic.Uint64 // connections that did not become a link

	accessMu sync.Mutex // held over a change of access states; taken before executors and mu

	mu        sync.Mutex // never held while an executor is taken
	listener  net.Listener
	links     map[uint16]*serverLink // guarded by mu; by node
	waiting   map[uint16]*serverLink // guarded by mu; likewise: waits for its place
	nodes     []*nodeState           // guarded by mu; in the order in which they came
	strangers []stranger             // guarded by mu; the oldest first
	lends     map[*lendLink]bool     // guarded by mu
	granted   int64                  // guarded by mu: bytes of the windows of all links
	closing   bool                   // guarded by mu
	pausing   bool                   // guarded by mu: nobody links
	pauses    uint32                 // guarded by mu: how many there were
	stop      chan struct{}
	wg        sync.WaitGroup
}

// nodeState is what is kept of a node, linked or not.
type nodeState struct {
	Node
	connects, commands, read, written, broken atomic.Uint64

	// states are those in which an administrator has put the node's ports, by target and port; guarded by accessMu.
	states map[[2]int]scsi.AccessState
	shown  bool // the ports can be used; guarded by accessMu

	standsBy bool // guarded by Server.mu
}

// NewServer makes the owner's end.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.Self.Check(); err != nil {
		return nil, err
	}
	if len(cfg.Targets) < 1 || len(cfg.Targets) > maxTargets {
		return nil, fmt.Errorf("link: %d targets", len(cfg.Targets))
	}
	s := &Server{cfg: cfg, times: cfg.times.filled(), process: newIncarnation(), policy: digestOf(cfg.Secret, cfg.Policy), clock: cfg.clock, links: map[uint16]*serverLink{}, waiting: map[uint16]*serverLink{}, lends: map[*lendLink]bool{}, stop: make(chan struct{})}
	if s.cfg.Log == nil {
		s.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if s.clock == nil {
		s.clock = newClock()
	}
	if len(cfg.Array) > maxArray {
		return nil, fmt.Errorf("link: the name of the array has %d bytes", len(cfg.Array))
	}
	for _, name := range cfg.Allowed {
		if s.allowed == nil {
			s.allowed = map[string]bool{}
		}
		s.allowed[iscsi.FoldName(name)] = true
	}
	var err error
	if s.tls, err = identity(cfg.Secret); err != nil {
		return nil, err
	}
	if err = s.allowCopies(cfg.Copies); err != nil {
		return nil, err
	}
	for _, n := range cfg.Known {
		if n.ID != cfg.Self.ID && n.Check() == nil && len(s.nodes) < maxNodes {
			s.nodes = append(s.nodes, &nodeState{Node: n})
			s.addPorts(n)
		}
	}
	return s, nil
}

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("link: closed")

// Serve accepts links from l until Shutdown, which closes l.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	closing := s.closing
	s.mu.Unlock()
	if closing {
		l.Close()
		return ErrClosed
	}
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
		case s.isClosing():
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return err
		default: // out of descriptors, or a connection that ended before it was taken
			s.cfg.Log.Warn("link: accept", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if !s.begin() {
			conn.Close()
			continue
		}
		s.meet(conn)
		go func() {
			defer s.wg.Done()
			s.accept(conn)
		}()
	}
}

// begin counts a goroutine that Shutdown waits for; false: there are to be none any more.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.wg.Add(1)
	}
	return !s.closing
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// accept makes a link of a connection, and serves it to its end.
func (s *Server) accept(raw net.Conn) {
	defer raw.Close()
	defer s.know(raw)
	raw.SetDeadline(time.Now().Add(handshakeTime))
	conn := tls.Server(raw, s.tls)
	err := conn.Handshake()
	var l *serverLink
	if err == nil {
		if p := s.lendingTo(conn.ConnectionState().ServerName); p != nil {
			err = s.lend(p, conn, raw)
		} else {
			l, err = s.greet(conn, raw)
		}
	}
	if err != nil {
		s.refused.Add(1)
		s.cfg.Log.Warn("link: refused", "peer", raw.RemoteAddr().String(), "error", err)
		return
	}
	if l != nil {
		l.serve()
	}
}

// greet reads who the peer is, and makes its link where there is none in the way.
func (s *Server) greet(conn, raw net.Conn) (*serverLink, error) {
	buf := make([]byte, maxBody)
	k, body, err := readMessage(conn, buf)
	s.know(raw)
	if err != nil {
		return nil, err
	}
	if k != kindHello {
		return nil, broke("a message of kind %d instead of a hello", k)
	}
	g, err := parseGreeting(k, body)
	if err == nil && g.ID == s.cfg.Self.ID {
		err = fmt.Errorf("node %d is this one; give each node its own node.id", g.ID)
	}
	var l *serverLink
	if err == nil {
		l = newServerLink(s, conn, raw, g, buf)
		err = s.admit(l)
	}
	if err != nil {
		conn.Write(appendRefusal(nil, err.Error())) // who is not there any more need not know
		return nil, err
	}
	s.addPorts(g.Node)
	if g.policy != s.policy {
		s.cfg.Log.Warn(otherPolicy, "node", g.Name, "id", g.ID)
	}
	welcome := greeting{Node: s.cfg.Self, process: s.process, policy: s.policy, array: s.cfg.Array, epoch: s.cfg.Epoch, commands: windowCommands, bytes: uint32(l.window),
		targets: byte(len(s.cfg.Targets)), stamp: s.clock.now(), others: s.others(g.ID)}
	if _, err := conn.Write(welcome.append(nil, kindWelcome)); err != nil {
		l.kill(err) // it may be waited for already
		s.leave(l)
		s.hide(l.state) // who looked meanwhile took the node for linked
		return nil, err
	}
	raw.SetDeadline(time.Time{})
	return l, nil
}

// enter notes a link. Preconditions: mu is held.
func (s *Server) enter(l *serverLink) error {
	switch {
	case s.closing:
		return ErrClosed
	case s.pausing:
		return errors.New("the array is about to move to another node; link to that one")
	}
	i := slices.IndexFunc(s.nodes, func(n *nodeState) bool { return n.ID == l.node.ID })
	switch {
	case i >= 0:
		l.state = s.nodes[i]
		l.state.Node = l.node
	case len(s.nodes) >= maxNodes:
		return fmt.Errorf("%d nodes are known, which is the limit", maxNodes)
	default:
		l.state = &nodeState{Node: l.node}
		s.nodes = append(s.nodes, l.state)
	}
	l.state.connects.Add(1)
	l.state.standsBy = l.standsBy
	l.window = min(max((budgetBytes-s.granted)/2, leastWindow), windowBytes)
	s.granted += l.window
	s.links[l.node.ID] = l
	return nil
}

// leave takes a link away that has ended.
func (s *Server) leave(l *serverLink) {
	s.mu.Lock()
	delete(s.links, l.node.ID)
	s.granted -= l.window
	s.mu.Unlock()
	close(l.gone)
}

// others lists the nodes that one is told of.
func (s *Server) others(but uint16) (out []Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n.ID != but {
			out = append(out, n.Node)
		}
	}
	return out
}

// Shutdown ends all links: nothing is read any more, and what is in progress ends, or is cut off when ctx does. Behind that
// it waits for killTime at most until nothing of them uses the targets any more, and says whether that is so.
func (s *Server) Shutdown(ctx context.Context) (ended bool) {
	links := s.close()
	for _, l := range links {
		l.drain()
	}
	over := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(over)
	}()
	select {
	case <-over:
		return true
	case <-ctx.Done():
	}
	s.Cut()
	patience := time.NewTimer(killTime)
	defer patience.Stop()
	select {
	case <-over:
		return true
	case <-patience.C:
		return false
	}
}

// Cut ends all links, and waits for nothing.
func (s *Server) Cut() {
	for _, l := range s.close() {
		l.kill(ErrClosed)
	}
}

// close has nobody link any more, and returns the links there are.
func (s *Server) close() (links []*serverLink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		close(s.stop)
	}
	s.closing = true
	if s.listener != nil {
		s.listener.Close()
	}
	for _, x := range s.strangers {
		x.conn.Close()
	}
	for l := range s.lends { // nothing of theirs is waited for
		l.dead.Store(true)
		l.raw.Close()
	}
	for _, l := range s.links {
		links = append(links, l)
	}
	return links
}

// Peers describes the other nodes, in the order in which they came.
func (s *Server) Peers() (out []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		p := Peer{Node: n.Node, Commands: n.commands.Load(), StandsBy: n.standsBy}
		if l := s.linkOf(n); l != nil {
			p.Linked, p.Address, p.Sessions = true, l.raw.RemoteAddr().String(), int(l.sessions.Load())
		}
		out = append(out, p)
	}
	return out
}

// linkOf is the link that a node has, or nil. A link that has ended stays in its place until the commands that it has brought
// have ended, and the node is not linked meanwhile. Preconditions: mu is held.
func (s *Server) linkOf(n *nodeState) *serverLink {
	if l := s.links[n.ID]; l != nil && !l.isDead() {
		return l
	}
	return nil
}

// Emit implements metrics.Source.
func (s *Server) Emit(e metrics.Emitter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		up := 0.0
		if s.linkOf(n) != nil {
			up = 1
		}
		emitNode(e, n, label(s.nodes, n), up)
	}
	e.Value(metrics.LinkRefused, float64(s.refused.Load()))
}

// label is the name of a node, with its number where another one has the same name.
func label(all []*nodeState, n *nodeState) string {
	for _, o := range all {
		if o != n && o.Name == n.Name {
			return fmt.Sprintf("%s#%d", n.Name, n.ID)
		}
	}
	return n.Name
}

func emitNode(e metrics.Emitter, n *nodeState, name string, up float64) {
	e.Value(metrics.LinkUp, up, name)
	e.Value(metrics.LinkConnects, float64(n.connects.Load()), name)
	e.Value(metrics.LinkCommands, float64(n.commands.Load()), name)
	e.Value(metrics.LinkBytes, float64(n.read.Load()), name, "read")
	e.Value(metrics.LinkBytes, float64(n.written.Load()), name, "write")
	e.Value(metrics.LinkInterrupted, float64(n.broken.Load()), name)
}
