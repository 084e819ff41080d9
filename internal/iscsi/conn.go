package iscsi

import (
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/buffers"
	"github.com/arraysim/arraysim/internal/scsi"
)

const (
	// farewellLimit bounds how long the last answers of a connection may take to
	// leave, lingerLimit how long its peer may take to notice the end.
	farewellLimit = 2 * time.Second
	lingerLimit   = time.Second
)

var (
	errWouldBlock = errors.New("iscsi: socket is full")
	errKicked     = errors.New("iscsi: reader is wanted elsewhere")
)

// past is a deadline that ends every wait of a socket.
var past = time.Unix(1, 0)

// conn is one connection, and with it its session. What is not said to be
// guarded belongs to the reader, the goroutine that runs serve.
type conn struct {
	portal *Portal
	group  uint16 // portal group tag of the network portal that took it
	limits *Limits
	nc     net.Conn
	sock   atomic.Pointer[socket] // takes nc's place after login; nil when nc has no descriptor
	log    *slog.Logger

	p       params        // fixed after login
	maxXmit atomic.Uint32 // the initiator's MaxRecvDataSegmentLength; it may declare a new one
	cid     uint16
	session *session
	rx      receiver
	stay    stay
	out     output

	act      action
	remaps   uint64 // of the session, when the request under way came
	cur      *command
	body     *buffers.Buffer
	batch    []*scsi.Task
	pending  []pending           // before batch, while the portal is held
	open     map[uint32]*command // not yet submitted, by initiator task tag
	waiting  []*command          // those of open that wait for memory
	parked   []*command          // those of open that wait for older ones, oldest first
	arrived  uint64              // commands
	ordered  int                 // ORDERED commands that are not submitted
	held     map[uint32]*heldPDU // by CmdSN; nil is one that was aborted before it came
	fences   []fence
	lastTag  uint32
	text     textExchange
	farewell *control // answer to a logout

	account     account // of the portal's memory
	pdus        uint64  // that are complete
	pduMark     mark    // of those that come
	heldBytes   int
	offences    int
	abortedITTs []uint32 // a ring: tasks whose Data-Out may still arrive
	abortedNext int

	tags       tagTable
	expCmdSN   atomic.Uint32 // written by the reader
	maxCmdSN   atomic.Uint32
	immediates atomic.Int32         // immediate commands in progress
	inflight   atomic.Int32         // commands that are not released
	memory     atomic.Int64         // reserved
	starved    atomic.Bool          // waiting is not empty
	stopping   atomic.Bool          // the portal shuts down
	owes       atomic.Bool          // the peer has data to send
	look       atomic.Bool          // the reader shall look for data that does not come
	manages    atomic.Int32         // task management functions that are with the SCSI layer
	deferred   atomic.Int32         // and those in pending
	quiet      atomic.Pointer[hold] // in which nothing is with the SCSI layer; written by the reader
	reset      atomic.Bool          // the target had a cold reset
	inSession  bool                 // it has one that goes on; guarded by the portal's mu
	arrival    uint64               // its number among all connections of the portal

	writerDone chan struct{}
	abortMu    sync.Mutex
	aborted    error // guarded by abortMu
	aborting   atomic.Bool
	gone       chan struct{} // closed by the first abort

	count struct{ rx, tx, commands atomic.Uint64 }
	idle  idleState // the portal's ticker

	unread unreadMark // the portal's ticker
}

func newConn(p *Portal, nc net.Conn, group uint16) *conn {
	c := &conn{portal: p, group: group, limits: &p.limits, nc: nc, gone: make(chan struct{}), log: p.log.With("peer", nc.RemoteAddr().String())}
	c.out.cond = sync.NewCond(&c.out.mu)
	c.out.wake = make(chan struct{}, 1)
	c.out.quit = make(chan struct{})
	c.out.stat = 1
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetNoDelay(true)
	}
	return c
}

