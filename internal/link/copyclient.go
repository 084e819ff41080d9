package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// CopyClientConfig describes the end of an array that copies from another one.
type CopyClientConfig struct {
	Name string // of the other array, for people
	Self string // of this node, for people at the other end
	// Nodes are the addresses of the other array's links, host:port: that of whoever has it at the time answers.
	Nodes  []string
	Secret []byte
	Log    *slog.Logger

	times times // zero: those of the package; for tests
}

// CopyClient is the end of an array that copies from another one: a scsi.CopyArray for all targets of this one. What is asked
// while there is no link is not found; what is under way when the link breaks ends at once, for nothing is written at the
// other end. Its methods may be called from any goroutine, and with whatever executor held.
type CopyClient struct {
	cfg     CopyClientConfig
	tls     *tls.Config
	times   times
	process incarnation
	epochs  map[string]uint64 // the highest of an array's owners; it belongs to run
	stop    chan struct{}
	over    chan struct{} // closed when run has ended

	connects, pieces, bytes, broken atomic.Uint64

	mu      sync.Mutex // may be taken with an executor held; nothing is called with it held
	conn    net.Conn   // guarded by mu: that Stop closes
	stopped bool       // guarded by mu
	link    *copyLink  // guarded by mu; nil: there is none
	owner   string     // guarded by mu: the node that has the other array, or had it last
	address string     // guarded by mu: of that
}

var _ scsi.CopyArray = (*CopyClient)(nil)

// NewCopyClient makes the end of an array that copies, and begins to look for the other one.
func NewCopyClient(cfg CopyClientConfig) (*CopyClient, error) {
	c := &CopyClient{cfg: cfg, times: cfg.times.filled(), process: newIncarnation(), epochs: map[string]uint64{}, stop: make(chan struct{}), over: make(chan struct{})}
	if c.cfg.Log == nil {
		c.cfg.Log = slog.New(slog.DiscardHandler)
	}
	c.cfg.Self = cfg.Self[:min(len(cfg.Self), maxName)]
	t, err := identity(cfg.Secret)
	if err != nil {
		return nil, err
	}
	c.tls = t
	c.tls.ServerName = copySecretName(cfg.Secret)
	go c.run()
	return c, nil
}

// Stop ends the link for good, and returns when it has ended. Copies that use it end.
func (c *CopyClient) Stop() {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.stop)
		if c.conn != nil {
			c.conn.Close()
		}
	}
	c.mu.Unlock()
	<-c.over
}

// CopyPeer describes another array that copies come from, or go to.
type CopyPeer struct {
	Name   string
	Linked bool
	// Node is the other end, or the last one that was, and Address where it is.
	Node, Address string
	Links         uint64 // that there were
	Pieces, Bytes uint64 // of data that was read
}

// Peer describes the other array.
func (c *CopyClient) Peer() CopyPeer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CopyPeer{Name: c.cfg.Name, Linked: c.link != nil, Node: c.owner, Address: c.address, Links: c.connects.Load(), Pieces: c.pieces.Load(), Bytes: c.bytes.Load()}
}

// keep notes the connection that Stop closes; false: it has been called.
func (c *CopyClient) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return !c.stopped
}

// run makes links until Stop.
func (c *CopyClient) run() {
	defer close(c.over)
	said, wait := "", c.times.retry
	for {
		var errs []error
		linked, began := c.connects.Load(), time.Now()
		for _, addr := range c.cfg.Nodes {
			select {
			case <-c.stop:
				return
			default:
			}
			if err := c.dial(addr); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", addr, err))
			}
		}
		if c.connects.Load() > linked && time.Since(began) > 2*retryMost {
			wait = c.times.retry
		} else {
			wait = min(2*wait, retryMost)
		}
		if err := errors.Join(errs...); err != nil && err.Error() != said {
			said = err.Error()
			c.cfg.Log.Warn("copies from another array: there is no link to it; it is tried again", "array", c.cfg.Name, "error", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-c.stop:
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// dial makes a link to an address and serves it to its end.
func (c *CopyClient) dial(addr string) error {
	d := net.Dialer{Timeout: handshakeTime}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-c.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	if !c.keep(raw) {
		return ErrClosed
	}
	defer c.keep(nil)
	raw.SetDeadline(time.Now().Add(handshakeTime))
	return c.serve(tls.Client(raw, c.tls), raw, addr)
}

// serve greets the owner of the other array, and carries messages until the link ends.
func (c *CopyClient) serve(conn, raw net.Conn, addr string) error {
	l := newCopyLink(c, conn, raw)
	w, err := l.greet()
	if err != nil {
		return err
	}
	if w.epoch < c.epochs[w.array] {
		return fmt.Errorf("node %s had the array in epoch %d, and since then another one has it in epoch %d", w.node, w.epoch, c.epochs[w.array])
	}
	c.epochs[w.array] = w.epoch
	raw.SetDeadline(time.Time{})
	l.br = bufio.NewReaderSize(timely{l}, chunkLen)
	c.connects.Add(1)
	c.mu.Lock()
	c.link, c.owner, c.address = l, w.node, addr
	c.mu.Unlock()
	log := c.cfg.Log.With("array", c.cfg.Name, "node", w.node, "address", addr)
	log.Info("copies from another array: linked")
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write()
		raw.Close()
	}()
	err = l.read()
	raw.Close()
	close(l.quit)
	<-written
	l.end()
	log.Warn("copies from another array: the link has ended, and what was copied over it", "reason", err)
	return err
}

// timely is the connection, of which each read has its time.
type timely struct{ l *copyLink }

func (r timely) Read(b []byte) (int, error) {
	r.l.raw.SetReadDeadline(time.Now().Add(r.l.c.times.silent))
	return r.l.conn.Read(b)
}

// greet says who this array is, and reads who the other one is.
func (l *copyLink) greet() (w copyWelcome, err error) {
	hello := copyHello{name: l.c.cfg.Self, process: l.c.process}
	if _, err := l.conn.Write(hello.append(nil)); err != nil {
		return w, err
	}
	k, body, err := readMessage(l.conn, l.buf)
	switch {
	case err != nil:
		return w, err
	case k == kindRefusal:
		b := cursor{b: body}
		return w, errors.New("refused: " + printable(b.bytes()))
	case k != kindCopyWelcome:
		return w, broke("a message of kind %d instead of a welcome", k)
	}
	if w, err = parseCopyWelcome(body); err != nil {
		return w, err
	}
	l.mostUnits, l.mostPieces, l.window = min(int(w.units), copyUnits), min(int(w.pieces), copyPieces), min(int64(w.window), copyWindow)
	return w, nil
}
