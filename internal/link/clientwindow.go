package link

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// hostWindow is what the sessions of one initiator have of the window together: as much as they leave to other initiators
// (block.Left), however many they are.
//
// A host that is alone has half for that reason. What it has in the window nobody can take back before it ends, which it does not
// where a unit hangs, so what those who come need has to be free before they come. With half, each host whose commands hang leaves
// half of what it found: two of them 32 MiB and 256 commands of the largest window. If one alone had 7/8, two would leave 2 MiB
// and 16 commands. Half of that window is 64 MiB, which covers 64 ms of a link of 1 GB/s.
//
// The first command of a host goes however large it is, or it never would where its host may have less. So two hosts with one
// command of maxTransfer each fill the largest window, and others wait for one of these to end.
type hostWindow struct {
	nexuses  int
	commands int
	bytes    int64 // of them
	// waits are those that have a command, and wait until one of the initiator's or of another host that waits ends. There is one
	// of its own then: whoever has none may have one.
	waits  ring[*nexus]
	hungry bool // it is among the client's hosts that wait
}

// hostOf returns what the sessions of an initiator have together.
func (c *Client) hostOf(initiator string) *hostWindow {
	h := c.hosts[initiator]
	if h == nil {
		if c.hosts == nil {
			c.hosts = map[string]*hostWindow{}
		}
		h = &hostWindow{}
		c.hosts[initiator] = h
	}
	return h
}

// leaves reports whether an initiator leaves enough of the window to others when it has one more command.
func (c *Client) leaves(h *hostWindow, cost int64) bool {
	return h.commands == 0 || block.Left(h.commands, len(c.flights)-len(c.free), len(c.flights)) > 0 &&
		int64(block.Left(int(h.bytes), int(c.bytes), int(c.window))) >= cost
}

// wake gives a turn to one of the nexuses that wait for the share of their initiator. It gives one to the next when it has sent a
// command.
func (h *hostWindow) wake() {
	for h.waits.len() > 0 {
		n := *h.waits.first()
		h.waits.pop()
		n.turning = false
		if n.turn(); n.turning {
			return
		}
	}
}

// feed gives a turn to each host that waits for its share. What another host has had in the window is part of it: who waited
// for its own commands alone would wait for one that takes long, beside a window that is empty by now. A command that ends may
// have left room for many, and not for the first of them.
func (c *Client) feed() {
	for range c.hungry.len() {
		h := *c.hungry.first()
		c.hungry.pop()
		h.hungry = false
		h.wake()
	}
}

// turn has the nexus wait for its turn.
func (n *nexus) turn() {
	if !n.turning && n.queue.len() > 0 {
		n.turning = true
		n.c.turns.push(n)
	}
}

// share is how much of the window a nexus may have: all have the same, but a few commands at least.
func (c *Client) share() (commands int, bytes int64) {
	all := max(len(c.nexuses), 1)
	return max(len(c.flights)/all, leastShare), max(c.window/int64(all), c.window/leastShare)
}

// pump gives the writer what the window has room for, of all sessions in turn. One that has its share waits until a command of
// its own ends, one whose host has its share until a command of any host ends. Preconditions: the executor is held.
func (c *Client) pump() {
	commands, bytes := c.share()
	sent := false
	for c.turns.len() > 0 && len(c.free) > 0 {
		n := *c.turns.first()
		if n.queue.len() == 0 || n.flying >= commands {
			c.pass(n)
			continue
		}
		t := *n.queue.first()
		cost := int64(t.MaxIn) + int64(block.VecLen(t.DataOut))
		switch {
		case n.bytes > 0 && n.bytes+cost > bytes:
			c.pass(n)
			continue
		case !c.leaves(n.host, cost):
			c.turns.pop()
			n.host.waits.push(n)
			if h := n.host; !h.hungry {
				h.hungry = true
				c.hungry.push(h)
			}
			continue
		}
		if c.bytes > 0 && c.bytes+cost > c.window {
			break // it keeps its turn
		}
		n.queue.pop()
		c.place(n, t, cost)
		c.pass(n)
		n.turn()
		sent = true
	}
	if sent {
		c.signal()
	}
}

// pass ends the turn of the nexus that is first, and gives one to another that waits for the share of the same host.
func (c *Client) pass(n *nexus) {
	c.turns.pop()
	n.turning = false
	n.host.wake()
}

// place gives a command its place in the window, and to the writer. Preconditions: the executor is held.
func (c *Client) place(n *nexus, t *scsi.Task, cost int64) {
	slot := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.bytes += cost
	n.bytes += cost
	n.flying++
	n.host.bytes += cost
	n.host.commands++
	f := &c.flights[slot]
	f.task, f.n, f.cost = t, n, cost
	f.written.Store(false)
	f.gaveUp.Store(false)
	c.placed++
	f.turn.Store(c.placed)
	c.out = append(c.out, item{kind: kindCommand, n: n, task: t, slot: slot, turn: c.placed})
}

// land ends a command's place in the window, and returns it.
func (c *Client) land(slot uint32) *scsi.Task {
	f := &c.flights[slot]
	t := f.task
	n := f.n
	c.bytes -= f.cost
	n.bytes -= f.cost
	n.flying--
	n.host.bytes -= f.cost
	n.host.commands--
	n.turn()
	n.host.wake()
	c.feed()
	f.task, f.n = nil, nil
	c.free = append(c.free, slot)
	return t
}
