package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// kind is the type of a message.
type kind byte

// A message is its length in 4 bytes, big endian, its kind, and its body. Behind the body of a command come its Data-Out and
// then a stamp, 8 bytes; behind that of a result its Data-In, a stamp behind each chunk; behind that of the data of a piece its
// bytes. None of it is counted in the length.
const (
	kindHello   kind = 1 + iota // node to owner: who it is
	kindWelcome                 // owner to node: who that is, and the window
	kindRefusal                 // owner to node: why not
	kindOpen                    // node to owner, and so on
	kindReady                   // all nexuses of hosts that are logged in are open
	kindClose
	kindCommand
	kindManage
	kindResult // owner to node
	kindManaged
	kindClosed
	kindReset
	kindPing   // both
	kindBusy   // owner to node, before the welcome: what the former link had brought has no end yet
	kindCredit // owner to node: how much of commands it has read
	kindDenied // owner to node: no such nexus is made
	kindPause  // owner to node: hold what hosts send, the array is about to move
	kindPaused // node to owner: nothing of hosts is under way any more, or why it is
	kindGo     // owner to node: the array stays, what was held goes on

	// Of a link between two arrays, see copywire.go: from the one that copies,
	kindCopyHello // who it is
	kindFind      // units
	kindToken     // put a token to use
	kindCheck     // would the unit serve a read?
	kindHold      // a reference to what the unit has
	kindPiece     // read a part of what is held
	kindRelease   // of what is held
	kindPart      // no step uses the unit any more
	kindLeave     // of a unit
	kindDescribe  // what an offload describes
	kindCount     // an operation has ended
	kindEndToken
	// and from the one that is copied from.
	kindCopyWelcome
	kindFound
	kindRuns   // of what is held, before its answer
	kindAnswer // to check, hold and token
	kindData   // of a piece; behind the body comes what was read
	kindEnded  // a unit has ended its part
)

const (
	headLen  = 5
	stampLen = 8
	maxBody  = 8 << 10 // 64 nodes with names fit
	maxCDB   = 260
	maxSense = 252
	maxNodes = 64 // of a welcome

	// revoked is the stamp of a command that its node has given up when a part of it had been sent: the owner
	// does not execute it. No clock says that.
	revoked uint64 = 0
)

// violation is what a peer may not send: its link ends.
type violation string

func (v violation) Error() string { return "link: the peer broke the protocol: " + string(v) }

func broke(format string, args ...any) error { return violation(fmt.Sprintf(format, args...)) }

// isViolation reports whether a link ended because its peer broke the protocol.
func isViolation(err error) bool {
	var v violation
	return errors.As(err, &v)
}

var be = binary.BigEndian

// appendHead begins a message; appendLength ends it.
func appendHead(b []byte, k kind) []byte { return append(b, 0, 0, 0, 0, byte(k)) }

// appendLength writes the length of the message that begins at byte at.
func appendLength(b []byte, at int) []byte {
	be.PutUint32(b[at:], uint32(len(b)-at-headLen))
	return b
}

func appendString(b []byte, s string) []byte { return append(be.AppendUint16(b, uint16(len(s))), s...) }

// readMessage reads a message into buf, which has room for maxBody bytes.
func readMessage(r io.Reader, buf []byte) (kind, []byte, error) {
	head := buf[:headLen]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	k, n := kind(head[4]), be.Uint32(head)
	if n > maxBody {
		return 0, nil, broke("a message of %d bytes", n)
	}
	_, err := io.ReadFull(r, buf[:n])
	return k, buf[:n], err
}

