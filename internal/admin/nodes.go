package admin

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/link"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// NodeConfig describes one of several nodes that show the same array: the one that has it serves hosts,
// and the others forward their hosts' commands to it. See docs/nodes.md.
type NodeConfig struct {
	// ID is the node's number, 1 to 250, different for each node: its target ports are numbered from (ID -
	// 1) * 256 + 1, one for each address of the portal.
	ID int `yaml:"id"`
	// Name is shown to people; the host's name when left out.
	Name string `yaml:"name"`
	// Listen is the address of the link, to which other nodes connect while this one has the array: 127.0.0.1:3262 when left out.
	Listen string `yaml:"listen"`
	// Address is where other nodes reach this one, if it differs from Listen.
	Address string `yaml:"address"`
	// SecretFile has the secret of the link, the same one on all nodes: 16 bytes or more; a relative one begins at the file's
	// folder.
	SecretFile string `yaml:"secret_file"`
	// Forward is the link address of the node that has the array, if this one has none. With store rados
	// and standby the owner is found in the pool; leave Forward out.
	Forward string `yaml:"forward"`

	unsaid bool // neither Listen nor Address was written
}

const defaultLink = "127.0.0.1:3262"

// fill puts defaults in the place of what was left out.
func (n *NodeConfig) fill() {
	n.unsaid = n.Listen == "" && n.Address == ""
	if n.Name == "" {
		n.Name, _ = os.Hostname() // without one it has none
	}
	if n.Listen == "" {
		n.Listen = defaultLink
	}
	if n.Address == "" {
		n.Address = n.Listen
	}
}

// validateNode checks the section node.
func (c *Config) validateNode() error {
	n := c.Node
	if n == nil {
		return nil
	}
	if err := c.self().Check(); err != nil {
		return c.src.at("node", "%w", err)
	}
	for _, a := range []struct{ path, addr string }{{"node.listen", n.Listen}, {"node.address", n.Address}, {"node.forward", n.Forward}} {
		if _, _, err := net.SplitHostPort(a.addr); err != nil && a.addr != "" {
			return c.src.at(a.path, "%q is not a valid address; write host:port, such as %s", a.addr, defaultLink)
		}
	}
	host, _, _ := net.SplitHostPort(n.Address)
	ip := net.ParseIP(host)
	switch {
	case n.SecretFile == "":
		return c.src.at("node", "node has no secret_file; create one with  openssl rand -hex 32, the same on all nodes")
	case c.Portal.Listen == listenNone:
		return c.src.at("portal.listen", "a node without a portal has nothing to show; give portal.listen an address")
	case c.Portal.Sessions > link.MaxNexuses:
		return c.src.at("portal.sessions", "a node may have at most %d sessions at the owner of the array; write that or less", link.MaxNexuses)
	case n.Forward == "" && c.Store == storeRados && n.unsaid: // a lock in a pool is read on other machines
		return c.src.at("node", "the pool lists this node's address for other nodes, and none was given; write node.listen, with an address that leads here")
	case n.Forward == "" && c.Store == storeRados && (host == "" || ip != nil && ip.IsUnspecified()):
		return c.src.at("node", "other nodes cannot reach %q; write node.address, with an address that leads here", n.Address)
	case n.Forward == "":
		return nil
	case c.Store == storeRados:
		return c.src.at("node.forward", "with store: rados the owner is found in the pool; leave forward out, and write rados.standby: true")
	case len(c.Pools) > 0 || len(c.Volumes) > 0:
		return c.src.at("node.forward", "a node that forwards has no array; leave pools and volumes out")
	case c.TCMU:
		return c.src.at("node.forward", "a node that forwards has no TCMU front end; leave tcmu out")
	}
	return nil
}

// self describes this node to others. Preconditions: there is a section node.
func (c *Config) self() link.Node {
	id := c.Node.ID
	if id < 0 || id > link.MaxNode {
		id = 0 // none; Check says so
	}
	return link.Node{ID: uint16(id), Name: c.Node.Name, Ports: 1 + len(c.Portal.Further)}
}

// firstPort is the relative target port identifier of the first portal.
func (c *Config) firstPort() int {
	if c.Node == nil {
		return 1
	}
	return int(link.FirstPort(uint16(c.Node.ID)))
}

// linkAddress is where other nodes find this one's link; "": it has none.
func (c *Config) linkAddress() string {
	if c.Node == nil {
		return ""
	}
	return c.Node.Address
}

