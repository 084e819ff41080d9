package link

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
)

// ClientConfig describes the end of a node that forwards.
type ClientConfig struct {
	Self    Node
	Targets int // of the array: its I/O groups
	Secret  []byte
	// Exec serialises what the portal asks. It is this client's alone, and no array's.
	Exec block.Executor
	// Address says where the owner is, host:port, each time that a link is to be made; "" is that nobody knows.
	Address func() string
	Log     *slog.Logger

	times times // zero: those of the package; for tests
}

// Client is the end of a node that forwards. [Client.Target] is what its portal serves.
type Client struct {
	cfg     ClientConfig
	tls     *tls.Config
	times   times
	process incarnation
	exec    block.Executor
	stamp   atomic.Uint64 // the owner's clock, as it was heard last
	wake    chan struct{} // for the writer
	local   atomic.Uint64 // commands that were answered here for want of an owner
	asking  atomic.Bool   // an owner that answers is asked for a welcome
	busy    atomic.Int64  // when one said last that the former link had not ended there, by exec's clock

	// What follows is guarded by exec.
	up      bool
	owner   Peer         // the present one or the last; ID 0: none yet
	others  []Node       // that the owner knows
	state   *nodeState   // counters of the link to owner
	peers   []*nodeState // of all owners there have been
	nexuses []*nexus
	last    uint32 // number of the last nexus, and of the last call
	out     []item // for the writer
	queue   []item // beyond the window
	flights []flight
	free    []uint32 // of flights
	bytes   int64    // of the window
	window  int64
	calls   map[uint32]*call
	limbo   block.Timer // set while commands wait for their fate
	ended   []*scsi.Task
	endings []func()
	posted  bool
	known   memory

	mu      sync.Mutex
	conn    net.Conn // guarded by mu: that Stop closes
	stopped bool     // guarded by mu
	stop    chan struct{}
	over    chan struct{} // closed when run has ended
}

// NewClient makes the end of a node that forwards, and begins to look for the owner.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.Self.Check(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, times: cfg.times.filled(), process: newIncarnation(), exec: cfg.Exec, wake: make(chan struct{}, 1), calls: map[uint32]*call{},
		known: memory{}, stop: make(chan struct{}), over: make(chan struct{})}
	if c.cfg.Log == nil {
		c.cfg.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.tls, err = identity(cfg.Secret); err != nil {
		return nil, err
	}
	go c.run()
	return c, nil
}

// item is something that goes to the owner.
type item struct {
	kind kind
	n    *nexus
	task *scsi.Task // of a command
	slot uint32     // of a command that has its place in the window
	call *call      // of a task management function
}

// flight is a command that has its place in the window.
type flight struct {
	task    *scsi.Task
	n       *nexus
	cost    int64
	written atomic.Bool // all of it was given to the connection
}

// call is a task management function in progress.
type call struct {
	n        *nexus
	id       uint32
	fn       scsi.TMF
	lun, tag uint64
	done     func(scsi.TMFResponse)
}

// nexus is an I_T nexus of a session of this node. It implements iscsi.Nexus.
type nexus struct {
	c               *Client
	id              uint32
	target          byte
	port            uint16
	initiator, name string
	opened          bool // at the owner that is linked now
	closed          bool
	closing         func() // called when it is gone at the owner
	onReset         func()
}

// target implements iscsi.Handler.
type target struct {
	c      *Client
	number byte
}

// Target returns one of the array's targets, for the portal.
func (c *Client) Target(number int) iscsi.Handler { return target{c, byte(number)} }

func (t target) Exec() block.Executor { return t.c.exec }

// Visible reports true: which initiators have a LUN the owner alone knows, and discovery waits for nobody.
func (t target) Visible(string) bool { return true }

// OpenNexus makes a nexus here and, while there is a link, at the owner.
func (t target) OpenNexus(initiator, port string, targetPort uint16) iscsi.Nexus {
	c := t.c
	c.last++
	n := &nexus{c: c, id: c.last, target: t.number, port: targetPort, initiator: iscsi.FoldName(initiator), name: strings.ToLower(port)}
	c.nexuses = append(c.nexuses, n)
	if c.up {
		c.openAt(n)
	}
	return n
}

