// Stage 3 of an EXTENDED COPY: its segments, one after the other (which is what STR=1 asks for).
// Each is a hold of the source and a place at the destination, so that a segment whose ranges
// overlap copies as if the whole source was read first. Both units are asked before each request
// whether they would serve it; what they answer is forwarded.

package copymgr

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// copying is what an EXTENDED COPY does. Segments run one after the other (which
// is what STR=1 asks for), each as a hold of the source and a place at the
// destination, so that a segment whose ranges overlap copies as if the whole
// source was read first.
type copying struct {
	list   *copyList
	at     int // the present segment
	from   [1]block.Range
	to     block.Range
	src    *cscd
	dst    *cscd
	placed bool // the present request is the place, or
	synced bool // the flush behind it
	// checked are the groups of the present segment's units that would serve it.
	checked server.Use
}

// next starts the present segment, or ends the copy behind the last.
func (c *copying) next(o *operation) {
	l := c.list
	for ; c.at < len(l.Segments); c.at++ {
		g := &l.Segments[c.at]
		var ok bool
		if c.src, ok = c.resolve(o, g.Src, copylist.SegmentSource); !ok {
			return
		}
		if c.dst, ok = c.resolve(o, g.Dst, copylist.SegmentTarget); !ok {
			return
		}
		src, dst := c.src, c.dst
		from, to, s := ranges(g, src, dst)
		if s.Code != sense.NoSense {
			c.abort(o, s)
			return
		}
		switch { // it waited in the task set of another unit
		case src.far == nil && o.arrived <= src.x.Fenced():
			c.forward(o, fromSource, src, sam.StatusTaskAborted, sense.NoSense)
			return
		case dst.far == nil && o.arrived <= dst.x.Fenced():
			c.forward(o, fromTarget, dst, sam.StatusTaskAborted, sense.NoSense)
			return
		}
		c.placed, c.synced = false, false
		if !c.allowed(o, src, from, fromSource) || !c.allowed(o, dst, to, fromTarget) {
			return
		}
		c.checked = 0
		o.describe(src, counters.XCopySource, from.Bytes())
		o.describe(dst, counters.XCopyTarget, to.Bytes())
		if from.Count == 0 {
			o.result.segments++
			continue
		}
		c.from[0], c.to = from, to
		r := &o.req
		r.Op, r.Origin, r.Flags, r.Data, r.Ref = block.OpHold, block.OriginXCopy, 0, nil, nil
		r.Range, r.Ranges = block.Range{}, c.from[:]
		if src.far != nil {
			o.ask(&question{Step: copysource.Step{Kind: copysource.Hold, Span: from}, g: src.far, then: o.answered})
			return
		}
		o.submit(src.x.Unit())
		return
	}
	o.finish(copyDone, sam.StatusGood, sense.Data{})
}

// resolve returns a CSCD that can be used; otherwise the copy has ended.
func (c *copying) resolve(o *operation, i, field int) (*cscd, bool) {
	d := &c.list.self
	switch {
	case i < len(c.list.cscds):
		d = &c.list.cscds[i]
	case i != copylist.CSCDSelf:
		c.abort(o, sense.InSegment(sense.CopyNotReachable, field))
		return nil, false
	}
	why := d.why
	if why == sense.NoSense && d.far == nil && !d.x.Attached() { // gone since
		why = sense.CopyNotReachable
	}
	if why != sense.NoSense {
		c.abort(o, sense.InList(why, d.offset))
		return nil, false
	}
	return d, true
}

// cscdOf returns the CSCD of a CSCD descriptor ID, nil if there is none.
func (c *copying) cscdOf(id int) *cscd {
	switch {
	case id < len(c.list.cscds):
		return &c.list.cscds[id]
	case id == copylist.CSCDSelf:
		return &c.list.self
	}
	return nil
}