// wire is how to reach the peer.
type wire interface {
	io.ReadCloser
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

func (c *conn) wire() wire {
	if s := c.sock.Load(); s != nil {
		return s
	}
	return c.nc
}

// abort ends the connection as soon as its goroutines notice; the first error is
// kept. Any goroutine may call it.
func (c *conn) abort(err error) {
	c.abortMu.Lock()
	if c.aborted == nil {
		c.aborted = err
		close(c.gone)
	}
	c.aborting.Store(true)
	c.abortMu.Unlock()
	o := &c.out
	o.mu.Lock()
	if o.failed == nil {
		o.failed = err
	}
	o.cond.Broadcast()
	o.mu.Unlock()
	c.wire().SetDeadline(past)
}

func (c *conn) abortedBy() error {
	c.abortMu.Lock()
	defer c.abortMu.Unlock()
	return c.aborted
}

// kick makes the reader look at stopping and at waiting commands.
func (c *conn) kick() { c.wire().SetReadDeadline(past) }

// serve runs the connection from its first byte to its end.
func (c *conn) serve() {
	l, err := c.login()
	if err != nil {
		c.logEnd("login failed", err)
		c.linger()
		return
	}
	discovery := l.target == nil
	c.log = c.log.With("initiator", l.initiator)
	if !discovery {
		c.log = c.log.With("target", l.target.Name)
	}
	c.log.Info("iscsi: logged in", "discovery", discovery, "isid", hex.EncodeToString(l.isid[:]))

	c.startFull(l)
	err = c.readAll()
	c.finishSession(err)
	c.logEnd("session ended", err)
	c.linger()
}

func (c *conn) logEnd(msg string, err error) {
	if v, ok := errors.AsType[*ProtocolError](err); ok {
		c.portal.errors[v.Kind].Add(1)
		c.log.Warn("iscsi: "+msg, "kind", v.Kind.String(), "error", v.Detail)
		return
	}
	c.log.Info("iscsi: "+msg, "reason", err)
}

// startFull makes what the full feature phase needs.
func (c *conn) startFull(l *login) {
	c.p = l.neg.p
	c.cid = l.cid
	c.rx.use(newReceiveMemory())
	c.rx.headerDigest, c.rx.dataDigest = c.p.headerDigest, c.p.dataDigest
	c.rx.maxSegment = c.limits.MaxRecvSegment
	c.maxXmit.Store(segmentLimit(c.p.maxXmit))
	c.open = make(map[uint32]*command)
	c.tags.init(c.limits.Window + maxImmediates)
	c.text.tag = noTag
	c.writerDone = make(chan struct{})
	c.nc.SetDeadline(time.Time{})
	s, err := newSocket(c.nc, c.portal.cfg.sys)
	if err != nil {
		c.log.Warn("the connection costs more system calls than others", "error", err)
	}
	c.sock.Store(s)
	switch { // again: the lines above undid it
	case c.aborting.Load():
		c.wire().SetDeadline(past)
	case c.stopping.Load() || c.reset.Load():
		c.kick() // what is to be said before the end may still be sent
	}
	go c.writer()
}

// segmentLimit is the longest data segment that we send to an initiator that
// declared v: all but the last of a sequence are whole words.
func segmentLimit(v uint32) uint32 { return v &^ 3 }

// readAll reads until the connection ends, and says why.
func (c *conn) readAll() error {
	for {
		err := c.readSome()
		if err != errKicked && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		// Somebody kicked; after the deadline is gone no kick is lost.
		c.wire().SetReadDeadline(time.Time{})
		if err := c.abortedBy(); err != nil {
			return err
		}
		if c.reset.Load() {
			return errReset
		}
		if c.stopping.Load() {
			return errShutdown
		}
		c.out.hold()
		var late error
		if c.look.Swap(false) {
			late = c.watch(time.Now())
		}
		c.serveWaiting()
		c.submit()
		c.flush()
		c.hush()
		if late != nil {
			return late
		}
	}
}

func (c *conn) countRead(n int) {
	c.count.rx.Add(uint64(n))
	c.portal.count.rx.Add(uint64(n))
}

// received accounts for n bytes and works them off.
func (c *conn) received(direct [][]byte, n int) error {
	c.countRead(n)
	c.rx.filled(direct, n)
	return c.process()
}

// readSome reads and works off what comes until the connection fails or somebody kicks.
func (c *conn) readSome() error {
	if s := c.sock.Load(); s != nil {
		return c.readSocket(s)
	}
	return c.readPlain()
}

// write writes what it can of vec. Without wait it returns errWouldBlock when the socket takes nothing.
func (c *conn) write(vec [][]byte, wait bool) (int, error) {
	if c.aborting.Load() {
		return 0, net.ErrClosed
	}
	if s := c.sock.Load(); s != nil {
		return s.write(vec, wait)
	}
	return c.writePlain(vec, wait)
}

// readPlain is readSome for connections without a descriptor.
func (c *conn) readPlain() error {
	for {
		direct, rest := c.rx.space()
		to := rest
		if len(direct) > 0 {
			to = direct[0]
		}
		n, err := c.nc.Read(to)
		if n > 0 {
			if err := c.received(direct, n); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// plainWrite is how much writePlain writes at a time: what a slow peer takes is noticed in time.
const plainWrite = 64 << 10

// writePlain is write for connections without a descriptor.
func (c *conn) writePlain(vec [][]byte, wait bool) (int, error) {
	if !wait {
		return 0, errWouldBlock
	}
	bufs, left := net.Buffers(nil), plainWrite
	for _, b := range vec {
		b = b[:min(len(b), left)]
		bufs = append(bufs, b)
		if left -= len(b); left == 0 {
			break
		}
	}
	n, err := bufs.WriteTo(c.nc)
	return int(n), err
}

// finishSession ends the session after readAll.
func (c *conn) finishSession(err error) {
	v, violated := errors.AsType[*ProtocolError](err)
	if violated && v.reason != 0 {
		c.reject(v.reason, bhs(c.rx.hdr[:]))
	}
	if c.cur != nil { // its data never came
		delete(c.open, c.cur.itt)
		c.cur.release()
	}
	if c.body != nil {
		c.body.Put()
	}
	for itt, cmd := range c.open {
		delete(c.open, itt)
		cmd.release()
	}
	c.starved.Store(false)
	c.dropPending()

	switch {
	case errors.Is(err, errReset):
		c.notice()
	case errors.Is(err, errShutdown):
		c.notice()
		c.settle()
	}
	closed := c.session.end(c.portal)
	if c.farewell != nil {
		// The answer to a logout says that the session's tasks are no more.
		select {
		case <-closed:
		case <-c.portal.hurry:
		}
		c.enqueue(outItem{ctl: c.farewell})
	}
	c.drain(farewellLimit)
	c.abort(err)
	close(c.out.quit)
	<-c.writerDone
	c.dropOutput()
}

// Asynchronous message events (RFC 7143 11.9.1).
const asyncDropAll = 3

// notice tells the initiator that the session is about to end.
func (c *conn) notice() {
	ct := getControl(opAsync)
	h := bhs(ct.hdr[:])
	h.put32(offITT, noTag)
	h[offAsyncEvent] = asyncDropAll
	h.put16(offAsyncParam+2, uint16(c.p.time2Wait))
	c.enqueue(outItem{ctl: ct})
	c.out.signal()
}

// settle waits for what is in progress while the portal shuts down.
func (c *conn) settle() {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for c.inflight.Load() > 0 {
		select {
		case <-t.C:
		case <-c.portal.hurry:
			return
		}
	}
}

// linger closes the socket. What the peer still sends is read for a moment: a
// reset would take our last PDUs away from it.
func (c *conn) linger() {
	w := c.wire()
	defer w.Close()
	// Whoever is on the way out gives up its place to one that comes.
	c.portal.mu.Lock()
	c.inSession = false
	c.portal.mu.Unlock()
	half, ok := w.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	w.SetReadDeadline(time.Now().Add(lingerLimit))
	io.CopyN(io.Discard, w, 4<<20)
}
