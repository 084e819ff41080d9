package admin

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/metrics"
)

// listen opens the doors. Only when all are open is the daemon ready.
func (d *daemon) listen() error {
	p := d.cfg.Portal
	var targets []iscsi.TargetConfig
	for _, g := range d.groups {
		targets = append(targets, iscsi.TargetConfig{Name: groupTarget(p.Target, g.number), Alias: "arraysim", Target: g.target,
			AllowedInitiators: p.Allow, CHAP: d.chap})
	}
	var err error
	if d.portal, err = iscsi.New(iscsi.Config{Targets: targets, Log: d.log, DiscoveryCHAP: d.chap,
		Limits: iscsi.Limits{MaxConnections: p.Connections, MaxSessions: p.Sessions, Memory: int(p.Memory)}}); err != nil {
		return err
	}
	if p.Listen == listenNone && !d.cfg.TCMU {
		return errors.New("the array has neither a portal nor a TCMU front end; give --listen an address, or --tcmu")
	}
	d.endForward()             // from here on hosts are let in to the array itself
	var portals []net.Listener // by portal group, from the first
	closePortals := func() {
		for _, l := range portals {
			l.Close()
		}
	}
	for _, door := range d.portalDoors() {
		l, err := door.listen()
		if err != nil {
			closePortals()
			return err
		}
		portals = append(portals, l)
		if !loopback(l.Addr()) && p.CHAP == nil {
			d.log.Warn("the iSCSI portal is open to other machines and asks for no password; set portal.chap", "listen", l.Addr().String())
		}
	}
	if len(portals) > 0 {
		d.portalAddr, d.portAddrs = portals[0].Addr(), addresses(portals)
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
	var recorders []metrics.SnapshotWriter
	if err == nil {
		recorders, err = d.recorders()
	}
	var adminListener net.Listener
	if err == nil {
		d.opening.hide()
		adminListener, err = d.data.listen()
	}
	if err != nil {
		closePortals()
		return err
	}
	d.admin = d.serveHTTP("admin", adminListener, d.api)
	for i, l := range portals {
		d.background.Go(func() {
			if err := d.portal.ServePort(l, uint16(d.cfg.firstPort()+i)); err != nil && !errors.Is(err, iscsi.ErrClosed) {
				d.fail(fmt.Errorf("the iSCSI portal ended: %w", err))
			}
		})
	}
	d.background.Go(d.keepCounters)
	d.background.Go(d.watch)
	if recorders != nil {
		d.background.Go(func() { d.record(recorders) })
	}
	if d.cfg.TCMU {
		return d.openKernelDoor()
	}
	return nil
}

// listenHTTP opens the door for browsers, scripts and scrapers: the page, the
// interface behind a token, and the metrics.
func (d *daemon) listenHTTP() error {
	if d.cfg.Metrics.Listen == listenNone {
		return nil
	}
	token, err := Token(d.cfg.Data)
	if err != nil {
		return err
	}
	l, err := d.metricsDoor().listen()
	if err != nil {
		return err
	}
	shown, err := metrics.ParseVolumes(d.cfg.Metrics.Volumes)
	if err != nil {
		l.Close()
		return fmt.Errorf("--metrics-volumes or metrics.volumes: %w", err)
	}
	x := metrics.NewExporter(metrics.Unlocked, Version(), append(d.sources(), d.doors()...)...)
	x.LimitVolumes(shown)
	h, err := x.Handler()
	if err != nil {
		l.Close()
		return err
	}
	d.metricsAddr = l.Addr()
	local := loopback(d.metricsAddr)
	if !local {
		d.log.Warn("page and metrics are open to other machines, in clear text; all but /metrics asks for the token", "listen", d.metricsAddr.String())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	mux.Handle("/api/", newGuard(d.api, token, local, d.audit))
	mux.Handle("/", servePage())
	var all http.Handler = mux
	if local {
		all = ownNames(mux)
	}
	d.metrics = d.serveHTTP("metrics", l, all)
	return nil
}

// doors are those by which commands come, with their counters.
func (d *daemon) doors() []metrics.Source {
	if d.links == nil {
		return []metrics.Source{d.portal}
	}
	return []metrics.Source{d.portal, d.links}
}

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
