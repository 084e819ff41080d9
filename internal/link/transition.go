package link

import (
	"bytes"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
)

// What a node says while no owner is linked (SPC-5 5.17.2.6): the state of its target port group is transitioning. INQUIRY,
// REPORT LUNS and REPORT TARGET PORT GROUPS are answered with what the owner said last, and all else is told to try again.

// Sense data in fixed format: a node does not know D_SENSE of the units.
var (
	// NOT READY, LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION.
	senseTransition = [18]byte{0: 0x70, 2: 0x02, 7: 10, 12: 0x04, 13: 0x0A}
	// ABORTED COMMAND, LOGICAL UNIT COMMUNICATION FAILURE.
	senseInterrupted  = [18]byte{0: 0x70, 2: 0x0B, 7: 10, 12: 0x08, 13: 0x00}
	senseInvalidField = [18]byte{0: 0x70, 2: 0x05, 7: 10, 12: 0x24, 13: 0x00}
)

// describedTransition is senseTransition in descriptor format (SPC-5 4.4.2).
var describedTransition = [8]byte{0: 0x72, 1: 0x02, 2: 0x04, 3: 0x0A}

// check makes CHECK CONDITION of a task. The sense data is shared, and nobody writes to it.
func check(t *scsi.Task, sense [18]byte) {
	t.Status, t.Sense, t.DataIn, t.InTotal, t.OutTotal = scsi.StatusCheckCondition, slices.Clone(sense[:]), nil, 0, 0
}

// Operation codes, and the service action of REPORT TARGET PORT GROUPS.
const (
	opRequestSense  = 0x03
	opInquiry       = 0x12
	opReportLUNs    = 0xA0
	opMaintenanceIn = 0xA3
	saReportGroups  = 0x0A
)

// answer ends a task that comes while no owner is linked. Preconditions: the executor is held.
func (c *Client) answer(n *nexus, t *scsi.Task) {
	c.local.Add(1)
	q, length, ok := question(t)
	switch said := n.known[q]; {
	case t.CDB[0] == opRequestSense && t.CDB[1]&1 != 0: // DESC (SPC-5 6.39)
		reply(t, describedTransition[:], int(t.CDB[4]))
	case t.CDB[0] == opRequestSense:
		reply(t, senseTransition[:], int(t.CDB[4]))
	case !ok || said.data == nil || !said.whole && length > len(said.data):
		check(t, senseTransition)
	case q.op == opMaintenanceIn:
		reply(t, transitioning(said.data), length)
	default:
		reply(t, said.data, length)
	}
	c.endLater(t)
}

// reply ends a task well, with parameter data of which the host wants so much.
func reply(t *scsi.Task, data []byte, length int) {
	data = data[:min(len(data), length)]
	t.InTotal = len(data)
	if k := min(len(data), max(t.MaxIn, 0)); k > 0 {
		buf := t.Bufs.Get(k)[:k]
		copy(buf, data)
		t.DataIn = append(t.DataIn[:0], buf)
	}
}

// asked is a question of which the answer is kept.
type asked struct {
	lun       uint64
	op        byte
	how, page byte // EVPD or the format, and the page or what is to be reported
}

// question says what a command asks, and how much the host wants of the answer.
func question(t *scsi.Task) (q asked, length int, ok bool) {
	q = asked{lun: t.LUN, op: t.CDB[0]}
	cdb := t.CDB
	switch {
	case q.op == opInquiry && len(cdb) >= 6:
		q.how, q.page, length = cdb[1]&1, cdb[2], int(be.Uint16(cdb[3:]))
	case q.op == opReportLUNs && len(cdb) >= 12:
		q.page, length = cdb[2], int(min(be.Uint32(cdb[6:]), maxKept))
	case q.op == opMaintenanceIn && len(cdb) >= 12 && cdb[1]&0x1F == saReportGroups:
		q.how, length = cdb[1]>>5, int(min(be.Uint32(cdb[6:]), maxKept))
	default:
		return q, 0, false
	}
	return q, length, true
}

// memory is what the owner said last on a nexus, by what it was asked. It belongs to the client's executor.
type memory map[asked]said

// said is an answer: all of it, or as much as the host wanted to have.
type said struct {
	data  []byte
	whole bool
}

// Bounds of the memories of all nexuses.
const (
	maxQuestions = 8192 // an initiator that is alone has half
	maxKept      = 4096 // bytes of an answer; one that is longer is not kept
)

