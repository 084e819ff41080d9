package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
)

// heldCopy is what RECEIVE COPY RESULTS tells of one copy.
type heldCopy struct {
	id       byte
	running  bool
	failed   bool
	segments uint16 // processed
	bytes    uint64 // transferred
	status   byte   // of EXTENDED COPY
	sense    []byte
}

func (x *itl) dropCopies() { x.copies = nil }

func (x *itl) copyWith(id byte) *heldCopy {
	for _, h := range x.copies {
		if h.id == id {
			return h
		}
	}
	return nil
}

func (x *itl) forget(h *heldCopy) {
	for i, g := range x.copies {
		if g == h {
			x.copies = append(x.copies[:i:i], x.copies[i+1:]...)
			return
		}
	}
}

// hold makes room for a new result: of those that are over, the oldest goes.
func (x *itl) hold(h *heldCopy) {
	if len(x.copies) >= maxHeld {
		for _, g := range x.copies {
			if !g.running {
				x.forget(g)
				break
			}
		}
	}
	x.copies = append(x.copies, h)
}

// copying is the state of an EXTENDED COPY. Segments run one after the other, each
// as a hold of the source and a place at the destination, so that a segment whose
// ranges overlap copies as if the whole source was read first.
type copying struct {
	list   *copyList
	at     int // the present segment
	from   [1]block.Range
	to     block.Range
	where  *itl // where the present request is
	placed bool // the present request is the place
	result *heldCopy
	hold   bool
	roles  []copyRole
}

// copyRole is a unit's part in a copy, for the counters.
type copyRole struct {
	x    *itl
	kind opKind
}

// doExtendedCopy serves EXTENDED COPY(LID1).
func doExtendedCopy(t *Task) {
	st := &t.state
	const longest = copyHeader + maxDescriptorBytes + cscdLen + segmentOffsetLen
	n := binary.BigEndian.Uint32(t.CDB[10:])
	if n == 0 {
		t.good()
		return
	}
	// A list that is too long is still read as far as its header needs.
	b, ok := t.list(int(min(n, longest)))
	if !ok {
		return
	}
	t.OutTotal = int(n)
	l, s := parseCopyList(st.n, b)
	if s.code != noSense {
		t.fault(s)
		return
	}
	x := st.itl
	c := &copying{list: l, result: &heldCopy{id: l.id}}
	if l.usage != usageNone {
		if h := x.copyWith(l.id); h != nil {
			if h.running {
				t.fault(inList(listIDInUse, copyListID))
				return
			}
			x.forget(h)
		}
		c.hold = true
	}
	if st.n.t.copies >= maxCopies {
		t.end(StatusBusy)
		return
	}
	st.n.t.copies++
	if c.hold {
		c.result.running = true
		x.hold(c.result)
	}
	st.multi = c
	c.segment(t)
}

// end releases what the copy holds, keeps its result, and books it.
func (c *copying) end(t *Task) {
	st := &t.state
	tg := st.n.t
	tg.copies--
	if r := st.req.Ref; r != nil {
		st.req.Ref = nil
		r.Release()
	}
	if c.hold {
		c.result.running = false
		c.result.failed = t.Status != StatusGood || st.aborted
		c.result.status = t.Status
		c.result.sense = append([]byte(nil), t.Sense...)
		if c.list.usage == usageDiscard {
			st.itl.forget(c.result)
		}
	}
	if len(c.roles) == 0 {
		return
	}
	st.booked = true
	o := outcomeOf(t.Status)
	if st.aborted {
		o = 1
	}
	now := tg.exec.Now()
	for _, r := range c.roles {
		r.x.stats.Commands[r.kind][o]++
		r.x.u.stats.Duration[r.kind].Observe(now - st.start)
	}
}

// book notes a unit's part in the copy, and what it describes.
func (c *copying) book(x *itl, kind opKind, bytes uint64) {
	x.u.stats.Described[kind] += bytes
	for _, r := range c.roles {
		if r.x == x && r.kind == kind {
			return
		}
	}
	c.roles = append(c.roles, copyRole{x, kind})
}

// device is where the present request is.
func (c *copying) device() *Unit { return c.where.u }

// abort ends the copy in its present segment. s says what is wrong with it.
func (c *copying) abort(t *Task, s sense) {
	s.specific, s.hasSpecific = uint64(c.at), true
	t.fault(s)
}

// inSegment points to a byte of the present segment descriptor.
func inSegment(c code, offset int) sense {
	return sense{code: c, sks: [3]byte{sksv | sksSD, byte(offset >> 8), byte(offset)}}
}

// Which part of a copy a forwarded status is of.
const (
	fromSource = 1
	fromTarget = 2
)

// segment starts the present segment, or ends the command behind the last.
func (c *copying) segment(t *Task) {
	l := c.list
	for ; c.at < len(l.segments); c.at++ {
		g := &l.segments[c.at]
		src, ok := c.resolve(t, g.src, segmentSource)
		if !ok {
			return
		}
		dst, ok := c.resolve(t, g.dst, segmentTarget)
		if !ok {
			return
		}
		from, to, s := g.ranges(src.x.u, dst.x.u)
		if s.code != noSense {
			c.abort(t, s)
			return
		}
		if status, code := src.x.refuses(from, false); status != StatusGood {
			c.forward(t, fromSource, src, status, code)
			return
		}
		if status, code := dst.x.refuses(to, true); status != StatusGood {
			c.forward(t, fromTarget, dst, status, code)
			return
		}
		c.book(src.x, opXCopySource, from.Bytes())
		c.book(dst.x, opXCopyTarget, to.Bytes())
		if from.Count == 0 {
			c.result.segments++
			continue
		}
		c.from[0], c.to = from, to
		c.where, c.placed = src.x, false
		r := &t.state.req
		r.Op, r.Origin, r.Flags, r.Data, r.Ref = block.OpHold, block.OriginXCopy, 0, nil, nil
		r.Range, r.Ranges = block.Range{}, c.from[:]
		t.submitTo(src.x.u, copyHeld)
		return
	}
	t.good()
}