func (c *Client) openAt(n *nexus) {
	n.opened = true
	c.send(item{kind: kindOpen, n: n})
}

// OnReset registers what ends the session when the target has had a cold reset.
func (n *nexus) OnReset(fn func()) { n.onReset = fn }

// Submit forwards tasks, in order, or answers them.
func (n *nexus) Submit(tasks []*scsi.Task) {
	c := n.c
	for _, t := range tasks {
		t.Status, t.Sense, t.DataIn, t.InTotal, t.OutTotal, t.Aborted = scsi.StatusGood, nil, nil, 0, 0, false
		switch {
		case n.closed:
			t.Aborted = true
			c.endLater(t)
		case !c.up:
			c.answer(n, t)
		case t.MaxIn > maxTransfer || block.VecLen(t.DataOut) > maxTransfer:
			check(t, senseInvalidField)
			c.endLater(t)
		default:
			c.queue = append(c.queue, item{kind: kindCommand, n: n, task: t})
		}
	}
	c.pump()
}

// pump gives the writer what the window has room for. Preconditions: the executor is held.
func (c *Client) pump() {
	k := 0
	for ; k < len(c.queue) && len(c.free) > 0; k++ {
		it := c.queue[k]
		cost := int64(it.task.MaxIn) + int64(block.VecLen(it.task.DataOut))
		if c.bytes > 0 && c.bytes+cost > c.window {
			break
		}
		it.slot = c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.bytes += cost
		f := &c.flights[it.slot]
		f.task, f.n, f.cost = it.task, it.n, cost
		f.written.Store(false)
		c.out = append(c.out, it)
	}
	if k > 0 {
		rest := copy(c.queue, c.queue[k:])
		clear(c.queue[rest:])
		c.queue = c.queue[:rest]
		c.signal()
	}
}

func (c *Client) send(it item) {
	c.out = append(c.out, it)
	c.signal()
}

func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// land ends a command's place in the window, and returns it.
func (c *Client) land(slot uint32) *scsi.Task {
	f := &c.flights[slot]
	t := f.task
	c.bytes -= f.cost
	f.task, f.n = nil, nil
	c.free = append(c.free, slot)
	return t
}

// Manage forwards a task management function. What was not sent yet ends here.
func (n *nexus) Manage(fn scsi.TMF, lun, tag uint64, done func(scsi.TMFResponse)) {
	c := n.c
	all := fn == scsi.TargetWarmReset || fn == scsi.TargetColdReset
	some := fn == scsi.AbortTaskSet || fn == scsi.ClearTaskSet || fn == scsi.LogicalUnitReset
	hits := c.abortQueued(func(it item) bool {
		return it.n == n && (all || it.task.LUN == lun && (some || fn == scsi.AbortTask && it.task.Tag == tag))
	})
	k := &call{n: n, fn: fn, lun: lun, tag: tag, done: done}
	switch {
	case fn == scsi.AbortTask && hits > 0:
		c.callLater(func() { done(scsi.TMFComplete) })
	case len(c.calls) >= maxManages:
		c.callLater(func() { done(scsi.TMFRejected) })
	case c.up, c.limbo != nil: // behind a broken link it has its answer with the commands that it may be about
		c.last++
		k.id = c.last
		c.calls[k.id] = k
		if c.up {
			c.send(item{kind: kindManage, n: n, call: k})
		}
	default:
		c.callLater(k.fail)
	}
}

// fail answers a function that nobody carries out: there is no such task any more, and what is more than one task has to
// be asked of an owner.
func (k *call) fail() {
	if k.fn == scsi.AbortTask {
		k.done(scsi.TMFNoTask)
		return
	}
	k.done(scsi.TMFRejected)
}

