package link

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// link makes a link and serves it to its end.
func (c *Client) link(addr string) error {
	return c.dialing.dial(addr, func(raw net.Conn) error {
		if now := c.cfg.Address(); now != addr { // Leave found no link to end
			return fmt.Errorf("the owner is now at %q, no longer at %s", now, addr)
		}
		return c.serve(tls.Client(raw, c.tls), raw, addr)
	})
}

// clientLink is one link of a client. It belongs to the reader, but for what the writer has.
type clientLink struct {
	c         *Client
	conn, raw net.Conn
	br        *bufio.Reader
	buf       []byte
	places    [][]byte
	quit      chan struct{}

	tick   *time.Ticker  // a sign of life is due; of the writer, as are sent and spare
	sent   uint64        // bytes of commands
	spare  []item        // memory for what goes ahead
	credit atomic.Uint64 // so many the owner has read
	more   chan struct{} // it has read more
}

// serve greets the owner, and carries messages until the link ends.
func (c *Client) serve(conn, raw net.Conn, addr string) error {
	l := &clientLink{c: c, conn: conn, raw: raw, buf: make([]byte, maxBody), quit: make(chan struct{}), more: make(chan struct{}, 1)}
	g, err := l.greet()
	if err != nil {
		return err
	}
	raw.SetDeadline(time.Time{})
	l.br = bufio.NewReaderSize(timely{conn, raw, c.times.silent}, chunkLen)
	c.stamp.Store(g.stamp)
	c.connects++
	c.exec.Lock()
	c.linkUp(&g, addr)
	c.exec.Unlock()
	log := c.cfg.Log.With("node", g.Name, "id", g.ID, "address", addr)
	log.Info("link: commands are forwarded")
	c.goOn()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := l.write(); err != nil && !isGone(err) {
			raw.Close()
		}
	}()
	err = l.read()
	raw.Close()
	close(l.quit)
	<-written
	c.exec.Lock()
	c.linkDown()
	c.exec.Unlock()
	log.Warn("link: broken; commands are answered as in a transition", "reason", err)
	return err
}