// unitOf returns the I_T_L nexus of a CSCD descriptor ID if that is the unit u.
func (c *copying) unitOf(id int, u *server.Unit) *server.ITL {
	if d := c.cscdOf(id); d != nil && d.x != nil && d.x.Unit() == u {
		return d.x
	}
	return nil
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

// shift is log2 of sectors per logical block.
func (d *cscd) shift() uint8 {
	if d.far != nil {
		return d.far.far().shift
	}
	return d.x.Unit().Shift()
}

func (d *cscd) volume() string {
	if d.far != nil {
		return d.far.far().volume
	}
	return d.x.Unit().Volume()
}

// first returns the sector of an LBA. One whose sectors would overflow is out of range: it stays so.
func (d *cscd) first(lba uint64) uint64 {
	if s := d.shift(); d.far != nil && lba > 1<<60>>s || d.far == nil && lba > d.x.Unit().Blocks() {
		return 1 << 60
	} else {
		return lba << s
	}
}

// ranges works out what the segment covers on both sides. Segments are exact: a
// length that is not whole sectors, or for segment type 02h not whole blocks of
// both, is refused rather than padded.
func ranges(g *copylist.Segment, src, dst *cscd) (from, to block.Range, s sense.Data) {
	be := binary.BigEndian
	from.Start, to.Start = src.first(be.Uint64(g.Raw[segmentFromLBA:])), dst.first(be.Uint64(g.Raw[segmentToLBA:]))
	if g.Raw[0] == copylist.SegmentBlocks {
		unit := src
		if g.Raw[1]&segmentDC != 0 {
			unit = dst
		}
		n := uint64(be.Uint16(g.Raw[blocksCount:])) << unit.shift()
		from.Count, to.Count = n, n
		if n&(1<<src.shift()-1) != 0 || n&(1<<dst.shift()-1) != 0 {
			return from, to, sense.InSegment(sense.CopyInexact, blocksCount)
		}
		return from, to, sense.Data{}
	}
	n := uint64(be.Uint32(g.Raw[offsetBytes:]))
	a, b := uint64(be.Uint16(g.Raw[offsetFrom:])), uint64(be.Uint16(g.Raw[offsetTo:]))
	const mask = block.SectorSize - 1
	switch {
	case n > copylist.MaxSegment:
		return from, to, sense.InSegment(sense.CopyInvalidField, offsetBytes)
	case n&mask != 0:
		return from, to, sense.InSegment(sense.CopyGranularity, offsetBytes)
	case a&mask != 0:
		return from, to, sense.InSegment(sense.CopyGranularity, offsetFrom)
	case b&mask != 0:
		return from, to, sense.InSegment(sense.CopyGranularity, offsetTo)
	}
	from.Start += a >> block.SectorShift
	to.Start += b >> block.SectorShift
	from.Count, to.Count = n>>block.SectorShift, n>>block.SectorShift
	return from, to, sense.Data{}
}

// ended goes on when the source is held, when the destination has become it, or when the medium has that.
func (c *copying) ended(o *operation) {
	r := &o.req
	switch {
	case r.Status != block.OK:
		if !c.placed {
			r.Ref = nil // a hold that failed holds nothing
		}
		if o.cancelled() {
			return
		}
		if c.placed {
			c.failed(o, c.dst, fromTarget)
		} else {
			c.failed(o, c.src, fromSource)
		}
	case o.cancelled():
	case !c.placed:
		if _, ok := c.resolve(o, c.list.Segments[c.at].Dst, copylist.SegmentTarget); !ok {
			return
		}
		c.placed = true
		if c.dst.far != nil {
			c.placeFar(o)
			return
		}
		if status, code := c.dst.x.Refuses(c.to, true); status != sam.StatusGood {
			c.forward(o, fromTarget, c.dst, status, code)
			return
		}
		r.Op, r.Range, r.Ranges, r.RefOffset, r.Priority = block.OpPlace, c.to, nil, 0, c.list.Priority
		o.submit(c.dst.x.Unit())
	case c.dst.far == nil && !c.synced && c.dst.x.Unit().Medium().WriteThrough:
		r.Ref.Release()
		c.synced = true
		o.flush(c.dst.x.Unit())
	default:
		if r.Ref != nil {
			r.Ref.Release()
			r.Ref = nil
		}
		o.result.segments++
		o.result.moved += c.to.Bytes()
		c.at++
		c.part()
		c.next(o)
	}
}

// allowed asks a unit of the present segment whether it would serve it. It returns false when the copy
// has ended, or goes on when another group has answered.
func (c *copying) allowed(o *operation, d *cscd, r block.Range, from byte) bool {
	use, write := server.UsesRead, from == fromTarget
	if write {
		use = server.UsesWrite
	}
	switch {
	case d.far == nil:
		status, code := d.x.Refuses(r, write)
		if status != sam.StatusGood {
			c.forward(o, from, d, status, code)
		}
		return status == sam.StatusGood
	case c.checked&use != 0:
		return true
	}
	o.ask(&question{Step: copysource.Step{Kind: copysource.Check, Span: r, Write: write}, g: d.far, then: func(a copysource.Reply) {
		switch o.said, o.req.Status = a, a.Status; {
		case o.cancelled():
			o.requestDone()
		case a.Status != block.OK:
			c.failed(o, d, from)
		default:
			c.checked |= use
			c.next(o)
		}
	}})
	return false
}

// placeFar has the group of the destination place what is held.
func (c *copying) placeFar(o *operation) {
	ref := o.req.Ref
	if l, ok := ref.(block.Lendable); ok { // held here
		ref = l.Lend(func() {})
	}
	o.ask(&question{Step: copysource.Step{Kind: copysource.Place, Span: c.to, Ref: ref, Priority: c.list.Priority}, g: c.dst.far, then: o.answered})
}

// part lets those units of peers go that no segment needs any more.
func (c *copying) part() {
	for i := range c.list.cscds {
		if g := c.list.cscds[i].far; g != nil && !slices.ContainsFunc(c.list.Segments[c.at:], func(s copylist.Segment) bool { return s.Src == i || s.Dst == i }) {
			g.part()
		}
	}
}

// failed ends the copy because a request to one of its units has.
func (c *copying) failed(o *operation, d *cscd, from byte) {
	if o.where == nil && o.said.Gone {
		c.abort(o, sense.InList(sense.CopyNotReachable, d.offset))
		return
	}
	status, s := o.outcome()
	c.forward(o, from, d, status, s.Code)
}

// Which part of a copy a forwarded status is of.
const (
	fromSource = 1
	fromTarget = 2
)

// forward ends the copy with what one of its units said.
func (c *copying) forward(o *operation, from byte, d *cscd, status byte, why sense.Code) {
	s := sense.InList(sense.CopyDeviceFailure, d.offset)
	if why == sense.LBAOutOfRange {
		// Nothing failed: the list asks for what is not there.
		s.Code = sense.CopyAborted
	}
	s.ForwardedFrom, s.ForwardedStatus, s.Forwarded = from, status, why
	c.abort(o, s)
}

// abort ends the copy in its present segment. s says what is wrong with it.
func (c *copying) abort(o *operation, s sense.Data) {
	s.Specific, s.HasSpecific = uint64(c.at), true
	o.finish(copyError, sam.StatusCheckCondition, s)
}

func (c *copying) uses(_ *operation, u *server.Unit, what server.Scope) (found *server.ITL, how server.Use) {
	segments := c.list.Segments[c.at:]
	if what == server.Step {
		segments = segments[:min(1, len(segments))]
	}
	for i := range segments {
		if x := c.unitOf(segments[i].Src, u); x != nil {
			found, how = x, how|server.UsesRead
		}
		if x := c.unitOf(segments[i].Dst, u); x != nil {
			found, how = x, how|server.UsesWrite
		}
	}
	return found, how
}

func (c *copying) without(_ *operation, x *server.ITL) sense.Code {
	for _, g := range c.list.Segments[c.at:] {
		for _, id := range [...]int{g.Src, g.Dst} {
			if d := c.cscdOf(id); d != nil && d.x == x {
				return sense.LUNNotSupported
			}
		}
	}
	return sense.NoSense
}

func (c *copying) farUnits() []farUnit { return c.list.farUnits() }

func (c *copying) refuse(o *operation, by interruption) {
	is := func(id int) bool {
		d := c.cscdOf(id)
		return d != nil && d.far == by.g && (by.g != nil || c.unitOf(id, by.u) != nil)
	}
	for i := range c.list.Segments[c.at:] {
		g := &c.list.Segments[c.at+i]
		if by.gone && (is(g.Src) || is(g.Dst)) {
			id := g.Src
			if !is(id) {
				id = g.Dst
			}
			c.abort(o, sense.InList(sense.CopyNotReachable, c.cscdOf(id).offset))
			return
		}
		if is(g.Dst) {
			c.forward(o, fromTarget, c.cscdOf(g.Dst), by.status, by.why)
			return
		}
		if is(g.Src) {
			c.forward(o, fromSource, c.cscdOf(g.Src), by.status, by.why)
			return
		}
	}
	c.abort(o, sense.Data{Code: sense.CopyAborted})
}

// total is what the segments copy whose units can be reached.
func (c *copying) total() uint64 {
	there := func(i int) *cscd {
		d := &c.list.self
		if i < len(c.list.cscds) {
			d = &c.list.cscds[i]
		}
		if d.x == nil && d.far == nil {
			return nil
		}
		return d
	}
	var n uint64
	for i := range c.list.Segments {
		g := &c.list.Segments[i]
		src, dst := there(g.Src), there(g.Dst)
		if src == nil || dst == nil {
			continue
		}
		if _, to, s := ranges(g, src, dst); s.Code == sense.NoSense {
			n += to.Bytes()
		}
	}
	return n
}