// abortQueued ends commands that were not sent.
func (c *Client) abortQueued(match func(item) bool) (hits int) {
	c.queue = slices.DeleteFunc(c.queue, func(it item) bool {
		if !match(it) {
			return false
		}
		it.task.Aborted = true
		c.endLater(it.task)
		hits++
		return true
	})
	return hits
}

// Close ends the nexus. done is called when no command of it is in progress any more, as far as the owner can be asked.
func (n *nexus) Close(done func()) {
	c := n.c
	if n.closed {
		c.callLater(done)
		return
	}
	n.closed = true
	c.abortQueued(func(it item) bool { return it.n == n })
	switch {
	case n.opened && c.up:
		n.closing = done
		c.send(item{kind: kindClose, n: n})
	case c.inLimbo(n):
		n.closing = done
	default:
		c.forget(n)
		c.callLater(done)
	}
}

// inLimbo reports whether commands or functions of the nexus wait for their fate.
func (c *Client) inLimbo(n *nexus) bool {
	for slot := range c.flights {
		if c.flights[slot].n == n {
			return true
		}
	}
	for _, k := range c.calls {
		if k.n == n {
			return true
		}
	}
	return false
}

func (c *Client) forget(n *nexus) {
	c.nexuses = slices.DeleteFunc(c.nexuses, func(m *nexus) bool { return m == n })
}

// endLater calls a task's Done, not from inside the present call.
func (c *Client) endLater(t *scsi.Task) {
	c.ended = append(c.ended, t)
	c.post()
}

// callLater calls fn, not from inside the present call, and behind the tasks that have ended.
func (c *Client) callLater(fn func()) {
	c.endings = append(c.endings, fn)
	c.post()
}

func (c *Client) post() {
	if !c.posted {
		c.posted = true
		c.exec.Post(c.deliver)
	}
}

func (c *Client) deliver() {
	c.posted = false
	tasks, calls := c.ended, c.endings
	c.ended, c.endings = nil, nil
	for _, t := range tasks {
		t.Done(t)
	}
	for _, fn := range calls {
		fn()
	}
}

// Owner describes the node that has the array, as far as this one knows, and the other nodes. ID 0: there was none yet.
func (c *Client) Owner() (owner Peer, others []Node) {
	c.exec.Lock()
	defer c.exec.Unlock()
	owner = c.owner
	owner.Linked, owner.Sessions = c.up, len(c.nexuses)
	if c.state != nil {
		owner.Commands = c.state.commands.Load()
	}
	return owner, slices.Clone(c.others)
}

// Known lists the nodes that this one has heard of, but for itself: for the case that it becomes the owner.
func (c *Client) Known() []Node {
	owner, others := c.Owner()
	if owner.ID != 0 {
		others = append(others, owner.Node)
	}
	return others
}

// Stop ends the link for good, and returns when it has ended. What was in progress ends now: the caller knows that nobody
// carries it out any more, or that nobody waits for it. From then on all commands are answered as without an owner.
func (c *Client) Stop() {
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
	c.exec.Lock()
	c.endLimbo()
	c.exec.Unlock()
}

// Emit implements metrics.Source. It is called with the executor held.
func (c *Client) Emit(e metrics.Emitter) {
	for _, p := range c.peers {
		up := 0.0
		if c.up && p == c.state {
			up = 1
		}
		emitNode(e, p, up)
	}
	e.Value(metrics.LinkTransition, float64(c.local.Load()))
}

var errNoOwner = errors.New("nobody has the array, as far as is known")

// run makes links until Stop.
func (c *Client) run() {
	defer close(c.over)
	said := ""
	for {
		err := errNoOwner
		if addr := c.cfg.Address(); addr != "" {
			err = c.link(addr)
		}
		select {
		case <-c.stop:
			return
		default:
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			c.cfg.Log.Warn("link: there is none; it is tried again", "error", err)
		}
		t := time.NewTimer(c.times.ping / 4)
		select {
		case <-c.stop:
			t.Stop()
			return
		case <-t.C:
		}
	}
}
