package admin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

// pond is a simulated cluster in real time, for daemons of this process.
type pond struct {
	t    *testing.T
	exec *block.Live // guards c
	c    *simulated.Cluster

	mu      sync.Mutex
	clients []*pondClient // guarded by mu; in the order in which they came
}

func newPond(t *testing.T, seed uint64) *pond {
	p := &pond{t: t, exec: block.NewLive(), c: simulated.New(simulated.Options{Latency: 100e3}, rand.New(rand.NewPCG(seed, 7)))}
	t.Cleanup(p.exec.Stop)
	return p
}

// pondClient is a connection. What the cluster says it hears from a goroutine of its own, with nothing held.
type pondClient struct {
	p  *pond
	cl *simulated.Client // guarded by p.exec

	mu     sync.Mutex // taken with p.exec held
	cond   *sync.Cond
	queue  []func() // guarded by mu
	events int      // guarded by mu: calls that have ended
	closed bool     // guarded by mu
	over   chan struct{}

	mute atomic.Bool   // the cluster says nothing
	cut  chan struct{} // closed by Interrupt
	once sync.Once
}

func (p *pond) connect(*RadosConfig) (rados.Cluster, error) {
	p.exec.Lock()
	c := &pondClient{p: p, cl: p.c.Connect(p.exec, "array"), over: make(chan struct{}), cut: make(chan struct{})}
	p.exec.Unlock()
	c.cond = sync.NewCond(&c.mu)
	p.mu.Lock()
	p.clients = append(p.clients, c)
	p.mu.Unlock()
	go c.run()
	return c, nil
}

func (c *pondClient) run() {
	defer close(c.over)
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.cond.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		fn := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		fn()
		c.mu.Lock()
		c.events++
		c.cond.Broadcast()
		c.mu.Unlock()
	}
}

func (c *pondClient) later(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, fn)
	c.cond.Broadcast()
}

func (c *pondClient) do(fn func()) {
	c.p.exec.Lock()
	defer c.p.exec.Unlock()
	fn()
}

// ask is do for who waits for the answer.
func (c *pondClient) ask(fn func() error) (err error) {
	if c.mute.Load() {
		<-c.cut
		return rados.ErrCanceled
	}
	c.do(func() { err = fn() })
	return err
}

func (c *pondClient) Submit(op *rados.Op) {
	s := &rados.Op{Object: op.Object, Steps: op.Steps}
	s.Done = func(s *rados.Op) {
		if c.mute.Load() {
			return
		}
		c.later(func() {
			op.Err, op.Steps = s.Err, s.Steps
			op.Done(op)
		})
	}
	if !c.mute.Load() {
		c.do(func() { c.cl.Submit(s) })
	}
}

func (c *pondClient) After(ns int64, fn func()) {
	time.AfterFunc(time.Duration(ns), func() { c.later(fn) })
}

func (c *pondClient) Wait(until func() bool) {
	for {
		c.mu.Lock()
		n := c.events
		c.mu.Unlock()
		if until() {
			return
		}
		c.mu.Lock()
		for c.events == n && !c.closed {
			c.cond.Wait()
		}
		c.mu.Unlock()
	}
}

func (c *pondClient) Lock(object, name, cookie string) error {
	return c.ask(func() error { return c.cl.Lock(object, name, cookie) })
}

func (c *pondClient) Unlock(object, name, cookie string) error {
	return c.ask(func() error { return c.cl.Unlock(object, name, cookie) })
}

func (c *pondClient) Lockers(object, name string) (list []rados.Locker, err error) {
	err = c.ask(func() (err error) {
		list, err = c.cl.Lockers(object, name)
		return err
	})
	return list, err
}

func (c *pondClient) BreakLock(object, name string, l rados.Locker) error {
	return c.ask(func() error { return c.cl.BreakLock(object, name, l) })
}

func (c *pondClient) Blocklist(addresses []string, seconds int) error {
	return c.ask(func() error { return c.cl.Blocklist(addresses, seconds) })
}

func (c *pondClient) LatestMap() error {
	return c.ask(func() error { return c.cl.LatestMap() })
}

