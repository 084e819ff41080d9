// Handlers of POPULATE TOKEN and WRITE USING TOKEN, stages 1 and 3 of a copy by token: a token is
// a hold of the source, and writing by it places ranges of that at the destination, one request a
// range.

package scsi

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Parameter lists of POPULATE TOKEN and WRITE USING TOKEN (SBC-4 5.8, 5.58):
//
//	| length (2) | flags | 1 | inactivity timeout (4) | ROD type (4) | 2 | range bytes (2) | ranges |
//	| length (2) | flags | 5 | offset into ROD (8) | token (512) | 6 | range bytes (2) | ranges |
//
// A range is LBA (8), blocks (4), reserved (4).
const (
	tokenFlags     = 2
	tokenImmed     = 0x01
	populateRTV    = 0x02
	populateTime   = 4
	populateType   = 8
	populateRanges = 14
	populateHead   = 16
	writeDelete    = 0x02
	writeOffset    = 8
	writeToken     = 16
	writeRanges    = 534
	writeHead      = 536
	rangeLen       = 16
	tokenListID    = 6 // in the CDB
)

// tokenList gathers a parameter list of the two commands whose fixed part is head
// bytes, and checks its lengths; ok is false when the task has ended.
func (t *Task) tokenList(head int) (b []byte, ranges []block.Range, ok bool) {
	be := binary.BigEndian
	const longest = writeHead + (maxTokenRanges+1)*rangeLen
	b, ok = t.parameters(int(min(be.Uint32(t.CDB[10:]), 1<<30)), longest, head)
	if !ok {
		return nil, nil, false
	}
	rangesAt := head - 2
	bytes := int(be.Uint16(b[rangesAt:]))
	switch {
	case int(be.Uint16(b)) < head-2+rangeLen:
		t.fault(sense.InList(sense.InvalidFieldInList, 0))
		return nil, nil, false
	case bytes < rangeLen || bytes%rangeLen != 0:
		t.fault(sense.InList(sense.InvalidFieldInList, rangesAt))
		return nil, nil, false
	case bytes/rangeLen > maxTokenRanges:
		t.fault(sense.InList(sense.TooManySegments, rangesAt))
		return nil, nil, false
	case head+bytes > len(b) || head-2+bytes > int(be.Uint16(b)):
		t.check(sense.ParameterListLength)
		return nil, nil, false
	}
	ranges, ok = t.tokenRanges(b[head:head+bytes], head)
	return b, ranges, ok
}

// tokenRanges parses block device range descriptors, which stand at offset at of
// the parameter list.
func (t *Task) tokenRanges(b []byte, at int) ([]block.Range, bool) {
	u := t.state.u
	be := binary.BigEndian
	var ranges []block.Range
	var total uint64
	for i := 0; i < len(b); i += rangeLen {
		lba, n := be.Uint64(b[i:]), uint64(be.Uint32(b[i+8:]))
		if lba > u.blocks || n > u.blocks-lba {
			t.fault(sense.LBAOutOfRange.WithInfo(max(lba, u.blocks)))
			return nil, false
		}
		r := block.Range{Start: lba << u.shift, Count: n << u.shift}
		if total += r.Bytes(); total > maxTokenBytes {
			t.fault(sense.InList(sense.InvalidFieldInList, at+i+8))
			return nil, false
		}
		if slices.ContainsFunc(ranges, r.Overlaps) {
			t.fault(sense.InList(sense.InvalidFieldInList, at+i))
			return nil, false
		}
		if n > 0 {
			ranges = append(ranges, r)
		}
	}
	return ranges, true
}

// populating is what a POPULATE TOKEN does.
type populating struct {
	ranges  []block.Range
	timeout int64
}

// doPopulateToken serves POPULATE TOKEN: the token is a reference to what the
// ranges hold now, whatever is written to them later.
func doPopulateToken(t *Task) {
	be := binary.BigEndian
	b, ranges, ok := t.tokenList(populateHead)
	if !ok {
		return
	}
	timeout := be.Uint32(b[populateTime:])
	kind := be.Uint32(b[populateType:])
	switch {
	case timeout > maxTokenTimeout:
		t.fault(sense.InList(sense.InvalidFieldInList, populateTime))
		return
	case b[tokenFlags]&populateRTV != 0 && kind != rodPointInTime && kind != rodAnyPIT:
		t.fault(sense.InList(sense.InvalidFieldInList, populateType))
		return
	case timeout == 0:
		timeout = tokenTimeout
	}
	p := &populating{ranges: ranges, timeout: int64(timeout) * nsPerSecond}
	t.unit().describe(counters.ODXSource, total(ranges))
	t.operate(p, be.Uint32(t.CDB[tokenListID:]), true, false, b[tokenFlags]&tokenImmed != 0, tokenListID)
}

func total(ranges []block.Range) uint64 {
	var n uint64
	for _, r := range ranges {
		n += r.Bytes()
	}
	return n
}

