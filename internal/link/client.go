package link

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
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
	// Array is the array that hosts of this node have been shown; "": none was.
	Array string
	// StandsBy: this node takes the array where its owner leaves it.
	StandsBy bool
	// Hold, unless it is nil, has what hosts send wait for so long at most, and calls done when nothing of them is under way any
	// more, or with why it is. Go ends that. Neither is called with the executor held; they return at once.
	Hold func(limit time.Duration, done func(error))
	Go   func()
	// Policy says in any words who may log in, and where: an owner of which it differs is warned of.
	Policy string
	Log    *slog.Logger

	times times // zero: those of the package; for tests
}

// Client is the end of a node that forwards. [Client.Target] is what its portal serves.
type Client struct {
	cfg     ClientConfig
	tls     *tls.Config
	times   times
	process incarnation
	policy  digest
	exec    block.Executor
	stamp   atomic.Uint64 // the owner's clock, as it was heard last
	wake    chan struct{} // for the writer
	moving  atomic.Bool   // the owner was about to leave
	goes    atomic.Uint64 // how often hosts were to go on
	pauses  atomic.Int32  // that are not answered
	pressed atomic.Bool   // there is something in ahead; stored under exec
	local   atomic.Uint64 // commands that were answered here for want of an owner
	array   string        // which it is, from the first welcome on; it belongs to run, as does epoch
	epoch   uint64        // the highest of an owner of it

	connects int // links there have been; of run

	// What follows is guarded by exec.
	up      bool
	present incarnation  // which process that is
	owner   Peer         // the present one or the last; ID 0: none yet
	others  []Node       // that the owner knows
	state   *nodeState   // counters of the link to owner
	peers   []*nodeState // of all owners there have been
	nexuses []*nexus
	hosts   map[string]*hostWindow // of the nexuses, by initiator
	last    uint32                 // number of the last nexus, and of the last call
	out     []item                 // for the writer: commands, and the answers to pauses
	ahead   []item                 // for the writer: all else, which passes commands that it has not begun
	turns   ring[*nexus]           // those with commands beyond the window
	hungry  ring[*hostWindow]      // those that may have no more of it
	placed  uint64                 // number of the last command that had a place in the window
	flights []flight
	free    []uint32 // of flights
	bytes   int64    // of the window
	window  int64
	calls   map[uint32]*call
	callsOf block.Shares[string] // how many of these an initiator has
	limbo   block.Timer          // set while commands wait for their fate
	ended   []*scsi.Task
	endings []func()
	posted  bool
	kept    block.Shares[string] // answers in the memories of all nexuses, and in bequests, by initiator

	bequests map[hostPort]memory // of nexuses that were closed while no owner is linked

	dialing dialing
}

// NewClient makes the end of a node that forwards, and begins to look for the owner.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.Self.Check(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, array: cfg.Array, times: cfg.times.filled(), process: newIncarnation(), policy: digestOf(cfg.Secret, cfg.Policy), exec: cfg.Exec, wake: make(chan struct{}, 1), calls: map[uint32]*call{},
		dialing: newDialing()}
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

// Leave ends a link to another address than that of the owner: the array has gone there, and who had it may not know yet. It
// waits for nothing.
func (c *Client) Leave(owner string) { c.dialing.leave(owner) }

// Stop ends the link for good, and returns when it has ended. What was in progress ends now: the caller knows that nobody
// carries it out any more, or that nobody waits for it. From then on all commands are answered as without an owner.
func (c *Client) Stop() {
	c.dialing.halt()
	c.exec.Lock()
	c.endLimbo(false)
	c.exec.Unlock()
}

// Emit implements metrics.Source. It is called with the executor held.
func (c *Client) Emit(e metrics.Emitter) {
	for _, p := range c.peers {
		up := 0.0
		if c.up && p == c.state {
			up = 1
		}
		emitNode(e, p, label(c.peers, p), up)
	}
	e.Value(metrics.LinkTransition, float64(c.local.Load()))
}

var errNoOwner = errors.New("no node is known to have the array")

// run makes links until Stop.
func (c *Client) run() {
	defer close(c.dialing.over)
	said, wait := "", c.times.retry
	for {
		err := errNoOwner
		began, linked := time.Now(), c.connects
		if addr := c.cfg.Address(); addr != "" {
			err = c.link(addr)
		}
		wait = max(wait, c.times.retry)
		switch { // links that end soon become rarer: each of them is felt by hosts
		case c.connects == linked:
		case time.Since(began) > 2*retryMost:
			wait = c.times.retry
		default:
			wait = min(2*wait, retryMost)
		}
		if c.dialing.halted() {
			return
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			c.cfg.Log.Warn("link: there is none; retrying", "error", err)
		}
		if c.moving.Load() { // hosts wait
			wait = c.times.retry / 5
		}
		if !c.dialing.pause(wait) {
			return
		}
	}
}
