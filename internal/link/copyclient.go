package link

import (
	"bufio"
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

	times  times // zero: those of the package; for tests
	pieces int   // under way at most; 0: as many as the other array takes; for tests
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
	dialing dialing

	connects, pieces, bytes, broken atomic.Uint64

	mu      sync.Mutex // may be taken with an executor held; nothing is called with it held
	link    *copyLink  // guarded by mu; nil: there is none
	owner   string     // guarded by mu: the node that has the other array, or had it last
	address string     // guarded by mu: of that
}

var _ scsi.CopyArray = (*CopyClient)(nil)

// NewCopyClient makes the end of an array that copies, and begins to look for the other one.
func NewCopyClient(cfg CopyClientConfig) (*CopyClient, error) {
	c := &CopyClient{cfg: cfg, times: cfg.times.filled(), process: newIncarnation(), epochs: map[string]uint64{}, dialing: newDialing()}
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
func (c *CopyClient) Stop() { c.dialing.halt() }

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

// run makes links until Stop.
func (c *CopyClient) run() {
	defer close(c.dialing.over)
	said, wait := "", c.times.retry
	for {
		var errs []error
		linked, began := c.connects.Load(), time.Now()
		for _, addr := range c.cfg.Nodes {
			if c.dialing.halted() {
				return
			}
			if err := c.dialing.dial(addr, func(raw net.Conn) error { return c.serve(tls.Client(raw, c.tls), raw, addr) }); err != nil {
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
		if !c.dialing.pause(wait) {
			return
		}
	}
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
	l.br = bufio.NewReaderSize(timely{conn, raw, c.times.silent}, chunkLen)
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

// greet says who this array is, and reads who the other one is.
func (l *copyLink) greet() (w copyWelcome, err error) {
	hello := copyHello{name: l.c.cfg.Self, process: l.c.process}
	if _, err := l.conn.Write(hello.append(nil)); err != nil {
		return w, err
	}
	k, body, err := readMessage(l.conn, l.buf)
	if err = welcomed(kindCopyWelcome, k, body, err); err != nil {
		return w, err
	}
	if w, err = parseCopyWelcome(body); err != nil {
		return w, err
	}
	l.mostUnits, l.mostPieces, l.window = min(int(w.units), copyUnits), min(int(w.pieces), copyPieces), min(int64(w.window), copyWindow)
	if n := l.c.cfg.pieces; n > 0 {
		l.mostPieces = min(l.mostPieces, n)
	}
	return w, nil
}