func (p *populating) next(o *operation) {
	if o.m.t.opt.Random == nil || !o.m.roomForToken(o.host) {
		o.finish(copyError, sense.StatusCheckCondition, sense.Data{Code: sense.CopyNoROD})
		return
	}
	r := &o.req
	r.Op, r.Origin, r.Ranges = block.OpHold, block.OriginODX, p.ranges
	o.submit(o.x.u)
}

func (p *populating) ended(o *operation) {
	r := &o.req
	if r.Status != block.OK {
		r.Ref = nil
		if !o.cancelled() {
			status, s := o.where.outcome(r)
			o.finish(copyError, status, s)
		}
		return
	}
	if o.cancelled() || o.x.u.removed {
		return // finish releases what was held
	}
	if !o.m.roomForToken(o.host) {
		o.finish(copyError, sense.StatusCheckCondition, sense.Data{Code: sense.CopyNoROD})
		return
	}
	k := o.m.newToken(o.x, r.Ref, p.timeout)
	r.Ref = nil
	o.result.token = k.bytes[:]
	o.result.segments = uint16(len(p.ranges))
	o.result.moved = k.sectors << block.SectorShift
	o.result.blocks = k.sectors >> k.shift
	o.finish(copyDone, sense.StatusGood, sense.Data{})
}

func (p *populating) uses(o *operation, u *Unit, _ scope) (*itl, use) {
	if o.x.u == u {
		return o.x, usesRead
	}
	return nil, 0
}

func (p *populating) refuse(o *operation, _ *Unit, status byte, why sense.Code) {
	o.finish(copyError, status, sense.Data{Code: why})
}

// writing is what a WRITE USING TOKEN does. token is nil for zeros.
type writing struct {
	token  *rodToken
	offset uint64 // sectors into the token
	ranges []block.Range
	at     int
	del    bool
	status byte // when all goes well
}

// doWriteToken serves WRITE USING TOKEN.
func doWriteToken(t *Task) {
	st := &t.state
	be := binary.BigEndian
	b, ranges, ok := t.tokenList(writeHead)
	if !ok {
		return
	}
	w := &writing{ranges: ranges, del: b[tokenFlags]&writeDelete != 0, status: copyDone}
	offset := be.Uint64(b[writeOffset:])
	token := b[writeToken : writeToken+tokenLen]
	kind := be.Uint32(token)
	switch {
	case be.Uint16(token[tokenLengthAt:]) != rodTokenLength:
		t.fault(sense.InList(sense.TokenBadLength, writeToken+tokenLengthAt))
		return
	case kind == rodBlockZero:
	case kind != rodPointInTime:
		t.fault(sense.InList(sense.TokenType, writeToken))
		return
	default:
		k, why := managerOf(t).token(st.n, token)
		if why != sense.NoSense {
			t.fault(sense.InList(why, writeToken))
			return
		}
		if k.shift != st.u.shift {
			t.fault(sense.InList(sense.TokenNoCause, writeToken)) // blocks of another length
			return
		}
		if offset >= k.sectors>>k.shift {
			t.fault(sense.InList(sense.InvalidFieldInList, writeOffset))
			return
		}
		w.token, w.offset = k, offset<<k.shift
		w.fit()
		k.use()
	}
	t.unit().describe(counters.ODXTarget, total(w.ranges))
	if !t.operate(w, be.Uint32(t.CDB[tokenListID:]), true, false, b[tokenFlags]&tokenImmed != 0, tokenListID) {
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
	if w.at == len(w.ranges) {
		if w.del && w.token != nil {
			w.token.end(sense.TokenDeleted)
		}
		w.end()
		o.finish(w.status, sense.StatusGood, sense.Data{})
		return
	}
	x := o.x
	to := w.ranges[w.at]
	if !x.attached() {
		w.end()
		o.finish(copyTerminated, sense.StatusCheckCondition, sense.Data{Code: sense.CopyAborted})
		return
	}
	if status, why := x.refuses(to, true); status != sense.StatusGood {
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
	o.submit(x.u)
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
		status, s := o.where.outcome(r)
		o.finish(copyError, status, s)
		return
	}
	w.offset += r.Range.Count
	o.result.segments++
	o.result.moved += r.Range.Bytes()
	o.result.blocks += r.Range.Count >> o.x.u.shift
	w.at++
	w.next(o)
}

func (w *writing) uses(o *operation, u *Unit, _ scope) (x *itl, how use) {
	if o.x.u == u {
		x, how = o.x, usesWrite
	}
	if w.token != nil && w.token.u == u {
		how |= usesData
	}
	return x, how
}

func (w *writing) refuse(o *operation, _ *Unit, status byte, why sense.Code) {
	w.end()
	s := sense.Data{Code: why}
	if why == sense.TokenRevoked {
		s = sense.InList(why, writeToken)
	}
	o.finish(copyError, status, s)
}
