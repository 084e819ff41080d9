// Handler of WRITE USING TOKEN, stages 1 and 3 of a copy by token: it places ranges of what the token
// holds at the destination, one request a range. A token is in use until its operation is over.

package copymgr

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// writing is what a WRITE USING TOKEN does. token is nil for zeros.
type writing struct {
	token  *rodToken
	offset uint64 // sectors into the token
	ranges []block.Range
	at     int
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
	token := b[writeToken : writeToken+tokenLen]
	kind := be.Uint32(token)
	switch {
	case be.Uint16(token[tokenLengthAt:]) != rodTokenLength:
		t.Fault(sense.InList(sense.TokenBadLength, writeToken+tokenLengthAt))
		return
	case kind == rodBlockZero:
	case kind != rodPointInTime:
		t.Fault(sense.InList(sense.TokenType, writeToken))
		return
	default:
		k, why := managerOf(t).token(t.Nexus(), token)
		if why != sense.NoSense {
			t.Fault(sense.InList(why, writeToken))
			return
		}
		if k.shift != t.Unit().Shift() {
			t.Fault(sense.InList(sense.TokenNoCause, writeToken)) // blocks of another length
			return
		}
		if offset >= k.sectors>>k.shift {
			t.Fault(sense.InList(sense.InvalidFieldInList, writeOffset))
			return
		}
		w.token, w.offset = k, offset<<k.shift
		w.fit()
		k.use()
	}
	t.Unit().Describe(counters.ODXTarget, total(w.ranges))
	if !operate(t, w, be.Uint32(t.CDB[tokenListID:]), true, false, b[tokenFlags]&tokenImmed != 0, tokenListID) {
		w.end()
	}
}

// fit cuts the ranges to what the token has behind the offset.
func (w *writing) fit() {
	left := w.token.sectors - w.offset
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
	if k := w.token; k != nil {
		w.token = nil
		k.done()
	}
}

func (w *writing) next(o *operation) {
	// What it refers to has changed, before or while it was read: what was written so far may be anything.
	if w.token != nil && w.token.changed() {
		w.token.end(sense.TokenRevoked)
		w.refuse(o, nil, sam.StatusCheckCondition, sense.TokenRevoked)
		return
	}
	if w.at == len(w.ranges) {
		if w.del && w.token != nil {
			w.token.end(sense.TokenDeleted)
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
	r := &o.req
	r.Origin, r.Range, r.Data = block.OriginODX, to, nil
	if w.token == nil {
		r.Op = block.OpWriteSame
	} else {
		// SPC-4: what no EXTENDED COPY asked for has priority 1.
		r.Op, r.Ref, r.RefOffset, r.Priority = block.OpPlace, w.token.ref, w.offset, 1
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
	w.offset += r.Range.Count
	o.result.segments++
	o.result.moved += r.Range.Bytes()
	o.result.blocks += r.Range.Count >> o.x.Unit().Shift()
	w.at++
	w.next(o)
}

func (w *writing) uses(o *operation, u *server.Unit, _ server.Scope) (x *server.ITL, how server.Use) {
	if o.x.Unit() == u {
		x, how = o.x, server.UsesWrite
	}
	if w.token != nil && w.token.u == u {
		how |= server.UsesData
	}
	return x, how
}

func (w *writing) refuse(o *operation, _ *server.Unit, status byte, why sense.Code) {
	w.end()
	s := sense.Data{Code: why}
	if why == sense.TokenRevoked {
		s = sense.InList(why, writeToken)
	}
	o.finish(copyError, status, s)
}
