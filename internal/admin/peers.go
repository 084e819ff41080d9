package admin

import (
	"fmt"
	"net"
	"strings"
	"unicode"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/link"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
)

// PeerConfig describes another array, for copies of hosts from one to the other. See docs/nodes.md.
type PeerConfig struct {
	// Name is for people.
	Name string `yaml:"name"`
	// Nodes are the addresses of the links of the other array's nodes: copies to this array may read from it. Left out, they
	// may not.
	Nodes []string `yaml:"nodes"`
	// Lend has copies to the other array read from this one, on behalf of initiators that have sessions here. This node
	// needs a section node for that.
	Lend bool `yaml:"lend"`
	// SecretFile has the secret of the two arrays, the same one at both: 16 bytes or more; a relative one begins at the
	// file's folder.
	SecretFile string `yaml:"secret_file"`
}

const (
	maxPeers    = 16
	maxPeerName = 64
)

// validatePeers checks the section peers.
func (c *Config) validatePeers() error {
	if len(c.Peers) > maxPeers {
		return c.src.at("peers", "there are %d peers; an array has at most %d", len(c.Peers), maxPeers)
	}
	seen := map[string]bool{}
	for i, p := range c.Peers {
		at := fmt.Sprintf("peers[%d]", i)
		switch {
		case p.Name == "" || len(p.Name) > maxPeerName || strings.ContainsFunc(p.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
			return c.src.at(at, "%q is not a name for a peer; give it one of 1 to %d characters", p.Name, maxPeerName)
		case seen[p.Name]:
			return c.src.at(at+".name", "peer %s appears twice; remove one", p.Name)
		case p.SecretFile == "":
			return c.src.at(at, "peer %s has no secret_file; create one with  openssl rand -hex 32, the same at both arrays", p.Name)
		case len(p.Nodes) == 0 && !p.Lend:
			return c.src.at(at, "nothing is copied from peer %s or to it; add nodes, or lend: true", p.Name)
		case p.Lend && c.Node == nil:
			return c.src.at(at+".lend", "peer %s comes to the link of this node, and there is none; add node", p.Name)
		case c.Node != nil && c.Node.Forward != "":
			return c.src.at(at, "a node that forwards has no array; leave peers out, and write them at the node that has the array")
		}
		seen[p.Name] = true
		for k, a := range p.Nodes {
			if _, _, err := net.SplitHostPort(a); err != nil {
				return c.src.at(fmt.Sprintf("%s.nodes[%d]", at, k), "%q is not a valid address; write host:port, such as %s", a, defaultLink)
			}
		}
	}
	return nil
}

// peerSecret reads the secret of a peer.
func (c *Config) peerSecret(p *PeerConfig) ([]byte, error) {
	b, err := iscsi.ReadSecret("the secret of peer "+p.Name, p.SecretFile)
	if err == nil && len(b) < link.MinSecret {
		err = fmt.Errorf("the secret of peer %s in %s has %d bytes, which is too short; create one with  openssl rand -hex 32", p.Name, p.SecretFile, len(b))
	}
	return b, err
}

// copySecrets are those of the peers that copy from this array.
func (c *Config) copySecrets() (out []link.CopySecret, err error) {
	for i := range c.Peers {
		if p := &c.Peers[i]; p.Lend {
			b, err := c.peerSecret(p)
			if err != nil {
				return nil, err
			}
			out = append(out, link.CopySecret{Name: p.Name, Secret: b})
		}
	}
	return out, nil
}

// linkPeers has copies to this array find units and tokens of others. No target has a command yet.
func (d *daemon) linkPeers() error {
	for i := range d.cfg.Peers {
		p := &d.cfg.Peers[i]
		if len(p.Nodes) == 0 {
			continue
		}
		b, err := d.cfg.peerSecret(p)
		if err != nil {
			return err
		}
		self := d.cfg.Portal.Target
		if d.cfg.Node != nil {
			self = d.cfg.Node.Name
		}
		c, err := link.NewCopyClient(link.CopyClientConfig{Name: p.Name, Self: self, Nodes: p.Nodes, Secret: b, Log: d.log})
		if err != nil {
			return err
		}
		d.peers = append(d.peers, c)
		for _, g := range d.groups {
			g.exec.Lock()
			scsi.LinkCopies(g.target, c)
			g.exec.Unlock()
		}
	}
	return nil
}

// leavePeers ends the links to other arrays, and the copies over them. It may be called several times.
func (d *daemon) leavePeers() {
	for _, c := range d.peers {
		c.Stop()
	}
}

// PeerStatus describes the link of copies to another array, or from it.
type PeerStatus struct {
	Name string `json:"name"`
	// Role is "source" where copies to this array read from the other one, and "destination" the other way round.
	Role   string `json:"role" enum:"source,destination"`
	Linked bool   `json:"linked"`
	// Node and Address are of the other end, or of the last one that there was.
	Node    string `json:"node,omitempty"`
	Address string `json:"address,omitempty"`
	Links   uint64 `json:"links" doc:"Links that there were."`
	Bytes   Size   `json:"bytes" doc:"Data that was read from the source."`
}

// The roles of a peer.
const (
	PeerSource      = "source"
	PeerDestination = "destination"
)

// peerStatus describes the links of copies.
func (d *daemon) peerStatus() (out []PeerStatus) {
	add := func(role string, p link.CopyPeer) {
		out = append(out, PeerStatus{Name: p.Name, Role: role, Linked: p.Linked, Node: p.Node, Address: p.Address, Links: p.Links, Bytes: Size(p.Bytes)})
	}
	for _, c := range d.peers {
		add(PeerSource, c.Peer())
	}
	if d.links != nil {
		for _, p := range d.links.CopyPeers() {
			add(PeerDestination, p)
		}
	}
	return out
}

// peerCounters counts what copies from other arrays, and to them, have read.
type peerCounters struct{ d *daemon }

// Emit implements metrics.Source.
func (c peerCounters) Emit(e metrics.Emitter) {
	for _, p := range c.d.peerStatus() {
		up := 0.0
		if p.Linked {
			up = 1
		}
		e.Value(metrics.PeerUp, up, p.Name, p.Role)
		e.Value(metrics.PeerLinks, float64(p.Links), p.Name, p.Role)
		e.Value(metrics.PeerBytes, float64(p.Bytes), p.Name, p.Role)
	}
}
