package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/arraysim/arraysim/internal/link"
)

// An array moves from the node that has it to another one that stands by, without an error at hosts:
//
//	hosts wait -> what is under way ends -> the array stops -> its lease names the heir -> that one has it -> hosts go on
//
// Up to where the array stops all of it can be taken back. Behind that this process stands by for the array, as it did before
// it had it: its portal stays open, and its sessions go to the next owner.
const (
	// moveDrain is how long what is under way may take to end. Where it takes longer the array stays.
	moveDrain = 10 * time.Second
	// moveLimit is how long hosts wait in all. Then they hear of a transition, as behind the death of an owner. It is less
	// than the 30 s after which Linux aborts a command.
	moveLimit = 20 * time.Second
)

// errMoved is the end of a daemon that has given its array to another node.
var errMoved = errors.New("the array has moved to another node")

// moves is the state of a daemon's array that moves.
type moves struct {
	mu    sync.Mutex
	ready bool          // guarded by mu: all doors are open
	busy  bool          // guarded by mu: a move is being tried
	to    *link.Peer    // guarded by mu: who is to have the array
	leave chan struct{} // closed when that is certain
	limit time.Duration // moveLimit; for tests
	// next stands by in this daemon's place as soon as hosts have left it; nil: not yet.
	next atomic.Pointer[daemon]
}

// open lets moves begin.
func (m *moves) open() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = true
}

// begin notes a move, unless there is one, or the daemon is not that far.
func (m *moves) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.ready:
		return conflict("this node has not completed its start; try again, and see arraysim status")
	case m.busy:
		return conflict("the array is already about to move; see arraysim status")
	}
	m.busy = true
	return nil
}

// end says that the array stays.
func (m *moves) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy = false
}

// leaveTo says who is to have the array; nil: it stays.
func (m *moves) leaveTo(to *link.Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = to
}

// allows reports whether the kernel may get a device now. One that is resumed has been the kernel's all the time, and keeps the
// array here as long as that is not certain to leave.
func (m *moves) allows(resumed bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.busy || resumed && m.to == nil
}

// heir returns who is to have the array; nil: it stays.
func (m *moves) heir() *link.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.to
}

// serve runs the daemon, and when its array has moved another one in its place.
func (d *daemon) serve(ctx context.Context) error {
	for {
		err := d.run(ctx)
		if !errors.Is(err, errMoved) {
			return err
		}
		next := d.moves.next.Load()
		if next == nil {
			next = d.successor()
		}
		d = next
	}
}

// standBehind has the sessions of this daemon's hosts wait for the next owner, from before the array has stopped: however long
// that takes, they hear of a transition when the limit of the hold is there.
func (d *daemon) standBehind() {
	s := d.successor()
	f, err := s.newForwarding()
	if err != nil {
		d.log.Error("hosts wait until the array has stopped", "error", err)
		return
	}
	s.forward = f
	d.moves.next.Store(s)
}

// endNext ends what was to stand by in the place of a daemon whose array has not moved.
func (d *daemon) endNext() {
	if s := d.moves.next.Load(); s != nil {
		s.endForward()
	}
}

// successor returns the daemon that stands by in the place of one whose array has moved.
func (d *daemon) successor() *daemon {
	s := newDaemon(d.cfg, d.env)
	s.follows, s.profile, s.chap, s.passed, s.connects = true, d.profile, d.chap, d.passed, d.connects
	s.shown, _, _ = d.arrayName() // the store knows it, and makes no error
	s.front.Store(d.front.Load())
	return s
}

// Move says where an array is to move.
type Move struct {
	To string `json:"to" doc:"The number of a node that stands by, or its name."`
}

// MoveStatus is what a move has begun.
type MoveStatus struct {
	ID    int    `json:"id" doc:"The number of the node that will have the array."`
	Name  string `json:"name"`
	Epoch int64  `json:"epoch" doc:"The epoch of this node's ownership, which ends. The next owner has a higher one."`
}

func (d *daemon) moveOperations(a huma.API) {
	change(d, a, operation(http.MethodPost, "/instance/move", "move-instance",
		"Move the array to another node that stands by; hosts wait, and get no error. The answer comes when no commands are in progress"),
		func(in *with[Move]) (MoveStatus, error) { return d.move(in.Body) })
}

// move has the array leave this node. It returns when what was under way has ended, and the rest goes on by itself.
func (d *daemon) move(m Move) (MoveStatus, error) {
	to, err := d.heirOf(m.To)
	if err != nil {
		return MoveStatus{}, err
	}
	if err := d.moves.begin(); err != nil {
		return MoveStatus{}, err
	}
	if err = d.noKernelDevice(); err != nil { // from here on there are no new ones
		d.moves.end()
		return MoveStatus{}, err
	}
	if err = d.quiesce(); err == nil {
		d.moves.leaveTo(&to) // no device is resumed any more
		if err = d.noKernelDevice(); err != nil {
			d.moves.leaveTo(nil)
			d.unquiesce()
		}
	}
	if err != nil {
		d.moves.end()
		return MoveStatus{}, conflict("the array stays here, and hosts continue: %w", err)
	}
	close(d.moves.leave)
	s := MoveStatus{ID: int(to.ID), Name: to.Name}
	if own := d.data.ownership(); own != nil && own.Epoch != nil {
		s.Epoch = *own.Epoch
	}
	return s, nil
}

