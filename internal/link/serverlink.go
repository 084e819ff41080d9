package link

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Ends of a link that are nobody's fault.
var (
	errReplaced = errors.New("link: the node has linked again")
	errStale    = errors.New("link: a command was older than the owner carries out")
)

// serverLink is one link at the owner. What is not said to be guarded belongs to the reader, the goroutine that runs serve.
type serverLink struct {
	s         *Server
	conn, raw net.Conn // raw is below TLS: to close it waits for nothing
	node      Node
	process   incarnation
	state     *nodeState
	br        *bufio.Reader
	buf       []byte
	nexuses   map[uint32]*ownedNexus
	ready     bool
	batch     []arrival
	tasks     []*scsi.Task
	sessions  atomic.Int32

	mu       sync.Mutex // may be taken with an executor held
	err      error      // guarded by mu: why it ends
	dead     bool       // guarded by mu: nothing is sent any more
	draining bool       // guarded by mu: it ends when nothing is in progress
	queue    []sending  // guarded by mu
	commands int        // guarded by mu: in progress, their results not sent
	bytes    int64      // guarded by mu: of them
	manages  int        // guarded by mu: likewise

	wake, quit, gone chan struct{}
}

// ownedNexus is the I_T nexus of a session at another node.
type ownedNexus struct {
	id    uint32
	nexus *scsi.Nexus
	exec  block.Executor
}

// arrival is a command that is here and not submitted.
type arrival struct {
	n *ownedNexus
	c *command
}

// sending is what is to be sent: a result, or another message.
type sending struct {
	kind     kind
	command  *command
	number   uint32
	response byte
}

func newServerLink(s *Server, conn, raw net.Conn, g greeting, buf []byte) *serverLink {
	l := &serverLink{s: s, conn: conn, raw: raw, node: g.Node, process: g.process, buf: buf, nexuses: map[uint32]*ownedNexus{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), gone: make(chan struct{})}
	l.br = bufio.NewReaderSize(lastCall{l}, chunkLen)
	return l
}

// past is a deadline that ends every wait of a socket.
var past = time.Unix(1, 0)

// lastCall is the connection, whose reader submits what it has before it waits for more.
type lastCall struct{ l *serverLink }

func (r lastCall) Read(b []byte) (int, error) {
	l := r.l
	l.submit()
	l.raw.SetReadDeadline(time.Now().Add(l.s.times.silent))
	if l.isDraining() { // which may have set it before
		l.raw.SetReadDeadline(past)
	}
	return l.conn.Read(b)
}

// serve runs the link from its welcome to its end.
func (l *serverLink) serve() {
	log := l.s.cfg.Log.With("node", l.node.Name, "id", l.node.ID, "peer", l.raw.RemoteAddr().String())
	log.Info("link: a node forwards to this one")
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write()
	}()
	err := l.read()
	if l.isDraining() {
		l.settle()
		err = ErrClosed
	} else {
		l.kill(err)
	}
	close(l.quit)
	<-written
	l.kill(err)
	for _, a := range l.batch {
		l.giveUp(a.c)
	}
	l.batch = nil
	l.closeNexuses()
	if l.ready && !l.s.isClosing() {
		l.s.setAccess(l.node, scsi.AccessUnavailable)
	}
	l.s.leave(l)
	l.mu.Lock()
	err = l.err
	l.mu.Unlock()
	if isViolation(err) {
		log.Warn("link: ended", "error", err)
	} else {
		log.Info("link: ended", "reason", err)
	}
}

// closeNexuses ends the nexuses and waits until their tasks are gone.
func (l *serverLink) closeNexuses() {
	var all sync.WaitGroup
	for _, n := range l.nexuses {
		all.Add(1)
		n.exec.Lock()
		n.nexus.Close(all.Done)
		n.exec.Unlock()
	}
	all.Wait()
	l.sessions.Store(0)
}

// kill ends the link; the first error is kept. Anybody may call it.
func (l *serverLink) kill(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
		l.state.broken.Add(uint64(l.commands))
	}
	l.dead = true
	for _, it := range l.queue {
		l.drop(it)
	}
	l.queue = nil
	l.mu.Unlock()
	l.raw.Close()
}

// drain ends the link when what is in progress has ended.
func (l *serverLink) drain() {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	l.raw.SetReadDeadline(past)
}

func (l *serverLink) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// settle waits until all that is in progress has ended and been sent.
func (l *serverLink) settle() {
	l.submit()
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		l.mu.Lock()
		over := l.dead || l.commands == 0 && l.manages == 0 && len(l.queue) == 0
		l.mu.Unlock()
		if over {
			return
		}
		<-t.C
	}
}

// read carries out messages until the link ends.
func (l *serverLink) read() error {
	for {
		k, body, err := readMessage(l.br, l.buf)
		if err != nil {
			return err
		}
		if k != kindCommand {
			l.submit() // what came before goes first
		}
		switch k {
		case kindPing:
			_, err = parsePing(body)
		case kindOpen:
			err = l.open(body)
		case kindReady:
			if l.ready {
				err = broke("a link became ready twice")
			} else {
				l.ready = true
				l.s.setAccess(l.node, scsi.AccessNonOptimized)
			}
		case kindClose:
			err = l.closeNexus(body)
		case kindCommand:
			err = l.command(body)
		case kindManage:
			err = l.manage(body)
		default:
			err = broke("a message of kind %d", k)
		}
		if err != nil {
			return err
		}
	}
}

