package admin

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/metrics"
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
	if _, err := metrics.ParseVolumes(d.cfg.Metrics.Volumes); err != nil {
		return fmt.Errorf("--metrics-volumes or metrics.volumes: %w", err)
	}
	if d.chap, err = d.loadCHAP(); err != nil {
		return err
	}
	if err := d.chap.Check(); err != nil {
		return fmt.Errorf("portal.chap: %w", err)
	}
	for _, door := range d.doors() {
		l, err := listenTCP(door.what, door.how, door.addr)
		if err != nil {
			return err
		}
		defer l.Close() // all together: two of them may be the same
	}
	return nil
}

// door is a TCP listener that the configuration asks for: what it is, how to choose another address, and the address.
type door struct{ what, how, addr string }

func (d *daemon) doors() []door {
	var out []door
	if p := d.cfg.Portal; p.Listen != listenNone {
		for _, addr := range append([]string{p.Listen}, p.Further...) {
			out = append(out, door{"the iSCSI portal", "--listen, portal.listen or portal.further", addr})
		}
	}
	if m := d.cfg.Metrics.Listen; m != listenNone {
		out = append(out, door{"the page and metrics endpoint", "--metrics or metrics.listen", m})
	}
	return out
}