// isGone tells of an error of a write whether the owner has closed the link. The reader finds that, too, behind what the owner
// has sent before: an owner that ends has answered first.
func isGone(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

// greet says who this node is, and reads who the owner is.
func (l *clientLink) greet() (g greeting, err error) {
	c := l.c
	hello := greeting{Node: c.cfg.Self, process: c.process, policy: c.policy, standsBy: c.cfg.StandsBy}
	if _, err := l.conn.Write(hello.append(nil, kindHello)); err != nil {
		return g, err
	}
	k, body, err := readMessage(l.conn, l.buf)
	for err == nil && k == kindBusy {
		c.exec.Lock()
		c.hold()
		c.exec.Unlock()
		l.raw.SetDeadline(time.Now().Add(handshakeTime))
		k, body, err = readMessage(l.conn, l.buf)
	}
	if err = welcomed(kindWelcome, k, body, err); err != nil {
		return g, err
	}
	if g, err = parseGreeting(k, body); err != nil {
		return g, err
	}
	if int(g.targets) != c.cfg.Targets {
		return g, fmt.Errorf("node %s has %d I/O groups, and this node expects %d; write io_groups: %d", g.Name, g.targets, c.cfg.Targets, g.targets)
	}
	switch {
	case c.array != "" && g.array != c.array:
		return g, fmt.Errorf("node %s has the array %q, but this node has shown %q to its hosts; restart this node if that is correct", g.Name, printable([]byte(g.array)), c.array)
	case g.epoch < c.epoch:
		return g, fmt.Errorf("node %s had the array in epoch %d, but another node has had it since, in epoch %d", g.Name, g.epoch, c.epoch)
	}
	c.array, c.epoch = g.array, g.epoch
	if g.policy != c.policy {
		c.cfg.Log.Warn(otherPolicy, "node", g.Name, "id", g.ID)
	}
	return g, nil
}

// hold has commands that may have been carried out wait for so long from now on. Preconditions: the executor is held.
func (c *Client) hold() {
	if c.limbo != nil {
		c.limbo.Stop()
		c.limbo = c.exec.At(c.exec.Now()+int64(c.times.hold), func() { c.endLimbo(false) })
	}
}

// printable is a peer's text for a log.
func printable(b []byte) string {
	return string(slices.DeleteFunc(slices.Clone(b), func(x byte) bool { return x < ' ' || x > '~' }))
}

// linkUp begins to forward: the owner has ended what was left of the former link. Preconditions: the executor is held.
func (c *Client) linkUp(g *greeting, addr string) {
	c.endLimbo(true)
	c.moving.Store(false)
	c.present = g.process
	c.owner, c.others = Peer{Node: g.Node, Address: addr}, g.others
	i := slices.IndexFunc(c.peers, func(p *nodeState) bool { return p.ID == g.ID })
	if i < 0 {
		i = len(c.peers)
		c.peers = append(c.peers, &nodeState{Node: g.Node})
	}
	c.state = c.peers[i]
	c.state.connects.Add(1)
	// Within what this side has for it, whatever the owner offers.
	n := min(int(g.commands), windowCommands)
	if len(c.flights) != n {
		c.flights = make([]flight, n)
	}
	c.free, c.bytes, c.window = c.free[:0], 0, int64(g.bytes)
	for slot := range n {
		c.free = append(c.free, uint32(n-1-slot))
	}
	c.up = true
	c.forgetBequests()
	for _, m := range c.nexuses {
		m.forget()
		if !m.closed {
			c.openAt(m)
		}
	}
	c.send(item{kind: kindReady})
	for _, id := range slices.Sorted(maps.Keys(c.calls)) { // they were asked meanwhile
		c.send(item{kind: kindManage, n: c.calls[id].n, call: c.calls[id]})
	}
}

// linkDown ends what was not sent in full, and has the rest wait until nobody can carry it out any more. Preconditions: the
// executor is held, nobody reads or writes.
func (c *Client) linkDown() {
	c.up = false
	for _, n := range c.nexuses {
		for n.queue.len() > 0 {
			c.answer(n, *n.queue.first())
			n.queue.pop()
		}
		n.turning, n.host.waits, n.host.hungry = false, ring[*nexus]{}, false
	}
	clear(c.out)
	clear(c.ahead)
	c.turns, c.hungry, c.out, c.ahead = ring[*nexus]{}, ring[*hostWindow]{}, c.out[:0], c.ahead[:0]
	c.pressed.Store(false)
	for slot := range c.flights {
		if f := &c.flights[slot]; f.task != nil && !f.written.Load() {
			n := f.n
			c.answer(n, c.land(uint32(slot)))
		}
	}
	waits := len(c.calls) > 0
	for slot := range c.flights {
		waits = waits || c.flights[slot].task != nil
	}
	for _, n := range c.nexuses {
		n.opened = false
		waits = waits || n.closed
	}
	if waits {
		c.limbo = c.exec.At(c.exec.Now()+int64(c.times.hold), func() { c.endLimbo(false) })
	}
}

// endLimbo ends the commands whose link has broken: nobody carries them out any more. Functions go to the owner that has
// welcomed this node, if one has. Preconditions: the executor is held.
func (c *Client) endLimbo(welcomed bool) {
	if c.limbo == nil {
		return
	}
	c.limbo.Stop()
	c.limbo = nil
	for slot := range c.flights {
		if c.flights[slot].task == nil {
			continue
		}
		t := c.land(uint32(slot))
		check(t, senseInterrupted)
		c.state.broken.Add(1)
		c.endLater(t)
	}
	for _, k := range c.calls {
		if !welcomed || k.fn == scsi.AbortTask || k.n.closed {
			c.answered(k)
			c.callLater(k.fail)
		}
	}
	for _, n := range slices.Clone(c.nexuses) {
		if n.closed {
			c.forget(n)
			c.callLater(n.closing)
		}
	}
}

// read takes what the owner sends until the link ends.
func (l *clientLink) read() error {
	c := l.c
	for {
		k, body, err := readMessage(l.br, l.buf)
		if err != nil {
			return err
		}
		switch k {
		case kindPing:
			var stamp uint64
			if stamp, err = parseLong(k, body); err == nil {
				c.stamp.Store(stamp)
			}
		case kindCredit:
			var taken uint64
			if taken, err = parseLong(k, body); err == nil {
				l.credit.Store(taken)
				select {
				case l.more <- struct{}{}:
				default:
				}
			}
		case kindResult:
			err = l.result(body)
		case kindPause:
			var n uint64
			if n, err = parseLong(k, body); err == nil {
				err = l.pause(uint32(n>>32), time.Duration(uint32(n))*time.Millisecond)
			}
		case kindGo:
			if len(body) > 0 {
				err = broke("a message of kind %d with a body", k)
			} else {
				c.moving.Store(false)
				c.goOn()
			}
		case kindManaged, kindClosed, kindReset, kindDenied:
			c.exec.Lock()
			err = c.told(k, body)
			c.exec.Unlock()
		default:
			err = broke("a message of kind %d", k)
		}
		if err != nil {
			return err
		}
	}
}

// told takes a message about a nexus or a function. Preconditions: the executor is held.
func (c *Client) told(k kind, body []byte) error {
	if k == kindManaged {
		id, response, err := parseManaged(body)
		call := c.calls[id]
		if err != nil || call == nil {
			return errors.Join(err, broke("an answer to task management function %d", id))
		}
		c.answered(call)
		call.done(scsi.TMFResponse(response))
		return nil
	}
	id, err := parseNumber(k, body)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(c.nexuses, func(n *nexus) bool { return n.id == id })
	switch {
	case (k == kindReset || k == kindDenied) && i < 0: // it was closed meanwhile
		return nil
	case i < 0, k == kindClosed && c.nexuses[i].closing == nil:
		return broke("a message of kind %d for nexus %d", k, id)
	}
	n := c.nexuses[i]
	if k == kindDenied {
		c.cfg.Log.Warn("link: the owner refuses an initiator; its session ends", "initiator", n.initiator)
	}
	if k != kindClosed {
		if n.onReset != nil && !n.closed {
			n.onReset()
		}
		return nil
	}
	c.forget(n)
	n.closing()
	return nil
}

// result ends a command.
func (l *clientLink) result(body []byte) error {
	c := l.c
	h, err := parseResult(body)
	if err != nil {
		return err
	}
	sense := slices.Clone(h.sense) // the message's memory is used again
	c.stamp.Store(h.stamp)
	c.exec.Lock()
	t, err := c.flying(&h)
	if err != nil || h.data == 0 {
		if err == nil {
			c.finish(&h, t, sense)
		}
		c.exec.Unlock()
		return err
	}
	l.places = l.places[:0]
	for left := int(h.data); left > 0; left -= chunkLen {
		n := min(left, chunkLen)
		l.places = append(l.places, t.Bufs.Get(n)[:n])
	}
	c.exec.Unlock()
	for _, p := range l.places {
		if _, err := io.ReadFull(l.br, p); err != nil {
			return err
		}
		if _, err := io.ReadFull(l.br, l.buf[:stampLen]); err != nil {
			return err
		}
		c.stamp.Store(be.Uint64(l.buf))
	}
	c.exec.Lock()
	t.DataIn = append(t.DataIn[:0], l.places...)
	clear(l.places)
	c.finish(&h, t, sense)
	c.exec.Unlock()
	return nil
}

// flying finds the command of a result. Preconditions: the executor is held.
func (c *Client) flying(h *resultHead) (*scsi.Task, error) {
	if int(h.task) >= len(c.flights) {
		return nil, broke("a result for command %d of %d", h.task, len(c.flights))
	}
	f := &c.flights[h.task]
	switch {
	case f.task == nil || !f.written.Load():
		return nil, broke("a result for a command that was not sent")
	case int(h.data) > f.task.MaxIn:
		return nil, broke("%d bytes for a command that takes %d", h.data, f.task.MaxIn)
	}
	return f.task, nil
}

// finish hands a command back to the portal. Preconditions: the executor is held.
func (c *Client) finish(h *resultHead, t *scsi.Task, sense []byte) {
	n := c.flights[h.task].n
	c.land(h.task)
	t.Status, t.Aborted, t.InTotal, t.OutTotal = h.status, h.aborted, int(h.in), int(h.out)
	if len(sense) > 0 {
		t.Sense = sense
	}
	c.state.commands.Add(1)
	c.state.read.Add(uint64(h.data))
	c.state.written.Add(uint64(min(block.VecLen(t.DataOut), t.OutTotal)))
	n.note(t)
	c.pump()
	t.Done(t)
}
