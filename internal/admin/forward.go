package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/link"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/exposition"
)

// forwarding is a node that has no array: its portal, the link to the owner, and the metrics of both.
type forwarding struct {
	d       *daemon
	exec    *block.Live
	client  *link.Client
	front   *front
	adopts  bool // the front's sessions wait for this
	metrics *http.Server

	mu      sync.Mutex
	address string // guarded by mu: of the owner's link; "": nobody knows it
	held    *front // guarded by mu: whose sessions go on where the owner says so; nil: there are none yet

	in      chan struct{} // closed when hosts are let in
	closing chan struct{}
	once    sync.Once
	over    sync.Once
	wg      sync.WaitGroup
}

// newForwarding opens the portal of a node that forwards. Hosts are let in when there was an owner for the first time: before
// that nobody could tell them what units there are.
func (d *daemon) newForwarding() (*forwarding, error) {
	b, err := d.cfg.linkSecret()
	if err != nil {
		return nil, err
	}
	f := &forwarding{d: d, exec: block.NewLive(), adopts: d.front.Load() != nil, in: make(chan struct{}), closing: make(chan struct{})}
	f.client, err = link.NewClient(link.ClientConfig{Self: d.cfg.self(), Targets: max(d.cfg.IOGroups, 1), Secret: b, Exec: f.exec, Address: f.owner, Array: d.shown,
		StandsBy: d.cfg.Store == storeRados && d.cfg.Rados.Standby, Hold: f.hold, Go: f.goOn, Policy: d.loginPolicy(), Log: d.log})
	if err != nil {
		f.exec.Stop()
		return nil, err
	}
	if f.front, err = d.openFront(f.handlers()); err == nil && !d.follows { // whose array's metrics have that place for now
		err = f.listenMetrics()
	}
	if err != nil {
		f.end()
		if !f.adopts {
			f.front.end()
		}
		return nil, err
	}
	d.front.Store(f.front)
	f.wg.Go(f.serve)
	return f, nil
}

// handlers are those of the portal while another node has the array.
func (f *forwarding) handlers() (out []iscsi.Handler) {
	for i := range max(f.d.cfg.IOGroups, 1) {
		out = append(out, f.client.Target(i))
	}
	return out
}

// hold has what hosts send wait, because the owner asks for it: it is about to leave. Where hosts are about to be let in, or
// those of before to be adopted, it waits for that: what they send then would come to the owner behind its last look.
func (f *forwarding) hold(limit time.Duration, done func(error)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), moveDrain)
		defer cancel()
		select {
		case <-f.in:
			done(f.front.hold(ctx, limit))
		case <-f.closing:
			done(errors.New("it ends"))
		case <-ctx.Done():
			done(errors.New("its hosts are not let in yet"))
		}
	}()
}

// goOn has what was held go on: there is an owner.
func (f *forwarding) goOn() {
	f.mu.Lock()
	front := f.held
	f.mu.Unlock()
	if front != nil {
		front.release()
	}
}

// listenMetrics serves the metrics of link and portal, and the page, which says who has the array.
func (f *forwarding) listenMetrics() error {
	if f.d.cfg.Metrics.Listen == listenNone {
		return nil
	}
	l, err := f.d.metricsDoor().share()
	if err != nil {
		return err
	}
	h, err := exposition.NewExporter(metrics.Unlocked, Version(), metrics.Locked(f.exec, f.client), f.front.portal).Handler()
	if err != nil {
		l.Close()
		return err
	}
	api := http.Handler(http.HandlerFunc(f.status))
	if f.d.opening != nil {
		api = f.d.opening
	}
	f.metrics, err = f.d.servePeople(l, h, api)
	return err
}

// serve lets hosts in once the owner was there. Those that are in from before do not wait for it for longer than they were told.
func (f *forwarding) serve() {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		if owner, _ := f.client.Owner(); owner.ID != 0 || f.adopts && !time.Now().Before(f.front.heldUntil()) {
			break
		}
		select {
		case <-f.closing:
			return
		case <-t.C:
		}
	}
	if f.adopts {
		f.front.adopt(f.handlers())
	}
	f.mu.Lock()
	f.held = f.front
	f.mu.Unlock()
	f.front.serve(f.d.cfg.firstPort(), f.d.fail)
	close(f.in)
}