// noKernelDevice is an error where the kernel of this machine has volumes as devices.
func (d *daemon) noKernelDevice() error {
	if n := d.kernelDevices(); n > 0 {
		return conflict("%d TCMU devices of this machine use the array, and cannot follow it; remove them first", n)
	}
	return nil
}

// kernelDevices is how many volumes are devices of this machine's kernel.
func (d *daemon) kernelDevices() (n int) {
	for _, g := range d.groups {
		g.exec.Lock()
		n += len(g.exports.kernel)
		g.exec.Unlock()
	}
	return n
}

// quiesce has hosts of all nodes wait, and returns when nothing of them is under way any more.
func (d *daemon) quiesce() error {
	ctx, cancel := context.WithTimeout(context.Background(), moveDrain)
	defer cancel()
	paused := make(chan error, 1)
	go func() { paused <- d.links.Pause(ctx, d.moves.limit) }()
	own := d.front.Load().hold(ctx, d.moves.limit)
	others := <-paused
	if own == nil && others == nil {
		return nil
	}
	if own == nil {
		d.front.Load().release()
	}
	if others == nil {
		d.links.Resume()
	}
	return errors.Join(own, others)
}

// unquiesce has hosts of all nodes continue.
func (d *daemon) unquiesce() {
	d.front.Load().release()
	d.links.Resume()
}

// heirOf finds the node that an array is to move to.
func (d *daemon) heirOf(name string) (p link.Peer, err error) {
	switch own := d.data.ownership(); {
	case d.links == nil:
		return p, conflict("this array has one node; give several nodes a section node, as docs/nodes.md says")
	case own == nil:
		return p, conflict("the array is in this node's data folder, where no other node finds it; only an array with store: rados can move")
	case !d.cfg.Rados.Standby:
		return p, conflict("this node would not stand by after a move; write rados.standby: true on all nodes")
	case own.State != StateServing:
		return p, conflict("this node does not serve the array at this moment (%s); see arraysim status", own.State)
	}
	self := d.cfg.self()
	peers := d.links.Peers()
	is := func(n link.Node) bool { return n.Name == name || strconv.Itoa(int(n.ID)) == name }
	if i := slices.IndexFunc(peers, func(p link.Peer) bool { return strconv.Itoa(int(p.ID)) == name }); i >= 0 {
		peers = peers[i : i+1] // a number is meant before a name
	}
	if is(self) && !slices.ContainsFunc(peers, func(p link.Peer) bool { return is(p.Node) }) {
		return p, conflict("node %d %s already has the array", self.ID, self.Name)
	}
	var found []link.Peer
	for _, q := range peers {
		if is(q.Node) {
			found = append(found, q)
		}
	}
	switch {
	case len(found) == 0:
		return p, &refusal{err: fmt.Errorf("there is no node %q; there are %s", name, listNodes(d.links.Peers())), status: http.StatusNotFound}
	case len(found) > 1:
		return p, conflict("%d nodes have the name %q; give the number of one: %s", len(found), name, listNodes(found))
	case !found[0].Linked:
		return p, conflict("node %d %s is not linked; start it, and see arraysim status", found[0].ID, found[0].Name)
	case !found[0].StandsBy:
		return p, conflict("node %d %s forwards, and does not stand by; write rados.standby: true there", found[0].ID, found[0].Name)
	}
	return found[0], nil
}

func listNodes(list []link.Peer) string {
	var words []string
	for _, p := range list {
		words = append(words, fmt.Sprintf("%d %s", p.ID, p.Name))
	}
	if len(words) == 0 {
		return "no others"
	}
	return strings.Join(words, ", ")
}

// awaitPatience is how long AwaitMove waits for the next owner.
const awaitPatience = time.Minute

// AwaitMove waits until a move that has begun has come to its end, and returns who has the array. It is an error if that is
// another node than the one that was to have it.
func (c *Client) AwaitMove(ctx context.Context, m MoveStatus) (owner NodeStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, awaitPatience)
	defer cancel()
	for {
		s, err := c.Status(ctx)
		if own := s.Ownership; err == nil && own != nil {
			i := slices.IndexFunc(s.Nodes, func(n NodeStatus) bool { return n.State == NodeOwner })
			switch back := own.State == StateServing; {
			case i < 0, back && own.Epoch != nil && *own.Epoch <= m.Epoch: // not yet
			case s.Nodes[i].ID == m.ID:
				return s.Nodes[i], nil
			default:
				return s.Nodes[i], fmt.Errorf("node %d %s did not take the array, and node %d %s has it; see the log of the former", m.ID, m.Name, s.Nodes[i].ID, s.Nodes[i].Name)
			}
		}
		select {
		case <-ctx.Done():
			return owner, fmt.Errorf("no node is known to have the array: %w; see arraysim status on all nodes", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
