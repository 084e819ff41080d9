package link

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// open makes the nexus of a session at the other node.
func (l *serverLink) open(body []byte) error {
	o, err := parseOpening(body)
	first := FirstPort(l.node.ID)
	switch {
	case err != nil:
		return err
	case l.nexuses[o.nexus] != nil:
		return broke("nexus %d is open", o.nexus)
	case len(l.nexuses) >= 2*MaxNexuses: // those that are denied come and go
		return broke("more than %d nexuses", 2*MaxNexuses)
	case int(o.target) >= len(l.s.cfg.Targets):
		return broke("target %d of %d", o.target, len(l.s.cfg.Targets))
	case o.port < first || int(o.port) >= int(first)+l.node.Ports:
		return broke("target port %d does not belong to node %d", o.port, l.node.ID)
	case o.initiator == "" || o.name == "" || len(o.initiator) > 256 || len(o.name) > 288:
		return broke("an initiator whose names have %d and %d bytes", len(o.initiator), len(o.name))
	}
	t := l.s.cfg.Targets[o.target]
	n := &ownedNexus{id: o.nexus, exec: t.Exec()}
	l.nexuses[n.id] = n
	if why := l.denial(&o); why != nil {
		l.s.cfg.Log.Warn("link: a session was denied", "node", l.node.Name, "id", l.node.ID, "error", why)
		l.enqueue(sending{kind: kindDenied, number: n.id})
		return nil
	}
	n.exec.Lock()
	n.nexus = t.OpenNexus(o.initiator, o.name, o.port)
	n.nexus.OnReset(func() { l.reset(n) })
	if o.again {
		n.nexus.Missed()
	}
	n.exec.Unlock()
	l.sessions.Add(1)
	return nil
}

// reset tells the node that a session ends by a cold reset. One word about it waits at a time, however many resets there are: a
// node that asks for them need not read. It is called with the executor of the nexus held.
func (l *serverLink) reset(n *ownedNexus) {
	l.mu.Lock()
	waits := n.resetting
	n.resetting = true
	l.mu.Unlock()
	if !waits {
		l.enqueue(sending{kind: kindReset, number: n.id, nexus: n})
	}
}

// denial says why an initiator is not let in: what goes for the owner's own portal goes for those of others.
func (l *serverLink) denial(o *opening) error {
	folded := iscsi.FoldName(o.initiator)
	isid, ok := strings.CutPrefix(o.name, o.initiator+",i,0x") // RFC 7143 4.2.7
	switch err := iscsi.CheckName(o.initiator); {
	case err != nil:
		return err
	case !ok || len(isid) != 12 || strings.Trim(isid, "0123456789abcdef") != "":
		return fmt.Errorf("%q is not a port of %q", o.name, o.initiator)
	case l.s.allowed != nil && !l.s.allowed[folded]:
		return fmt.Errorf("%q may not log in, but the other node allows it: make portal.allow the same on both", o.initiator)
	case l.sessions.Load() >= MaxNexuses:
		return fmt.Errorf("a node has at most %d sessions here", MaxNexuses)
	}
	return nil
}

func (l *serverLink) closeNexus(body []byte) error {
	id, err := parseNumber(kindClose, body)
	if err != nil {
		return err
	}
	n := l.nexuses[id]
	if n == nil {
		return broke("nexus %d is not open", id)
	}
	l.mu.Lock()
	l.closing++
	over := l.closing > MaxNexuses
	l.mu.Unlock()
	if over {
		return broke("more than %d nexuses are being closed", MaxNexuses)
	}
	delete(l.nexuses, id)
	if n.nexus == nil {
		l.enqueue(sending{kind: kindClosed, number: id})
		return nil
	}
	l.sessions.Add(-1)
	l.ends.Add(1)
	n.exec.Lock()
	n.nexus.Close(func() {
		l.enqueue(sending{kind: kindClosed, number: id})
		l.ends.Done()
	})
	n.exec.Unlock()
	return nil
}