// owner says where the owner's link is.
func (f *forwarding) owner() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.address
}

// follow says where the owner's link is from now on. A former owner that the cluster does not answer may not know that it was
// replaced, and would keep this node's hosts with it.
func (f *forwarding) follow(address string) {
	f.mu.Lock()
	changed := f.address != address
	f.address = address
	f.mu.Unlock()
	if changed {
		f.client.Leave(address)
	}
}

// settle ends what the array's own doors take the place of, the portal apart.
func (f *forwarding) settle() {
	f.once.Do(func() {
		close(f.closing)
		if f.metrics != nil {
			f.metrics.Close()
		}
		f.client.Stop()
		f.wg.Wait()
	})
}

// end ends the link. Preconditions: no session has commands carried out by it. It may be called several times.
func (f *forwarding) end() {
	f.settle()
	f.over.Do(f.exec.Stop)
}

// nodes describes the nodes to who asks one that forwards.
func (f *forwarding) nodes() []NodeStatus {
	owner, others := f.client.Owner()
	self := nodeStatus(f.d.cfg.self(), NodeForwarding)
	self.Sessions, self.Commands = owner.Sessions, owner.Commands
	out := []NodeStatus{}
	if owner.ID != 0 {
		s := nodeStatus(owner.Node, NodeAway)
		if s.Address = owner.Address; owner.Linked {
			s.State = NodeOwner
		}
		out = append(out, s)
	}
	out = append(out, self)
	for _, n := range others {
		if n.ID != uint16(self.ID) {
			out = append(out, nodeStatus(n, NodeForwarding))
		}
	}
	return out
}

// portalName is the first portal's address.
func (f *forwarding) portalName() string { return reachable(f.front.ports[0].Addr()) }

// forwardOnly runs a node that has no array of its own, until ctx ends.
func (d *daemon) forwardOnly(ctx context.Context) error {
	data := &folder{path: d.cfg.Data, memory: true}
	if err := os.MkdirAll(data.path, 0o700); err != nil {
		return fmt.Errorf("data folder: %w; choose another with --data", err)
	}
	if err := data.flock(); err != nil {
		return err
	}
	defer data.lock.Close()
	f, err := d.newForwarding()
	if err != nil {
		return err
	}
	defer d.background.Wait()
	defer f.end()
	defer f.front.end()
	f.follow(d.cfg.Node.Forward)
	l, err := data.listen()
	if err != nil {
		return err
	}
	defer data.removeSocket()
	admin := d.serveHTTP("admin", l, http.HandlerFunc(f.status))
	defer admin.Close()
	fmt.Fprintf(d.env.Out, "ready: iscsi://%s/%s, forwarded to %s, data %s\n", f.portalName(), d.cfg.Portal.Target, d.cfg.Node.Forward, d.cfg.Data)
	d.notify("READY=1", "STATUS=Forwarding to "+d.cfg.Node.Forward)
	select {
	case <-ctx.Done():
		err = nil
	case err = <-d.failed:
	}
	d.ending.at("closing sessions")
	d.notify("STOPPING=1", "STATUS=Closing sessions")
	return err
}

// status answers GET /api/v1/status, and nothing else.
func (f *forwarding) status(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != apiPath+"/status" {
		owner, _ := f.client.Owner()
		writeProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("this node has no array: it forwards to node %d %s at %s; ask that node", owner.ID, owner.Name, f.owner()))
		return
	}
	c := f.d.cfg
	s := &Status{Version: Version(), PID: os.Getpid(), Data: c.Data, Store: storeNone, Portal: f.portalName(), Target: c.Portal.Target, Targets: []string{}, Mirrored: true, Nodes: f.nodes()}
	for i := range max(c.IOGroups, 1) {
		s.Targets = append(s.Targets, groupTarget(c.Portal.Target, i))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // an error here means that the client has gone
}