// note keeps the answer to a command that has ended, if it is one to be kept. Where the host hears that what it was told may
// have changed, all is forgotten: who answered from memory then would show a unit as another one.
func (n *nexus) note(t *scsi.Task) {
	if t.Status == scsi.StatusCheckCondition {
		if changes(t.Sense) {
			n.forget()
		}
		return
	}
	if op := t.CDB[0]; op != opInquiry && op != opReportLUNs && op != opMaintenanceIn || t.Status != scsi.StatusGood || t.Aborted || n.closed {
		return
	}
	q, length, ok := question(t)
	if !ok || t.InTotal > maxKept || len(t.DataIn) != 1 || len(t.DataIn[0]) < t.InTotal {
		return
	}
	data, had := t.DataIn[0], n.known[q]
	whole := len(data) < length
	switch {
	case bytes.HasPrefix(had.data, data) && (had.whole || !whole): // the same, or as much of it as the host wanted
	case had.data == nil && n.c.room(n.initiator) < 1:
	default:
		if n.known == nil {
			n.known = memory{}
		}
		if had.data == nil {
			n.c.kept.Add(n.initiator, 1)
		}
		n.known[q] = said{slices.Clone(data), whole}
	}
}

// room is how many more answers may be kept of an initiator: as many as it leaves to others.
func (c *Client) room(initiator string) int { return c.kept.Left(initiator, maxQuestions) }

// hostPort is a host at a target port, to which units are the same whichever session it asks by.
type hostPort struct {
	target    byte
	port      uint16
	initiator string
}

func (n *nexus) hostPort() hostPort { return hostPort{n.target, n.port, n.initiator} }

// bequeath keeps the memory of a nexus that is closed while no owner is linked: a host that logs in again finds its units.
func (n *nexus) bequeath() {
	c := n.c
	if len(n.known) == 0 {
		return
	}
	if c.bequests == nil {
		c.bequests = map[hostPort]memory{}
	}
	c.kept.Add(n.initiator, -len(c.bequests[n.hostPort()]))
	c.bequests[n.hostPort()], n.known = n.known, nil
}

// inherit has a nexus that is opened while no owner is linked know what the owner has said last to the same host: nothing has
// changed since. Where there is no room for that it knows nothing.
func (n *nexus) inherit() {
	c := n.c
	m := c.bequests[n.hostPort()]
	for _, o := range c.nexuses {
		if o != n && o.hostPort() == n.hostPort() && len(o.known) > len(m) {
			m = o.known
		}
	}
	if len(m) <= c.room(n.initiator) {
		n.known = maps.Clone(m)
		c.kept.Add(n.initiator, len(m))
	}
}

// forgetBequests ends what inherit hands out: there is an owner, who may say otherwise.
func (c *Client) forgetBequests() {
	for of, m := range c.bequests {
		c.kept.Add(of.initiator, -len(m))
	}
	c.bequests = nil
}

// forget ends the memory.
func (n *nexus) forget() {
	n.c.kept.Add(n.initiator, -len(n.known))
	n.known = nil
}

// changes reports whether sense data is a unit attention condition behind which units may be others: 29/xx, 2A/xx, 3F/0E.
func changes(sense []byte) bool {
	const fixed, descriptors, unitAttention = 0x70, 0x72, 6
	switch {
	case len(sense) >= 14 && sense[0]&0x7E == fixed:
		return sense[2]&0x0F == unitAttention && changed(sense[12], sense[13])
	case len(sense) >= 4 && sense[0]&0x7E == descriptors:
		return sense[1]&0x0F == unitAttention && changed(sense[2], sense[3])
	}
	return false
}

func changed(code, qualifier byte) bool {
	return code == 0x29 || code == 0x2A || code == 0x3F && qualifier == 0x0E
}

// transitioning makes parameter data of REPORT TARGET PORT GROUPS say that all groups are in transition.
func transitioning(data []byte) []byte {
	const head, extended, inTransition, implicitly = 4, 8, 0x0F, 2
	b := slices.Clone(data)
	at := head
	if len(b) > head && b[head]>>4&7 == 1 {
		at = extended
	}
	for at+8 <= len(b) {
		b[at] = b[at]&0xF0 | inTransition
		b[at+5] = implicitly
		at += 8 + 4*int(b[at+7])
	}
	return b
}
