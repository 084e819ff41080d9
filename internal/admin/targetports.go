package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/arraysim/arraysim/internal/scsi"
)

// Port is a target port: one of the portal's addresses, a target port group of its own.
type Port struct {
	Port    int    `json:"port" doc:"Relative target port identifier, from 1."`
	Group   int    `json:"group" doc:"Target port group; the portal group tag, too."`
	Address string `json:"address"`
	Target  string `json:"target" doc:"Of the I/O group that the state is of: a host may change it at one of them."`
	State   string `json:"state" enum:"optimized,non-optimized,standby,unavailable"`
}

// PortChange puts the group of a target port into another asymmetric access state.
type PortChange struct {
	State string `json:"state" enum:"optimized,non-optimized,standby,unavailable"`
	Force bool   `json:"force,omitempty" doc:"Even if no port is left through which hosts reach their LUNs."`
}

// accessStates are the names of the states by which a command sets them (SPC-5 5.17.2).
var accessStates = []string{
	scsi.AccessOptimized:    "optimized",
	scsi.AccessNonOptimized: "non-optimized",
	scsi.AccessStandby:      "standby",
	scsi.AccessUnavailable:  "unavailable",
}

// AccessStates lists the names of asymmetric access states.
func AccessStates() []string { return slices.Clone(accessStates) }

// listPorts lists the ports of the targets of all I/O groups, which have the same ones.
func (d *daemon) listPorts() []Port {
	return each(d, func(g *ioGroup) []Port {
		out := g.listPorts()
		for i := range out {
			if n := out[i].Port - d.cfg.firstPort(); n >= 0 && n < len(d.portAddrs) {
				out[i].Address = d.portAddrs[n].String()
			}
		}
		return out
	})
}

func (g *ioGroup) listPorts() (out []Port) {
	g.exec.Lock()
	defer g.exec.Unlock()
	for _, group := range g.target.Groups() {
		for _, p := range group.Ports {
			out = append(out, Port{Port: int(p), Group: int(group.ID), Target: g.target.Options().Name, State: accessStates[group.State]})
		}
	}
	return out
}

// changePort is an implicit change of a group's state, at the targets of all I/O groups: hosts hear of it by 2A/06.
func (d *daemon) changePort(port int, c PortChange) (Port, error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	state := slices.Index(accessStates, c.State)
	works := func(p Port) bool { return p.State == accessStates[0] || p.State == accessStates[1] }
	for _, g := range d.groups {
		ports := g.listPorts()
		at := slices.IndexFunc(ports, func(p Port) bool { return p.Port == port })
		if at < 0 {
			return Port{}, &refusal{err: fmt.Errorf("port %d does not exist; there are %s", port, portNumbers(ports)), status: http.StatusNotFound}
		}
		others := slices.ContainsFunc(ports, func(p Port) bool { return p.Group != ports[at].Group && works(p) })
		if state > int(scsi.AccessNonOptimized) && !others && !c.Force {
			return Port{}, needForce("port %d is the last through which hosts reach their LUNs; give --force to set it %s anyway", port, c.State)
		}
	}
	var err error
	for _, g := range d.groups {
		g.exec.Lock()
		err = errors.Join(err, g.target.SetAccess(uint16(port), scsi.AccessState(state)))
		g.exec.Unlock()
	}
	ports := d.listPorts()
	return ports[slices.IndexFunc(ports, func(p Port) bool { return p.Port == port })], err
}

// portNumbers lists the ports that there are, for people.
func portNumbers(ports []Port) string {
	var all []string
	for _, p := range ports {
		all = append(all, strconv.Itoa(p.Port))
	}
	return strings.Join(all, ", ")
}

func (d *daemon) portOperations(a huma.API) {
	handle(a, operation(http.MethodGet, "/ports", "list-ports", "List the target ports and their asymmetric access states"), func(*nothing) ([]Port, error) {
		return d.listPorts(), nil
	})
	type portChange struct {
		Port int `path:"port"`
		Body PortChange
	}
	change(d, a, operation(http.MethodPatch, "/ports/{port}", "change-port", "Change a port's asymmetric access state, until the next start"), func(in *portChange) (Port, error) {
		return d.changePort(in.Port, in.Body)
	})
}

// Ports lists the target ports.
func (c *Client) Ports(ctx context.Context) ([]Port, error) {
	return call[[]Port](c, ctx, "GET", "/api/v1/ports", nil)
}

// ChangePort changes a port's asymmetric access state. Without force the error is ErrForce
// when no port would be left by which hosts reach their LUNs.
func (c *Client) ChangePort(ctx context.Context, port int, p PortChange) (Port, error) {
	return call[Port](c, ctx, "PATCH", "/api/v1/ports/"+strconv.Itoa(port), p)
}

// WritePorts prints a table of target ports.
func WritePorts(w io.Writer, list []Port) {
	t := newTable(w)
	row := withTarget(t, list, func(p Port) string { return p.Target })
	row("TARGET", "PORT", "GROUP", "ADDRESS", "STATE")
	for _, p := range list {
		row(p.Target, p.Port, p.Group, p.Address, p.State)
	}
	t.Flush()
}

// addresses returns where listeners listen.
func addresses(ls []net.Listener) []net.Addr {
	var out []net.Addr
	for _, l := range ls {
		out = append(out, l.Addr())
	}
	return out
}