// open makes the nexus of a session at the other node.
func (l *serverLink) open(body []byte) error {
	o, err := parseOpening(body)
	first := FirstPort(l.node.ID)
	switch {
	case err != nil:
		return err
	case l.nexuses[o.nexus] != nil:
		return broke("nexus %d is open", o.nexus)
	case len(l.nexuses) >= maxNexuses:
		return broke("more than %d nexuses", maxNexuses)
	case int(o.target) >= len(l.s.cfg.Targets):
		return broke("target %d of %d", o.target, len(l.s.cfg.Targets))
	case o.port < first || int(o.port) >= int(first)+l.node.Ports:
		return broke("target port %d is not of node %d", o.port, l.node.ID)
	case !namesFit(o.initiator, o.name):
		return broke("an initiator port that is not named as RFC 7143 4.2.7 says")
	}
	t := l.s.cfg.Targets[o.target]
	n := &ownedNexus{id: o.nexus, exec: t.Exec()}
	n.exec.Lock()
	n.nexus = t.OpenNexus(o.initiator, o.name, o.port)
	n.nexus.OnReset(func() { l.enqueue(sending{kind: kindReset, number: n.id}) })
	n.exec.Unlock()
	l.nexuses[n.id] = n
	l.sessions.Add(1)
	return nil
}

// namesFit reports whether names are those that a portal gives to an initiator and its port: it has checked them, as has to be
// done for a peer.
func namesFit(initiator, port string) bool {
	isid, ok := strings.CutPrefix(port, initiator+",i,0x")
	return ok && iscsi.CheckName(initiator) == nil && initiator == iscsi.FoldName(initiator) && len(isid) == 12 && strings.Trim(isid, "0123456789abcdef") == ""
}

func (l *serverLink) closeNexus(body []byte) error {
	id, err := parseNumber(kindClose, body)
	if err != nil {
		return err
	}
	n := l.nexuses[id]
	if n == nil {
		return broke("nexus %d is not open", id)
	}
	delete(l.nexuses, id)
	l.sessions.Add(-1)
	n.exec.Lock()
	n.nexus.Close(func() { l.enqueue(sending{kind: kindClosed, number: id}) })
	n.exec.Unlock()
	return nil
}

// command takes a command with its data. It is submitted with those that came with it.
func (l *serverLink) command(body []byte) error {
	h, err := parseCommand(body)
	if err != nil {
		return err
	}
	n := l.nexuses[h.nexus]
	switch {
	case n == nil:
		return broke("nexus %d is not open", h.nexus)
	case !l.ready:
		return broke("a command before the link is ready")
	}
	cost := int64(h.out) + int64(h.in)
	l.mu.Lock()
	over := l.commands >= windowCommands || l.commands > 0 && l.bytes+cost > windowBytes
	if !over {
		l.commands++
		l.bytes += cost
	}
	l.mu.Unlock()
	if over {
		return broke("more commands than the window has room for")
	}
	c := getCommand(l)
	c.id, c.cost = h.task, cost
	t := &c.task
	t.LUN, t.Tag, t.Attr, t.MaxIn = h.lun, h.tag, scsi.Attr(h.attr), int(h.in)
	t.CDB = c.cdb[:copy(c.cdb[:], h.cdb)]
	if err := l.receive(c, int(h.out)); err != nil {
		l.giveUp(c)
		return err
	}
	l.batch = append(l.batch, arrival{n, c})
	return nil
}

// giveUp ends a command that was not submitted.
func (l *serverLink) giveUp(c *command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(sending{kind: kindResult, command: c})
}

// receive reads a command's data, and refuses one that is too old: its node may have answered it already.
func (l *serverLink) receive(c *command, left int) error {
	for left > 0 {
		n := min(left, chunkLen)
		b := getBuffer(n)
		c.bufs = append(c.bufs, b)
		if _, err := io.ReadFull(l.br, b.b[:n]); err != nil {
			return err
		}
		c.task.DataOut = append(c.task.DataOut, b.b[:n])
		left -= n
	}
	if _, err := io.ReadFull(l.br, c.stamp[:]); err != nil {
		return err
	}
	return l.fresh(be.Uint64(c.stamp[:]))
}

// fresh checks a stamp.
func (l *serverLink) fresh(stamp uint64) error {
	switch now := l.s.now(); {
	case stamp > now:
		return broke("a stamp that is yet to come")
	case now-stamp > uint64(l.s.times.fresh):
		return errStale
	}
	return nil
}

// submit hands the commands that are here to the SCSI layer.
func (l *serverLink) submit() {
	for len(l.batch) > 0 {
		n := l.batch[0].n
		l.tasks = l.tasks[:0]
		for _, a := range l.batch {
			if a.n != n {
				break
			}
			l.tasks = append(l.tasks, &a.c.task)
		}
		rest := copy(l.batch, l.batch[len(l.tasks):])
		clear(l.batch[rest:])
		l.batch = l.batch[:rest]
		n.exec.Lock()
		n.nexus.Submit(l.tasks)
		n.exec.Unlock()
		clear(l.tasks)
	}
}

func (l *serverLink) manage(body []byte) error {
	m, err := parseManagement(body)
	if err == nil {
		err = l.fresh(m.stamp)
	}
	if err != nil {
		return err
	}
	n := l.nexuses[m.nexus]
	if n == nil {
		return broke("nexus %d is not open", m.nexus)
	}
	l.mu.Lock()
	l.manages++
	over := l.manages > maxManages
	l.mu.Unlock()
	if over {
		return broke("more than %d task management functions", maxManages)
	}
	n.exec.Lock()
	n.nexus.Manage(scsi.TMF(m.fn), m.lun, m.tag, func(r scsi.TMFResponse) {
		l.enqueue(sending{kind: kindManaged, number: m.call, response: byte(r)})
	})
	n.exec.Unlock()
	return nil
}

// commandDone is Task.Done of every command.
func commandDone(t *scsi.Task) {
	c := t.Ctx.(*command)
	c.link.enqueue(sending{kind: kindResult, command: c})
}