// linkSecret reads the secret of the link.
func (c *Config) linkSecret() ([]byte, error) {
	b, err := iscsi.ReadSecret("the secret of the link", c.Node.SecretFile)
	if err == nil && len(b) < link.MinSecret {
		err = fmt.Errorf("the secret of the link in %s has %d bytes, which is too short; create one with  openssl rand -hex 32", c.Node.SecretFile, len(b))
	}
	return b, err
}

// linkDoor is where other nodes come.
func (d *daemon) linkDoor() door {
	return door{what: "the link of this node", how: "node.listen", addr: d.cfg.Node.Listen}
}

// openLink lets other nodes carry the commands of their hosts here.
func (d *daemon) openLink() error {
	if d.cfg.Node == nil {
		return nil
	}
	b, err := d.cfg.linkSecret()
	if err != nil {
		return err
	}
	cfg := link.ServerConfig{Self: d.cfg.self(), Secret: b, Allowed: d.cfg.Portal.Allow, Policy: d.loginPolicy(), Log: d.log}
	if cfg.Array, cfg.Epoch, err = d.arrayName(); err != nil {
		return err
	}
	if cfg.Copies, err = d.cfg.copySecrets(); err != nil {
		return err
	}
	if d.forward != nil {
		cfg.Known = d.forward.client.Known()
	}
	for _, g := range d.groups {
		cfg.Targets = append(cfg.Targets, g.target)
	}
	s, err := link.NewServer(cfg)
	if err != nil {
		return err
	}
	l, err := d.linkDoor().listen()
	if err != nil {
		return err
	}
	d.links = s
	d.background.Go(func() {
		if err := s.Serve(l); !errors.Is(err, link.ErrClosed) {
			d.fail(fmt.Errorf("the link ended: %w", err))
		}
	})
	return nil
}

// loginPolicy says who may log in at this node's portal, and where: names alone.
func (d *daemon) loginPolicy() string {
	words := append([]string{d.cfg.Portal.Target, "allow"}, slices.Sorted(slices.Values(foldNames(d.cfg.Portal.Allow)))...)
	if d.chap != nil {
		words = append(words, "chap", d.chap.User)
		for _, name := range slices.Sorted(maps.Keys(d.chap.Initiators)) {
			words = append(words, name, d.chap.Initiators[name].User)
		}
	}
	return strings.Join(words, "\n")
}

// arrayName tells the array from all others, and its owner from former ones, for nodes that forward.
func (d *daemon) arrayName() (id string, epoch uint64, err error) {
	if s, ok := d.data.store.(*rados.Store); ok {
		epoch, err = strconv.ParseUint(s.Epoch(), 16, 64)
		return s.ID(), epoch, err
	}
	if id, err = d.data.name(); id == "" { // an array in memory ends with its process
		id = randomName()
	}
	return id, 0, err
}

// NodeStatus describes one of the nodes that show the same array, as far as the one that is asked knows.
type NodeStatus struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// State is "owner", "forwarding", or "away" for a node that is not linked.
	State string `json:"state" enum:"owner,forwarding,away"`
	Ports []int  `json:"ports" doc:"Relative target port identifiers; each is a target port group, too."`
	// StandsBy tells that the node takes the array where its owner leaves it, as far as the owner knows.
	StandsBy bool `json:"stands_by,omitempty"`
	// Address is that of the other end of the link, where there is one.
	Address string `json:"address,omitempty"`
	// Sessions are those of hosts at the node, Commands what it has forwarded.
	Sessions int    `json:"sessions,omitempty"`
	Commands uint64 `json:"commands,omitempty"`
}

// The states of a node.
const (
	NodeOwner      = "owner"
	NodeForwarding = "forwarding"
	NodeAway       = "away"
)

func nodeStatus(n link.Node, state string) NodeStatus {
	s := NodeStatus{ID: int(n.ID), Name: n.Name, State: state}
	for _, p := range n.AccessPorts(0) {
		s.Ports = append(s.Ports, int(p.ID))
	}
	return s
}

// nodes describes the nodes to who asks the owner.
func (d *daemon) nodes() []NodeStatus {
	if d.links == nil {
		return nil
	}
	out := []NodeStatus{nodeStatus(d.cfg.self(), NodeOwner)}
	for _, s := range d.portal.Sessions() {
		if s.Target != "" {
			out[0].Sessions++
		}
	}
	for _, p := range d.links.Peers() {
		s := nodeStatus(p.Node, NodeAway)
		if p.Linked {
			s.State = NodeForwarding
		}
		s.Address, s.Sessions, s.Commands, s.StandsBy = p.Address, p.Sessions, p.Commands, p.StandsBy
		out = append(out, s)
	}
	return out
}
