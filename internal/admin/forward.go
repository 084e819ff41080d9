package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/link"
	"github.com/arraysim/arraysim/internal/metrics"
)

// forwarding is a node that has no array: its portal, the link to the owner, and the metrics of both.
type forwarding struct {
	d       *daemon
	exec    *block.Live
	client  *link.Client
	portal  *iscsi.Portal
	ports   []net.Listener
	metrics *http.Server

	mu      sync.Mutex
	address string // guarded by mu: of the owner's link; "": nobody knows it

	closing chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

// newForwarding opens the portal of a node that forwards. Hosts are let in when there was an owner for the first time: before
// that nobody could tell them what units there are.
func (d *daemon) newForwarding() (*forwarding, error) {
	b, err := d.cfg.linkSecret()
	if err != nil {
		return nil, err
	}
	f := &forwarding{d: d, exec: block.NewLive(), closing: make(chan struct{})}
	groups := max(d.cfg.IOGroups, 1)
	f.client, err = link.NewClient(link.ClientConfig{Self: d.cfg.self(), Targets: groups, Secret: b, Exec: f.exec, Address: f.owner, Policy: d.loginPolicy(), Log: d.log})
	if err != nil {
		f.exec.Stop()
		return nil, err
	}
	if err = f.open(groups); err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

func (f *forwarding) open(groups int) error {
	d, p := f.d, f.d.cfg.Portal
	var targets []iscsi.TargetConfig
	for i := range groups {
		targets = append(targets, iscsi.TargetConfig{Name: groupTarget(p.Target, i), Alias: "arraysim", Handler: f.client.Target(i), AllowedInitiators: p.Allow, CHAP: d.chap})
	}
	var err error
	if f.portal, err = iscsi.New(iscsi.Config{Targets: targets, Log: d.log, DiscoveryCHAP: d.chap,
		Limits: iscsi.Limits{MaxConnections: p.Connections, MaxSessions: p.Sessions, Memory: int(p.Memory)}}); err != nil {
		return err
	}
	for _, o := range d.portalDoors() {
		l, err := o.share()
		if err != nil {
			return err
		}
		f.ports = append(f.ports, l)
		if !loopback(l.Addr()) && p.CHAP == nil {
			d.log.Warn("the iSCSI portal is open to other machines and asks for no password; set portal.chap", "listen", l.Addr().String())
		}
	}
	if err := f.listenMetrics(); err != nil {
		return err
	}
	f.wg.Go(f.serve)
	return nil
}

// listenMetrics serves the metrics of link and portal, and nothing else.
func (f *forwarding) listenMetrics() error {
	if f.d.cfg.Metrics.Listen == listenNone {
		return nil
	}
	l, err := f.d.metricsDoor().share()
	if err != nil {
		return err
	}
	h, err := metrics.NewExporter(metrics.Unlocked, Version(), metrics.Locked(f.exec, f.client), f.portal).Handler()
	if err != nil {
		l.Close()
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	f.metrics = f.d.serveHTTP("metrics", l, mux)
	return nil
}

// serve lets hosts in once the owner was there.
func (f *forwarding) serve() {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		if owner, _ := f.client.Owner(); owner.ID != 0 {
			break
		}
		select {
		case <-f.closing:
			return
		case <-t.C:
		}
	}
	for i, l := range f.ports {
		f.wg.Go(func() {
			if err := f.portal.ServePort(l, uint16(f.d.cfg.firstPort()+i)); err != nil && !errors.Is(err, iscsi.ErrClosed) {
				f.d.fail(fmt.Errorf("the iSCSI portal ended: %w", err))
			}
		})
	}
}

// owner says where the owner's link is.
func (f *forwarding) owner() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.address
}

// follow says where the owner's link is from now on.
func (f *forwarding) follow(address string) {
	f.mu.Lock()
	f.address = address
	f.mu.Unlock()
}

// end closes sessions, portal and link. It may be called several times.
func (f *forwarding) end() {
	f.once.Do(func() {
		close(f.closing)
		if f.portal != nil {
			ctx, cancel := context.WithTimeout(context.Background(), sessionTimeout)
			if err := f.portal.Shutdown(ctx); err != nil {
				f.d.log.Warn("sessions did not end in time and were cut off")
			}
			cancel()
		}
		for _, l := range f.ports {
			l.Close()
		}
		if f.metrics != nil {
			f.metrics.Close()
		}
		f.client.Stop()
		f.wg.Wait()
		f.exec.Stop()
	})
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
func (f *forwarding) portalName() string { return reachable(f.ports[0].Addr()) }

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
	d.notify("STOPPING=1", "STATUS=Closing sessions")
	return err
}

// status answers GET /api/v1/status, and nothing else.
func (f *forwarding) status(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != apiPath+"/status" {
		owner, _ := f.client.Owner()
		writeProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("this node has no array, it forwards to node %d %s at %s; ask that one", owner.ID, owner.Name, f.owner()))
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
