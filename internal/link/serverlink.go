package link

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/buffers"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Ends of a link that are nobody's fault.
var (
	errReplaced = errors.New("link: the node has linked again")
)

// serverLink is one link at the owner. What is not said to be guarded belongs to the reader, the goroutine that runs serve.
type serverLink struct {
	s         *Server
	conn, raw net.Conn // raw is below TLS: to close it waits for nothing
	node      Node
	process   incarnation
	standsBy  bool
	state     *nodeState
	br        *bufio.Reader
	buf       []byte
	nexuses   map[uint32]*ownedNexus
	ready     bool
	batch     []arrival
	tasks     []*scsi.Task
	window    int64 // bytes; set by enter
	sessions  atomic.Int32
	latest    atomic.Uint64  // stamp that the node has sent; written by the reader
	taken     atomic.Uint64  // bytes of commands that were read
	told      atomic.Uint64  // so much of that the node knows; of the writer
	ends      sync.WaitGroup // nexuses that are being closed

	mu       sync.Mutex // may be taken with an executor held
	err      error      // guarded by mu: why it ends
	dead     bool       // guarded by mu: nothing is sent any more
	draining bool       // guarded by mu: it ends when nothing is in progress
	queue    []sending  // guarded by mu
	commands int        // guarded by mu: in progress, their results not about to be sent
	bytes    int64      // guarded by mu: of them
	manages  int        // guarded by mu: likewise
	closing  int        // guarded by mu: nexuses whose end was not sent
	pause    uint32     // guarded by mu: number of the pause that the node was told of
	paused   bool       // guarded by mu: the node holds what its hosts send
	refuses  string     // guarded by mu: why it does not

	wake, quit, gone chan struct{}
}

// ownedNexus is the I_T nexus of a session at another node.
type ownedNexus struct {
	id    uint32
	nexus *scsi.Nexus // nil: it was denied
	exec  block.Executor
	// resetting: the word about a reset waits to be sent; guarded by the link's mu.
	resetting bool
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
	limit    time.Duration // of a pause
	nexus    *ownedNexus   // of a reset
}

func newServerLink(s *Server, conn, raw net.Conn, g greeting, buf []byte) *serverLink {
	return &serverLink{s: s, conn: conn, raw: raw, node: g.Node, process: g.process, standsBy: g.standsBy, buf: buf, nexuses: map[uint32]*ownedNexus{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), gone: make(chan struct{})}
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
	l.br = bufio.NewReaderSize(lastCall{l}, chunkLen)
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
	l.mu.Lock()
	for _, a := range l.batch {
		l.back(a.c)
		a.c.release()
	}
	l.mu.Unlock()
	l.batch = nil
	l.s.hide(l.state) // however long its commands take to end
	l.closeNexuses()
	l.outlive()
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
	for _, n := range l.nexuses {
		if n.nexus == nil {
			continue
		}
		l.ends.Add(1)
		n.exec.Lock()
		n.nexus.Close(l.ends.Done)
		n.exec.Unlock()
	}
	l.sessions.Store(0)
}

// outlive waits for the end of all that the link has brought, also of what was of a session that had ended before: who is
// welcomed behind it knows that nothing lands any more.
func (l *serverLink) outlive() {
	l.ends.Wait()
	l.until(func() bool { return l.commands == 0 && l.manages == 0 })
}

// until waits for something. over is called with mu held.
func (l *serverLink) until(over func() bool) {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		l.mu.Lock()
		ok := over()
		l.mu.Unlock()
		if ok {
			return
		}
		<-t.C
	}
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

// isDead reports whether the link has ended, though what it has brought may not have.
func (l *serverLink) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// settle waits until all that is in progress has ended and been sent.
func (l *serverLink) settle() {
	l.submit()
	l.until(func() bool { return l.dead || l.commands == 0 && l.manages == 0 && len(l.queue) == 0 })
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
			var stamp uint64
			if stamp, err = parseLong(k, body); err == nil {
				err = l.heard(stamp)
			}
		case kindOpen:
			err = l.open(body)
		case kindReady:
			if l.ready {
				err = broke("a link became ready twice")
			} else {
				l.ready = true
				l.s.show(l.state, l.node)
			}
		case kindClose:
			err = l.closeNexus(body)
		case kindCommand:
			l.credit(headLen + len(body))
			err = l.command(body)
		case kindManage:
			err = l.manage(body)
		case kindPaused:
			err = l.heardPaused(body)
		default:
			err = broke("a message of kind %d", k)
		}
		if err != nil {
			return err
		}
	}
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
	over := l.commands >= windowCommands || l.bytes > 0 && l.bytes+cost > l.window
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
	err = l.receive(c, int(h.out))
	switch {
	case err != nil:
		l.mu.Lock()
		l.back(c)
		l.mu.Unlock()
		c.release()
		return err
	case n.nexus == nil || be.Uint64(c.stamp[:]) == revoked || commandStale(t): // it has not begun, and nothing of it is left
		t.Status = scsi.StatusBusy
		l.enqueue(sending{kind: kindResult, command: c})
		return nil
	}
	l.batch = append(l.batch, arrival{n, c})
	return nil
}

// credit notes that bytes of commands were read, of which the node hears.
func (l *serverLink) credit(n int) {
	if l.taken.Add(uint64(n))-l.told.Load() >= creditStep {
		l.signal()
	}
}

// receive reads a command's data, and its stamp, which is the latest then.
func (l *serverLink) receive(c *command, left int) error {
	for left > 0 {
		n := min(left, chunkLen)
		b := buffers.Get(n)
		c.bufs = append(c.bufs, b)
		if _, err := io.ReadFull(l.br, b.B[:n]); err != nil {
			return err
		}
		c.task.DataOut = append(c.task.DataOut, b.B[:n])
		left -= n
		l.credit(n)
	}
	if _, err := io.ReadFull(l.br, c.stamp[:]); err != nil {
		return err
	}
	l.credit(stampLen)
	return l.heard(be.Uint64(c.stamp[:]))
}

// commandStale is Task.Stale of every command: one that is too old its node may have answered, and a host may have written the
// same blocks by another path since. It is asked when the command is here, and again when it begins.
// What the node has said since counts as well: one that goes on has answered nothing.
func commandStale(t *scsi.Task) bool {
	l := t.Ctx.(*command).link
	old, _ := l.s.clock.old(l.latest.Load(), l.s.times.fresh)
	return old
}

// heard notes the latest stamp: when the node still held what it has on its way.
func (l *serverLink) heard(stamp uint64) error {
	if _, ahead := l.s.clock.old(stamp, l.s.times.fresh); ahead {
		return broke("a stamp in the future")
	}
	l.latest.Store(max(l.latest.Load(), stamp))
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
		err = l.heard(m.stamp)
	}
	if err != nil {
		return err
	}
	old, _ := l.s.clock.old(m.stamp, l.s.times.fresh)
	n := l.nexuses[m.nexus]
	if n == nil {
		return broke("nexus %d is not open", m.nexus)
	}
	l.mu.Lock()
	over := l.manages >= maxManages
	if !over {
		l.manages++
	}
	l.mu.Unlock()
	if over {
		return broke("more than %d task management functions", maxManages)
	}
	if old || n.nexus == nil || m.fn > byte(scsi.TargetColdReset) {
		l.enqueue(sending{kind: kindManaged, number: m.call, response: byte(scsi.TMFRejected)})
		return nil
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
