package admin

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/arraysim/arraysim/internal/metrics/exposition"
	"github.com/arraysim/arraysim/internal/profile"
)

// preflight looks for what would end the start later: a profile or secrets that cannot be used, an
// address that is taken. It comes before the data folder, so that a start that fails makes no array. Addresses are
// let go again: nobody is to connect while the array recovers, which may take long.
func (d *daemon) preflight() error {
	var err error
	if d.cfg.Profile != "" {
		if d.profile, err = profile.Load(d.cfg.Profile); err != nil {
			return err
		}
	}
	if _, err := exposition.ParseVolumes(d.cfg.Metrics.Volumes); err != nil {
		return fmt.Errorf("--metrics-volumes or metrics.volumes: %w", err)
	}
	if d.chap, err = d.loadCHAP(); err != nil {
		return err
	}
	if err := d.chap.Check(); err != nil {
		return fmt.Errorf("portal.chap: %w", err)
	}
	if err := d.takePassed(); err != nil {
		return err
	}
	doors := d.portalDoors()
	if d.cfg.Node != nil {
		if _, err := d.cfg.linkSecret(); err != nil {
			return err
		}
		if d.cfg.Node.Forward == "" {
			doors = append(doors, d.linkDoor())
		}
	}
	for i := range d.cfg.Peers {
		if _, err := d.cfg.peerSecret(&d.cfg.Peers[i]); err != nil {
			return err
		}
	}
	if m := d.metricsDoor(); m.addr != listenNone {
		doors = append(doors, m)
	}
	for _, door := range doors {
		if door.passed != nil {
			continue
		}
		l, err := door.listen()
		if err != nil {
			return err
		}
		defer l.Close() // all together: two of them may be the same
	}
	return nil
}

// takePassed takes the sockets that systemd has opened, for as many addresses as there are.
func (d *daemon) takePassed() error {
	var err error
	if d.passed, err = takeSockets(); err != nil {
		return err
	}
	if n, of := len(d.passed.portals), len(d.portalAddresses()); n > of {
		return fmt.Errorf("%d sockets were passed for the iSCSI portal, which has %d addresses; list more in portal.further, or pass fewer", n, of)
	}
	if d.passed.metrics != nil && d.cfg.Metrics.Listen == listenNone {
		return errors.New("a socket was passed for page and metrics, which are off; give --metrics or metrics.listen an address, or do not pass it")
	}
	return nil
}

// door is a TCP listener that the configuration asks for: what it is, how to choose another address, the
// address, and the socket that was passed in its place, if any.
type door struct {
	what, how, addr string
	passed          net.Listener
}

// listen returns the passed socket, or a new one.
func (o door) listen() (net.Listener, error) {
	if o.passed != nil {
		return o.passed, nil
	}
	return listenTCP(o.what, o.how, o.addr)
}

// share is listen for who closes the listener before somebody else listens there: a passed socket stays open.
func (o door) share() (net.Listener, error) {
	passed, ok := o.passed.(interface{ File() (*os.File, error) })
	if !ok {
		return o.listen()
	}
	f, err := passed.File()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.what, err)
	}
	defer f.Close()
	return net.FileListener(f)
}

// portalAddresses are those of the portal groups, from 1.
func (d *daemon) portalAddresses() []string {
	p := d.cfg.Portal
	if p.Listen == listenNone {
		return nil
	}
	return append([]string{p.Listen}, p.Further...)
}

func (d *daemon) portalDoors() []door {
	var out []door
	for i, addr := range d.portalAddresses() {
		o := door{what: "the iSCSI portal", how: "--listen, portal.listen or portal.further", addr: addr}
		if i < len(d.passed.portals) {
			o.passed = d.passed.portals[i]
		}
		out = append(out, o)
	}
	return out
}

func (d *daemon) metricsDoor() door {
	return door{"the page and metrics endpoint", "--metrics or metrics.listen", d.cfg.Metrics.Listen, d.passed.metrics}
}
