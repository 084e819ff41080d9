// Handler of POPULATE TOKEN, stages 1 and 3 of a copy by token: a token is a hold of the source.
// The parameter lists of both commands of tokens are read here. REPORT ALL ROD TOKENS is here, too.

package copymgr

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
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
func tokenList(t *server.Task, head int) (b []byte, ranges []block.Range, ok bool) {
	be := binary.BigEndian
	const longest = writeHead + (copylist.MaxTokenRanges+1)*rangeLen
	b, ok = paramlist.Begin(t, int(min(be.Uint32(t.CDB[10:]), 1<<30)), longest, head)
	if !ok {
		return nil, nil, false
	}
	rangesAt := head - 2
	bytes := int(be.Uint16(b[rangesAt:]))
	switch {
	case int(be.Uint16(b)) < head-2+rangeLen:
		t.Fault(sense.InList(sense.InvalidFieldInList, 0))
		return nil, nil, false
	case bytes < rangeLen || bytes%rangeLen != 0:
		t.Fault(sense.InList(sense.InvalidFieldInList, rangesAt))
		return nil, nil, false
	case bytes/rangeLen > copylist.MaxTokenRanges:
		t.Fault(sense.InList(sense.TooManySegments, rangesAt))
		return nil, nil, false
	case head+bytes > len(b) || head-2+bytes > int(be.Uint16(b)):
		t.Check(sense.ParameterListLength)
		return nil, nil, false
	}
	ranges, ok = tokenRanges(t, b[head:head+bytes], head)
	return b, ranges, ok
}

// tokenRanges parses block device range descriptors, which stand at offset at of
// the parameter list.
func tokenRanges(t *server.Task, b []byte, at int) ([]block.Range, bool) {
	u := t.Unit()
	be := binary.BigEndian
	var ranges []block.Range
	var total uint64
	for i := 0; i < len(b); i += rangeLen {
		lba, n := be.Uint64(b[i:]), uint64(be.Uint32(b[i+8:]))
		if lba > u.Blocks() || n > u.Blocks()-lba {
			t.Fault(sense.LBAOutOfRange.WithInfo(max(lba, u.Blocks())))
			return nil, false
		}
		r := block.Range{Start: lba << u.Shift(), Count: n << u.Shift()}
		if total += r.Bytes(); total > copylist.MaxTokenBytes {
			t.Fault(sense.InList(sense.InvalidFieldInList, at+i+8))
			return nil, false
		}
		if slices.ContainsFunc(ranges, r.Overlaps) {
			t.Fault(sense.InList(sense.InvalidFieldInList, at+i))
			return nil, false
		}
		if n > 0 {
			ranges = append(ranges, r)
		}
	}
	return ranges, true
}

// rodAnyPIT is the ROD type of any point in time copy, in a command.
const rodAnyPIT = 0x0080FFFF

const nsPerSecond = 1_000_000_000

// populating is what a POPULATE TOKEN does.
type populating struct {
	ranges  []block.Range
	timeout int64
}

// PopulateToken serves POPULATE TOKEN: the token is a reference to what the
// ranges hold now, whatever is written to them later.
func PopulateToken(t *server.Task) {
	be := binary.BigEndian
	b, ranges, ok := tokenList(t, populateHead)
	if !ok {
		return
	}
	timeout := be.Uint32(b[populateTime:])
	kind := be.Uint32(b[populateType:])
	switch {
	case timeout > copylist.MaxTokenTimeout:
		t.Fault(sense.InList(sense.InvalidFieldInList, populateTime))
		return
	case b[tokenFlags]&populateRTV != 0 && kind != copylist.RODPointInTime && kind != rodAnyPIT:
		t.Fault(sense.InList(sense.InvalidFieldInList, populateType))
		return
	case timeout == 0:
		timeout = copylist.TokenTimeout
	}
	p := &populating{ranges: ranges, timeout: int64(timeout) * nsPerSecond}
	t.Unit().Describe(counters.ODXSource, total(ranges))
	operate(t, p, be.Uint32(t.CDB[tokenListID:]), true, false, b[tokenFlags]&tokenImmed != 0, tokenListID)
}

func (p *populating) next(o *operation) {
	if o.m.t.Options().Random == nil || !o.m.read.RoomForToken(o.host) {
		o.finish(copyError, sam.StatusCheckCondition, sense.Data{Code: sense.CopyNoROD})
		return
	}
	r := &o.req
	r.Op, r.Origin, r.Ranges = block.OpHold, block.OriginODX, p.ranges
	o.submit(o.x.Unit())
}

func (p *populating) ended(o *operation) {
	r := &o.req
	if r.Status != block.OK {
		r.Ref = nil
		switch {
		case o.cancelled():
		case r.Status == block.Resources: // the map of what it would hold is too long
			o.finish(copyError, sam.StatusCheckCondition, sense.Data{Code: sense.CopyNoROD})
		default:
			status, s := o.where.Outcome(r)
			o.finish(copyError, status, s)
		}
		return
	}
	if o.cancelled() || o.x.Unit().Removed() {
		return // finish releases what was held
	}
	if !o.m.read.RoomForToken(o.host) {
		o.finish(copyError, sam.StatusCheckCondition, sense.Data{Code: sense.CopyNoROD})
		return
	}
	k := o.m.read.NewToken(o.x, r.Ref, p.timeout)
	r.Ref = nil
	o.result.token = k.Bytes[:]
	o.result.segments = uint16(len(p.ranges))
	o.result.moved = k.Sectors << block.SectorShift
	o.result.blocks = k.Sectors >> k.Shift
	o.finish(copyDone, sam.StatusGood, sense.Data{})
}

func (p *populating) uses(o *operation, u *server.Unit, _ server.Scope) (*server.ITL, server.Use) {
	if o.x.Unit() == u {
		return o.x, server.UsesRead
	}
	return nil, 0
}

func (p *populating) without(*operation, *server.ITL) sense.Code { return sense.NoSense }

func (p *populating) refuse(o *operation, c interruption) {
	o.finish(copyError, c.status, sense.Data{Code: c.why})
}

func (p *populating) farUnits() []farUnit { return nil }

// ReportTokens serves REPORT ALL ROD TOKENS.
func ReportTokens(t *server.Task) {
	copylist.ReplyAvailable(t, managerOf(t).read.Report(t.Nexus(), make([]byte, 8)))
}