func (c *pondClient) Watch(object string, lost func(error)) error {
	return c.ask(func() error {
		return c.cl.Watch(object, func(e error) { c.later(func() { lost(e) }) })
	})
}

func (c *pondClient) Interrupt() {
	c.once.Do(func() { close(c.cut) })
	c.do(func() { c.cl.Interrupt() })
	c.later(func() {})
}

func (c *pondClient) Close() (err error) {
	c.do(func() { err = c.cl.Close() })
	c.mu.Lock()
	c.closed = true
	c.cond.Broadcast()
	c.mu.Unlock()
	<-c.over
	return err
}

// silence has the cluster answer a client no more: to others its process has died, or hangs.
func (c *pondClient) silence() { c.mute.Store(true) }

// pondNode is a daemon that stands by for the array of a pond, or has it.
type pondNode struct {
	*Client
	id     int
	t      *testing.T
	out    *logBuffer
	cancel context.CancelFunc
	hurry  chan struct{}
	end    chan error
	portal string
}

// freeAddress returns an address, host:port, on which nobody listens.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", testkit.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const pondSecret = "0123456789abcdef0123456789abcdef"

// node starts a node; one that stands by when standby is true, and else the first owner.
func (p *pond) node(id int, standby bool, with ...func(*daemon)) *pondNode {
	p.t.Helper()
	dir := hurriedDir(p.t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(pondSecret), 0o600); err != nil {
		p.t.Fatal(err)
	}
	text := fmt.Sprintf(`
store: rados
rados: {pool: p, log: replicated, standby: true}
node: {id: %d, name: n%d, listen: %q, secret_file: %q}
cache: {size: 8MiB}
portal: {listen: "127.0.0.1:0"}
metrics: {listen: none}
pools:
  - {name: gold, mdisks: [{name: m0, size: 256MiB}]}
volumes:
  - {name: v, pool: gold, size: 16MiB, export: {lun: 0}}
  - {name: w, pool: gold, size: 16MiB, export: {lun: 1}}
`, id, id, freeAddress(p.t), secret)
	cfg := parse(p.t, text, filepath.Join(dir, "data"))
	n := &pondNode{Client: NewClient(cfg.Data), id: id, t: p.t, out: &logBuffer{}, hurry: make(chan struct{}), end: make(chan error, 1)}
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(context.Background())
	d := newDaemon(cfg, Environment{Out: io.Discard, Log: slog.New(slog.NewTextHandler(n.out, nil)), Hurry: n.hurry})
	d.connects = p.connect
	for _, fn := range with {
		fn(d)
	}
	go func() { n.end <- d.serve(ctx) }()
	p.t.Cleanup(n.stop)
	n.await("it serves, or has a link", func(s Status) bool {
		if !standby {
			return s.Ownership != nil && s.Ownership.State == StateServing
		}
		return n.ownerOf(s) != 0
	})
	s, err := n.Status(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	n.portal = s.Portal
	return n
}

// ownerOf is the number of the node that has the array, 0: none is known.
func (n *pondNode) ownerOf(s Status) int {
	for _, x := range s.Nodes {
		if x.State == NodeOwner {
			return x.ID
		}
	}
	return 0
}

// await waits until a status is as it is to be.
func (n *pondNode) await(what string, ok func(Status) bool) {
	n.t.Helper()
	for end := time.Now().Add(startTimeout); ; time.Sleep(5 * time.Millisecond) {
		s, err := n.Status(context.Background())
		if err == nil && ok(s) {
			return
		}
		select {
		case err := <-n.end:
			n.end <- err
			n.t.Fatalf("node %d has ended: %v\n%s", n.id, err, n.out)
		default:
		}
		if time.Now().After(end) {
			n.t.Fatalf("node %d: not so: %s: %+v, %v\n%s", n.id, what, s, err, n.out)
		}
	}
}

// drop ends a node whose cluster does not answer, unless it has ended.
func (n *pondNode) drop() {
	close(n.hurry)
	n.stop()
}

// stop ends the node in good order, unless it has ended.
func (n *pondNode) stop() {
	n.cancel()
	select {
	case err := <-n.end:
		n.end <- err
	case <-time.After(startTimeout):
		n.t.Errorf("node %d does not stop:\n%s", n.id, n.out)
	}
}