// resolve returns a CSCD that can be used; otherwise the copy has ended.
func (c *copying) resolve(t *Task, i, field int) (*cscd, bool) {
	if i >= len(c.list.cscds) {
		c.abort(t, inSegment(copyNotReachable, field))
		return nil, false
	}
	d := &c.list.cscds[i]
	why := d.why
	if why == noSense && (d.x.u.removed || d.x.n.luns[d.x.lun] != d.x) { // gone since
		why = copyNotReachable
	}
	if why != noSense {
		c.abort(t, inList(why, d.offset))
		return nil, false
	}
	return d, true
}

// Fields of segment descriptors.
const (
	segmentDC      = 0x02 // byte 1: the length counts blocks of the destination
	blocksCount    = 10
	offsetBytes    = 8
	segmentFromLBA = 12
	segmentToLBA   = 20
	offsetFrom     = 28
	offsetTo       = 30
)

// ranges works out what the segment covers on both sides. Segments are exact: a
// length that is not whole sectors, or for segment type 02h not whole blocks of
// both, is refused rather than padded.
func (g *segment) ranges(src, dst *Unit) (from, to block.Range, s sense) {
	be := binary.BigEndian
	srcLBA, dstLBA := be.Uint64(g.raw[segmentFromLBA:]), be.Uint64(g.raw[segmentToLBA:])
	// An LBA whose sectors would overflow is out of range: it stays so.
	first := func(lba uint64, u *Unit) uint64 {
		if lba > u.blocks {
			return 1 << 60
		}
		return lba << u.shift
	}
	from.Start, to.Start = first(srcLBA, src), first(dstLBA, dst)
	if g.raw[0] == segmentBlocks {
		unit := src
		if g.raw[1]&segmentDC != 0 {
			unit = dst
		}
		n := uint64(be.Uint16(g.raw[blocksCount:])) << unit.shift
		from.Count, to.Count = n, n
		if n&(1<<src.shift-1) != 0 || n&(1<<dst.shift-1) != 0 {
			return from, to, inSegment(copyInexact, blocksCount)
		}
		return from, to, sense{}
	}
	n := uint64(be.Uint32(g.raw[offsetBytes:]))
	a, b := uint64(be.Uint16(g.raw[offsetFrom:])), uint64(be.Uint16(g.raw[offsetTo:]))
	const mask = block.SectorSize - 1
	switch {
	case n > maxSegment:
		return from, to, inSegment(copyInvalidField, offsetBytes)
	case n&mask != 0:
		return from, to, inSegment(copyGranularity, offsetBytes)
	case a&mask != 0:
		return from, to, inSegment(copyGranularity, offsetFrom)
	case b&mask != 0:
		return from, to, inSegment(copyGranularity, offsetTo)
	}
	from.Start += a >> block.SectorShift
	to.Start += b >> block.SectorShift
	from.Count, to.Count = n>>block.SectorShift, n>>block.SectorShift
	return from, to, sense{}
}

// refuses is what the unit would answer to a READ or WRITE of the range from this
// nexus: GOOD means that it would do it.
func (x *itl) refuses(r block.Range, write bool) (byte, code) {
	u := x.u
	switch {
	case u.holder != nil && u.holder != x, u.pr.excludes(x.n, !write):
		return StatusReservationConflict, noSense
	case u.notReady() != noSense:
		return StatusCheckCondition, u.notReady()
	case !r.Within(u.blocks << u.shift):
		return StatusCheckCondition, lbaOutOfRange
	case write && u.writeProtected():
		return StatusCheckCondition, writeProtected
	}
	return StatusGood, noSense
}

// forward ends the copy with what one of its units said.
func (c *copying) forward(t *Task, from byte, d *cscd, status byte, why code) {
	s := inList(copyDeviceFailure, d.offset)
	if why == lbaOutOfRange {
		// Nothing failed: the list asks for what is not there.
		s.code = copyAborted
	}
	s.from, s.fwdStatus, s.fwd = from, status, why
	c.abort(t, s)
}

// copyHeld goes on when the source is held: the destination becomes it.
func copyHeld(t *Task) {
	st := &t.state
	c := st.multi.(*copying)
	g := &c.list.segments[c.at]
	dst, ok := c.resolve(t, g.dst, segmentTarget)
	if !ok {
		return
	}
	c.where, c.placed = dst.x, true
	r := &st.req
	r.Op, r.Range, r.Ranges, r.RefOffset = block.OpPlace, c.to, nil, 0
	t.submitTo(dst.x.u, copyPlaced)
}

func copyPlaced(t *Task) {
	st := &t.state
	c := st.multi.(*copying)
	ref := st.req.Ref
	st.req.Ref = nil
	ref.Release()
	c.result.segments++
	c.result.bytes += c.to.Bytes()
	c.at++
	c.segment(t)
}

// failed ends the copy because a hold or a place failed.
func (c *copying) failed(t *Task) {
	st := &t.state
	g := &c.list.segments[c.at]
	status, s := c.where.u.outcome(&st.req)
	if c.placed {
		c.forward(t, fromTarget, &c.list.cscds[g.dst], status, s.code)
		return
	}
	st.req.Ref = nil // a hold that failed holds nothing
	c.forward(t, fromSource, &c.list.cscds[g.src], status, s.code)
}