// cursor reads a body. What is not there reads as zeros, and end says so.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.bad = true
		c.b = nil
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) u8() byte {
	if v := c.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if v := c.take(2); v != nil {
		return be.Uint16(v)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if v := c.take(4); v != nil {
		return be.Uint32(v)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if v := c.take(8); v != nil {
		return be.Uint64(v)
	}
	return 0
}

func (c *cursor) bytes() []byte { return c.take(int(c.u16())) }

// end returns an error where the body was too short or too long.
func (c *cursor) end(k kind) error {
	if c.bad || len(c.b) > 0 {
		return broke("a message of kind %d differs in length from its contents", k)
	}
	return nil
}

// greeting is what both ends say of themselves: hello and welcome.
type greeting struct {
	Node
	process  incarnation
	policy   digest // of who may log in
	standsBy bool   // it takes the array where the owner leaves it
	// Of a welcome alone.
	array           string // which array it is
	epoch           uint64 // of its owner: a later one has a higher one, where there are epochs
	commands, bytes uint32
	targets         byte
	stamp           uint64
	others          []Node // that the owner knows, without the one that it greets
}

func (g *greeting) append(b []byte, k kind) []byte {
	at := len(b)
	b = appendHead(b, k)
	b = be.AppendUint16(b, protocolVersion)
	b = appendNode(b, g.Node)
	b = append(b, g.process[:]...)
	b = append(b, g.policy[:]...)
	b = append(b, bit(g.standsBy))
	if k == kindWelcome {
		b = appendString(b, g.array)
		b = be.AppendUint64(b, g.epoch)
		b = be.AppendUint32(b, g.commands)
		b = be.AppendUint32(b, g.bytes)
		b = append(b, g.targets)
		b = be.AppendUint64(b, g.stamp)
		b = append(b, byte(len(g.others)))
		for _, n := range g.others {
			b = appendNode(b, n)
		}
	}
	return appendLength(b, at)
}

func appendNode(b []byte, n Node) []byte {
	return appendString(append(be.AppendUint16(b, n.ID), byte(n.Ports)), n.Name)
}

func (c *cursor) node() Node {
	return Node{ID: c.u16(), Ports: int(c.u8()), Name: string(c.bytes())}
}

// parseGreeting reads a hello or a welcome.
func parseGreeting(k kind, body []byte) (g greeting, err error) {
	c := cursor{b: body}
	if v := c.u16(); v != protocolVersion && !c.bad {
		return g, fmt.Errorf("the other node speaks version %d of the link, this one %d; run the same program on both", v, protocolVersion)
	}
	g.Node = c.node()
	copy(g.process[:], c.take(len(g.process)))
	copy(g.policy[:], c.take(len(g.policy)))
	g.standsBy = c.u8()&1 != 0
	if k == kindWelcome {
		g.array, g.epoch = string(c.bytes()), c.u64()
		if len(g.array) > maxArray {
			return g, broke("an array whose name has %d bytes", len(g.array))
		}
		g.commands, g.bytes, g.targets, g.stamp = c.u32(), c.u32(), c.u8(), c.u64()
		n := int(c.u8())
		if n > maxNodes {
			return g, broke("a welcome with %d nodes", n)
		}
		for range n {
			g.others = append(g.others, c.node())
		}
		if g.commands == 0 || g.bytes == 0 {
			return g, broke("a window of %d commands and %d bytes", g.commands, g.bytes)
		}
	}
	if err := c.end(k); err != nil {
		return g, err
	}
	for _, node := range append([]Node{g.Node}, g.others...) {
		if err := node.Check(); err != nil {
			return g, broke("%v", err)
		}
	}
	return g, nil
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// opening is the message that makes a nexus.
type opening struct {
	nexus           uint32
	target          byte
	port            uint16 // relative target port identifier
	initiator, name string // of the initiator, and of its port
	// again: its host was logged in at this process before, so that it may have missed what its nexus would have been told.
	again bool
}

func (o *opening) append(b []byte) []byte {
	at := len(b)
	b = appendHead(b, kindOpen)
	b = append(be.AppendUint32(b, o.nexus), o.target)
	b = be.AppendUint16(b, o.port)
	b = append(appendString(appendString(b, o.initiator), o.name), bit(o.again))
	return appendLength(b, at)
}

func parseOpening(body []byte) (o opening, err error) {
	c := cursor{b: body}
	o = opening{nexus: c.u32(), target: c.u8(), port: c.u16(), initiator: string(c.bytes()), name: string(c.bytes()), again: c.u8()&1 != 0}
	return o, c.end(kindOpen)
}

// commandHead is a command without its data.
type commandHead struct {
	nexus, task uint32
	lun, tag    uint64
	attr        byte
	out, in     uint32 // bytes of Data-Out that follow, and of room for Data-In
	cdb         []byte
}

func (h *commandHead) append(b []byte) []byte {
	at := len(b)
	b = appendHead(b, kindCommand)
	b = be.AppendUint32(b, h.nexus)
	b = be.AppendUint32(b, h.task)
	b = be.AppendUint64(b, h.lun)
	b = be.AppendUint64(b, h.tag)
	b = append(b, h.attr)
	b = be.AppendUint32(b, h.out)
	b = be.AppendUint32(b, h.in)
	b = append(be.AppendUint16(b, uint16(len(h.cdb))), h.cdb...)
	return appendLength(b, at)
}

func parseCommand(body []byte) (h commandHead, err error) {
	c := cursor{b: body}
	h = commandHead{nexus: c.u32(), task: c.u32(), lun: c.u64(), tag: c.u64(), attr: c.u8(), out: c.u32(), in: c.u32(), cdb: c.bytes()}
	switch {
	case h.out > maxTransfer || h.in > maxTransfer:
		return h, broke("a command that moves %d and %d bytes", h.out, h.in)
	case len(h.cdb) < 6 || len(h.cdb) > maxCDB:
		return h, broke("a CDB of %d bytes", len(h.cdb))
	}
	return h, c.end(kindCommand)
}

// resultHead is a result without its data.
type resultHead struct {
	task    uint32
	status  byte
	aborted bool
	in, out uint64 // what the command transfers, see scsi.Task
	data    uint32 // bytes of Data-In that follow
	stamp   uint64
	sense   []byte
}

func (h *resultHead) append(b []byte) []byte {
	at := len(b)
	b = appendHead(b, kindResult)
	b = be.AppendUint32(b, h.task)
	b = append(b, h.status, bit(h.aborted))
	b = be.AppendUint64(b, h.in)
	b = be.AppendUint64(b, h.out)
	b = be.AppendUint32(b, h.data)
	b = be.AppendUint64(b, h.stamp)
	b = append(be.AppendUint16(b, uint16(len(h.sense))), h.sense...)
	return appendLength(b, at)
}

func parseResult(body []byte) (h resultHead, err error) {
	c := cursor{b: body}
	h = resultHead{task: c.u32(), status: c.u8(), aborted: c.u8()&1 != 0, in: c.u64(), out: c.u64(), data: c.u32(), stamp: c.u64(), sense: c.bytes()}
	switch {
	case h.data > maxTransfer:
		return h, broke("a result with %d bytes", h.data)
	case len(h.sense) > maxSense:
		return h, broke("%d bytes of sense data", len(h.sense))
	case h.in > 1<<40 || h.out > 1<<40:
		return h, broke("a command that transfers %d and %d bytes", h.in, h.out)
	}
	return h, c.end(kindResult)
}

// management is a task management function.
type management struct {
	nexus, call uint32
	fn          byte
	lun, tag    uint64
	stamp       uint64
}

func (m *management) append(b []byte) []byte {
	at := len(b)
	b = appendHead(b, kindManage)
	b = be.AppendUint32(b, m.nexus)
	b = be.AppendUint32(b, m.call)
	b = append(b, m.fn)
	b = be.AppendUint64(b, m.lun)
	b = be.AppendUint64(b, m.tag)
	b = be.AppendUint64(b, m.stamp)
	return appendLength(b, at)
}

func parseManagement(body []byte) (m management, err error) {
	c := cursor{b: body}
	m = management{nexus: c.u32(), call: c.u32(), fn: c.u8(), lun: c.u64(), tag: c.u64(), stamp: c.u64()}
	return m, c.end(kindManage)
}

// appendNumber makes a message with one number of 32 bits: close, closed, reset and denied.
func appendNumber(b []byte, k kind, n uint32) []byte {
	at := len(b)
	return appendLength(be.AppendUint32(appendHead(b, k), n), at)
}

func parseNumber(k kind, body []byte) (uint32, error) {
	c := cursor{b: body}
	n := c.u32()
	return n, c.end(k)
}

func appendManaged(b []byte, call uint32, response byte) []byte {
	at := len(b)
	return appendLength(append(be.AppendUint32(appendHead(b, kindManaged), call), response), at)
}

func parseManaged(body []byte) (call uint32, response byte, err error) {
	c := cursor{b: body}
	call, response = c.u32(), c.u8()
	return call, response, c.end(kindManaged)
}

func appendPing(b []byte, stamp uint64) []byte { return appendLong(b, kindPing, stamp) }

// appendLong makes a message with one number of 64 bits: ping, credit, and pause, which has its number and a time in
// milliseconds.
func appendLong(b []byte, k kind, n uint64) []byte {
	at := len(b)
	return appendLength(be.AppendUint64(appendHead(b, k), n), at)
}

func parseLong(k kind, body []byte) (uint64, error) {
	c := cursor{b: body}
	n := c.u64()
	return n, c.end(k)
}

// appendPaused says that nothing of hosts is under way any more; why, if it is not empty, that something is.
func appendPaused(b []byte, pause uint32, why string) []byte {
	at := len(b)
	return appendLength(appendString(be.AppendUint32(appendHead(b, kindPaused), pause), why[:min(len(why), 512)]), at)
}

func parsePaused(body []byte) (pause uint32, why string, err error) {
	c := cursor{b: body}
	pause, why = c.u32(), printable(c.bytes())
	return pause, why, c.end(kindPaused)
}

// appendEmpty makes a message without a body: ready, busy and go.
func appendEmpty(b []byte, k kind) []byte { return appendLength(appendHead(b, k), len(b)) }

func appendRefusal(b []byte, why string) []byte {
	at := len(b)
	return appendLength(appendString(appendHead(b, kindRefusal), why[:min(len(why), 512)]), at)
}
