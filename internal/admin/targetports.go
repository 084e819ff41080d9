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

	"github.com/danielgtaylor/huma/v2"

	"github.com/arraysim/arraysim/internal/scsi"
)

// Port is a target port: one of the portal's addresses, a target port group of its own.
type Port struct {
	Port    int    `json:"port" doc:"Relative target port identifier, from 1."`
	Group   int    `json:"group" doc:"Target port group; the portal group tag, too."`
	Address string `json:"address"`
	State   string `json:"state" enum:"optimized,non-optimized,standby,unavailable"`
}

// PortChange puts the group of a target port into another asymmetric access state.
type PortChange struct {
	State string `json:"state" enum:"optimized,non-optimized,standby,unavailable"`
	Force bool   `json:"force,omitempty" doc:"Even if no port is left by which hosts reach their LUNs."`
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

func (d *daemon) listPorts() []Port {
	first := d.groups[0] // the targets of all I/O groups have the same ports, in the same states
	first.exec.Lock()
	defer first.exec.Unlock()
	out := []Port{}
	for _, g := range first.target.Groups() {
		for _, p := range g.Ports {
			x := Port{Port: int(p), Group: int(g.ID), State: accessStates[g.State]}
			if i := int(p) - 1; i < len(d.portAddrs) {
				x.Address = d.portAddrs[i].String()
			}
			out = append(out, x)
		}
	}
	return out
}

// changePort is an implicit change of a group's state: hosts hear of it by 2A/06.
func (d *daemon) changePort(port int, c PortChange) (Port, error) {
	state := slices.Index(accessStates, c.State)
	ports := d.listPorts()
	at := slices.IndexFunc(ports, func(p Port) bool { return p.Port == port })
	if at < 0 {
		return Port{}, &refusal{err: fmt.Errorf("port %d does not exist; there are 1 to %d", port, len(ports)), status: http.StatusNotFound}
	}
	works := func(p Port) bool { return p.State == accessStates[0] || p.State == accessStates[1] }
	others := slices.ContainsFunc(ports, func(p Port) bool { return p.Group != ports[at].Group && works(p) })
	if state > int(scsi.AccessNonOptimized) && !others && !c.Force {
		return Port{}, needForce("port %d is the last by which hosts reach their LUNs; give --force to set it %s anyway", port, c.State)
	}
	var err error
	for _, g := range d.groups {
		g.exec.Lock()
		err = errors.Join(err, g.target.SetAccess(uint16(ports[at].Group), scsi.AccessState(state)))
		g.exec.Unlock()
	}
	ports[at].State = c.State
	return ports[at], err
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
	t.row("PORT", "GROUP", "ADDRESS", "STATE")
	for _, p := range list {
		t.row(p.Port, p.Group, p.Address, p.State)
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
