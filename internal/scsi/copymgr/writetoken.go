// Handler of WRITE USING TOKEN, stages 1 and 3 of a copy by token: it places ranges of what the
// token holds at the destination, one request a range. A token is in use until its operation is
// over.

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

// writing is what a WRITE USING TOKEN does. It has one token, or none for zeros.
type writing struct {
	token  *copysource.Token
	far    farToken // of a peer
	ref    block.Ref
	left   uint64 // sectors of the token behind the offset, at first
	offset uint64 // sectors into the token
	ranges []block.Range
	at     int
	synced bool // the present request is the flush of a range
	del    bool
	status byte // when all goes well
}

// WriteToken serves WRITE USING TOKEN.
func WriteToken(t *server.Task) {
	be := binary.BigEndian
	b, ranges, ok := tokenList(t, writeHead)
	if !ok {
		return
	}
	w := &writing{ranges: ranges, del: b[tokenFlags]&writeDelete != 0, status: copyDone}
	offset := be.Uint64(b[writeOffset:])
	token := b[writeToken : writeToken+copysource.TokenLen]
	kind := be.Uint32(token)
	switch {
	case be.Uint16(token[copysource.TokenLengthAt:]) != copysource.TokenLength:
		t.Fault(sense.InList(sense.TokenBadLength, writeToken+copysource.TokenLengthAt))
		return
	case kind == copylist.RODBlockZero:
	case kind != copylist.RODPointInTime:
		t.Fault(sense.InList(sense.TokenType, writeToken))
		return
	default:
		m := managerOf(t)
		k, why := m.read.Token(t.Nexus(), token)
		immed := b[tokenFlags]&tokenImmed != 0
		if why == sense.TokenUnknown && m.asksPeers() {
			host := t.Nexus().HostID()
			if !m.search(host) {
				t.End(sam.StatusBusy)
				return
			}
			pause := t.Pause()
			m.findToken(t.Nexus(), token, func(k farToken) {
				m.searched(host)
				switch {
				case pause.Over(t):
					k.giveBack()
				case k.g == nil:
					t.Fault(sense.InList(k.why, writeToken))
				default:
					w.far, w.ref = k, k.ref
					w.begin(t, k.sectors, k.g.far().shift, offset, immed)
				}
			})
			return
		}
		if why != sense.NoSense {
			t.Fault(sense.InList(why, writeToken))
			return
		}
		w.token, w.ref = k, k.Ref
		k.Use()
		w.begin(t, k.Sectors, k.Shift, offset, immed)
		return
	}
	w.start(t, b[tokenFlags]&tokenImmed != 0)
}

// begin goes on with the token, of so many sectors, which is in use.
func (w *writing) begin(t *server.Task, sectors uint64, shift uint8, offset uint64, immed bool) {
	switch {
	case shift != t.Unit().Shift():
		w.end()
		t.Fault(sense.InList(sense.TokenNoCause, writeToken)) // blocks of another length
	case offset >= sectors>>shift:
		w.end()
		t.Fault(sense.InList(sense.InvalidFieldInList, writeOffset))
	default:
		w.offset = offset << shift
		w.left = sectors - w.offset
		w.fit()
		w.start(t, immed)
	}
}

func (w *writing) start(t *server.Task, immed bool) {
	t.Unit().Describe(counters.ODXTarget, total(w.ranges))
	if !operate(t, w, binary.BigEndian.Uint32(t.CDB[tokenListID:]), true, false, immed, tokenListID) {
		w.end()
	}
}

// fit cuts the ranges to what the token has behind the offset.
func (w *writing) fit() {
	left := w.left
	for i := range w.ranges {
		r := &w.ranges[i]
		if r.Count > left {
			w.status = copyResidual
			r.Count = left
		}
		left -= r.Count
	}
	w.ranges = slices.DeleteFunc(w.ranges, func(r block.Range) bool { return r.Count == 0 })
	if left > 0 || w.offset > 0 {
		w.status = max(w.status, copyPartROD)
	}
}

// end lets the token go.
func (w *writing) end() {
	w.ref = nil
	if k := w.token; k != nil {
		w.token = nil
		k.Done()
	}
	w.far.giveBack()
	w.far = farToken{}
}

func (w *writing) next(o *operation) {
	// What it refers to has changed, before or while it was read: what was written so far may be anything.
	if w.token != nil && w.token.Changed() {
		w.token.End(sense.TokenRevoked)
		w.refuse(o, interruption{status: sam.StatusCheckCondition, why: sense.TokenRevoked})
		return
	}
	if w.at == len(w.ranges) {
		if w.del && w.token != nil {
			w.token.End(sense.TokenDeleted)
		}
		if w.del {
			w.far.end(sense.TokenDeleted)
		}
		w.end()
		o.finish(w.status, sam.StatusGood, sense.Data{})
		return
	}
	x := o.x
	to := w.ranges[w.at]
	if !x.Attached() {
		w.end()
		o.finish(copyTerminated, sam.StatusCheckCondition, sense.Data{Code: sense.CopyAborted})
		return
	}
	if status, why := x.Refuses(to, true); status != sam.StatusGood {
		w.end()
		o.finish(copyError, status, sense.Data{Code: why})
		return
	}
	w.synced = false
	r := &o.req
	r.Origin, r.Range, r.Data = block.OriginODX, to, nil
	if w.ref == nil {
		r.Op = block.OpWriteSame
	} else {
		// SPC-4: what no EXTENDED COPY asked for has priority 1.
		r.Op, r.Ref, r.RefOffset, r.Priority = block.OpPlace, w.ref, w.offset, 1
	}
	o.submit(x.Unit())
}

func (w *writing) ended(o *operation) {
	r := &o.req
	r.Ref = nil // the token's own
	if o.cancelled() {
		w.end()
		return
	}
	if r.Status != block.OK {
		w.end()
		status, s := o.where.Outcome(r)
		o.finish(copyError, status, s)
		return
	}
	if !w.synced && o.x.Unit().Medium().WriteThrough {
		w.synced = true
		o.flush(o.x.Unit())
		return
	}
	done := w.ranges[w.at]
	w.offset += done.Count
	o.result.segments++
	o.result.moved += done.Bytes()
	o.result.blocks += done.Count >> o.x.Unit().Shift()
	w.at++
	w.next(o)
}

func (w *writing) uses(o *operation, u *server.Unit, _ server.Scope) (x *server.ITL, how server.Use) {
	if o.x.Unit() == u {
		x, how = o.x, server.UsesWrite
	}
	if w.token != nil && w.token.Unit == u {
		how |= server.UsesData
	}
	return x, how
}

// without: who sees the token's unit no longer does not know the token any more.
func (w *writing) without(o *operation, x *server.ITL) sense.Code {
	if w.token != nil && w.token.Unit == x.Unit() && !o.x.Nexus().Sees(x.Unit()) {
		return sense.TokenUnknown
	}
	return sense.NoSense
}

func (w *writing) refuse(o *operation, c interruption) {
	w.end()
	s := sense.Data{Code: c.why}
	if c.why == sense.TokenRevoked || c.why == sense.TokenUnknown {
		s = sense.InList(c.why, writeToken)
	}
	o.finish(copyError, c.status, s)
}

func (w *writing) farUnits() []farUnit {
	if w.far.g == nil {
		return nil
	}
	return []farUnit{w.far.g}
}
