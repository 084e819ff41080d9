package admin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
	"github.com/arraysim/arraysim/internal/metrics/exposition"
)

// listen opens the doors. Only when all are open is the daemon ready.
func (d *daemon) listen() error {
	if d.cfg.Portal.Listen == listenNone && !d.cfg.TCMU {
		return errors.New("the array has neither a portal nor a TCMU front end; give --listen an address, or --tcmu")
	}
	if d.forward != nil {
		d.forward.settle() // its metrics have the place of the array's
	}
	front, err := d.openFront(d.targets())
	if err != nil {
		return err
	}
	d.front.Store(front)
	d.portal = front.portal
	if len(front.ports) > 0 {
		d.portalAddr, d.portAddrs = front.ports[0].Addr(), addresses(front.ports)
	}
	d.history = openHistory(d.cfg.Data, func(line string) { d.log.Warn(line) })
	d.findings = openFindings(d.cfg.Data, func(line string) { d.log.Warn(line) })
	if d.audit, err = openAudit(d.cfg.Data); err == nil {
		api, _ := d.newAPI()
		d.api = d.audited(api)
		if err = d.openLink(); err == nil {
			err = d.listenHTTP()
		}
	}
	var recorders []export.SnapshotWriter
	if err == nil {
		recorders, err = d.recorders()
	}
	var adminListener net.Listener
	if err == nil {
		d.opening.hide()
		adminListener, err = d.data.listen()
	}
	if err != nil {
		return err
	}
	d.admin = d.serveHTTP("admin", adminListener, d.api)
	if d.forward != nil { // from here on hosts are let in to the array itself
		front.adopt(d.targets())
		d.endForward()
	}
	front.serve(d.cfg.firstPort(), d.fail)
	d.tellOwner()
	d.background.Go(d.keepCounters)
	d.background.Go(d.watch)
	if recorders != nil {
		d.background.Go(func() { d.record(recorders) })
	}
	if d.cfg.TCMU {
		err = d.openKernelDoor()
	}
	if err == nil {
		d.moves.open()
	}
	return err
}

// listenHTTP opens the door for browsers, scripts and scrapers: the page, the
// interface behind a token, and the metrics.
func (d *daemon) listenHTTP() error {
	if d.cfg.Metrics.Listen == listenNone {
		return nil
	}
	l, err := d.metricsDoor().share()
	if err != nil {
		return err
	}
	shown, err := exposition.ParseVolumes(d.cfg.Metrics.Volumes)
	if err != nil {
		l.Close()
		return fmt.Errorf("--metrics-volumes or metrics.volumes: %w", err)
	}
	x := exposition.NewExporter(metrics.Unlocked, Version(), append(d.sources(), d.doors()...)...)
	x.LimitVolumes(shown)
	h, err := x.Handler()
	if err != nil {
		l.Close()
		return err
	}
	d.metricsAddr = l.Addr()
	d.metrics, err = d.servePeople(l, h, d.api)
	return err
}

// servePeople serves metrics, the interface behind a token, and the page.
func (d *daemon) servePeople(l net.Listener, figures, api http.Handler) (*http.Server, error) {
	token, err := Token(d.cfg.Data)
	if err != nil {
		l.Close()
		return nil, err
	}
	local := loopback(l.Addr())
	if !local {
		d.log.Warn("page and metrics are open to other machines, in clear text; all but /metrics asks for the token", "listen", l.Addr().String())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", figures)
	mux.Handle("/api/", newGuard(api, token, local, d.audit))
	mux.Handle("/", servePage())
	var all http.Handler = mux
	if local {
		all = ownNames(mux)
	}
	return d.serveHTTP("metrics", &boundedListener{Listener: l, limit: maxPageConnections}, all), nil
}

// doors are those by which commands come, and the pool that the array is in, with their counters.
func (d *daemon) doors() []metrics.Source {
	out := []metrics.Source{d.portal}
	if d.links != nil {
		out = append(out, d.links)
	}
	if len(d.cfg.Peers) > 0 {
		out = append(out, peerCounters{d})
	}
	if s, ok := d.data.store.(metrics.Source); ok { // of a pool, which counts what it asks
		out = append(out, s)
	}
	return out
}

// allCounters are what the table has: what /metrics shows of the array, by itself or by its exporter.
func (d *daemon) allCounters() []metrics.Source {
	return append(append(d.sources(), d.doors()...), buildInfo{})
}

// buildInfo emits the family that an exporter has of its own.
type buildInfo struct{}

// Emit implements metrics.Source.
func (buildInfo) Emit(e metrics.Emitter) { e.Value(metrics.BuildInfo, 1, Version(), runtime.Version()) }

// listenTCP listens on an address; one of IPv4 is of IPv4 alone, 0.0.0.0 too.
func listenTCP(what, how, addr string) (net.Listener, error) {
	network := "tcp"
	if host, _, err := net.SplitHostPort(addr); err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.To4() != nil {
			network = "tcp4"
		}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("%s cannot listen on %s: %w; choose another address with %s", what, addr, rootCause(err), how)
	}
	return l, nil
}
