package sim

import (
	"errors"
	"fmt"
)

// NodeSpec is a node that shows an array's volumes and does not own it: it forwards what its hosts send to the owner.
type NodeSpec struct {
	Name string `yaml:"name"`
	// Of its link to the owner, which all of its hosts share: bytes a second each way, 0 is infinite; what
	// a command takes; one way.
	Bandwidth Size     `yaml:"bandwidth"`
	Command   Duration `yaml:"command"`
	Latency   Duration `yaml:"latency"`
}

// link carries commands and data both ways.
type link struct {
	bandwidth uint64 // bytes a second each way; 0 is infinite
	command   int64  // what each command takes, nanoseconds
	latency   int64  // one way
	out, in   int64  // when each direction is free
}

// frameBytes is the payload of a Fibre Channel frame.
const frameBytes = 2048

// send carries so many bytes from the host to the array, or back, and returns when
// they are there. Frames of different exchanges interleave, so that what is one frame
// does not wait behind the data of others.
func (l *link) send(busy *int64, now, fixed int64, bytes uint64) int64 {
	if l.bandwidth != 0 {
		fixed += int64(bytes * 1e9 / l.bandwidth)
	}
	if bytes <= frameBytes {
		return now + fixed + l.latency
	}
	*busy = max(*busy, now) + fixed
	return *busy + l.latency
}

// addNodes makes the links of the nodes that forward to an array.
func (y *system) addNodes() error {
	y.nodes = map[string]*link{}
	for _, n := range y.spec.Nodes {
		switch {
		case n.Name == "":
			return errors.New("a node has no name; add one")
		case y.nodes[n.Name] != nil:
			return fmt.Errorf("there are two nodes %q; rename one", n.Name)
		}
		y.nodes[n.Name] = &link{bandwidth: uint64(n.Bandwidth), command: int64(n.Command), latency: int64(n.Latency)}
	}
	return nil
}

// findNode has the paths of a host go over a node.
func (h *host) findNode() error {
	if h.spec.Node == "" {
		return nil
	}
	found := false
	for _, p := range h.paths {
		p.via = p.sys.nodes[h.spec.Node]
		found = found || p.via != nil
	}
	if !found {
		return fmt.Errorf("no array has a node %q; add it to the nodes of one", h.spec.Node)
	}
	return nil
}
