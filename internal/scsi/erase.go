// SANITIZE and FORMAT UNIT: an operation on the whole unit that goes on after its command, and
// after a loss of power. While there is one, and after one has failed, the unit is not ready
// (access.go). It begins when all that was at the device is over: what that wrote must go too.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// overwriteRate is how fast SANITIZE and FORMAT UNIT write patterns, in bytes a
// second. They are background work that all volumes of the pool would feel in the
// cache, so they get a share that a host hardly notices.
const overwriteRate = 32 << 20

const (
	overwritePiece = 1 << 20 >> block.SectorShift // sectors of one request
	nsPerSecond    = 1_000_000_000
	retryAfter     = nsPerSecond / 10 // when the device is short of resources
)

// erasure says what an operation makes of the medium.
type eraseParameters struct {
	Format       bool   `json:"format,omitempty"`  // FORMAT UNIT, else SANITIZE
	Unrestricted bool   `json:"ause,omitempty"`    // a failure can be left by EXIT FAILURE MODE
	Passes       int    `json:"passes,omitempty"`  // 0 makes the medium as new
	Invert       bool   `json:"invert,omitempty"`  // every other pass writes the complement
	Pattern      []byte `json:"pattern,omitempty"` // one logical block
}

// background is an operation on a unit that goes on after its command: SANITIZE or
// FORMAT UNIT. While there is one the unit is not ready. Nothing but the removal
// of the unit ends it.
type eraseOperation struct {
	u     *Unit
	what  eraseParameters
	task  *Task // waits for the end; nil with IMMED=1 or when it was aborted
	req   block.Request
	start int64  // when it began
	size  uint64 // sectors of a pass
	done  uint64
	total uint64 // sectors of all passes
}

// erase starts an operation. task, which may be nil, ends with it.
func (u *Unit) erase(what eraseParameters, task *Task) {
	b := &eraseOperation{u: u, what: what, task: task, start: u.t.exec.Now()}
	b.size = u.info.Sectors
	b.total = b.size * uint64(max(what.Passes, 1))
	b.req.Done = b.step
	u.eraseOperation, u.failedErase = b, nil
	u.t.copies.revoke(u) // they hold what is to be erased
	if task != nil {
		task.state.continuation = b
	}
	u.save(nil)
	// Commands that run already end first: what they write must go too. Copies end now.
	w := newWaiter(b.next)
	u.shut(func(*Nexus) bool { return true })
	u.fence(w, rest, func(_, _ *itl, how use) (byte, sense.Code) {
		if how == usesData {
			return sense.StatusCheckCondition, sense.TokenRevoked
		}
		return sense.StatusCheckCondition, b.busyCode()
	})
	for x := u.first; x != nil; x = x.state.next {
		if _, copies := x.state.continuation.(outsourced); !copies && x != task && x.state.phase.elsewhere() {
			w.left++
			x.state.waiters = append(x.state.waiters, w)
		}
	}
	w.less(u.t)
}

// release lets the task go: the operation goes on without it.
func (b *eraseOperation) release(*Task) { b.task = nil }

// next submits the next piece, when its time has come.
func (b *eraseOperation) next() {
	u := b.u
	if u.removed {
		return
	}
	r := &b.req
	if b.what.Passes == 0 {
		all := block.Range{Count: b.size}
		r.Op, r.Origin, r.Data = block.OpWriteSame, block.OriginWriteSame, nil
		r.Range, r.Flags = all, 0
		if u.info.Thin {
			r.Op, r.Origin, r.Ranges = block.OpUnmap, block.OriginUnmap, []block.Range{all}
			r.Range = block.Range{}
		}
		u.dev.Submit([]*block.Request{r})
		return
	}
	bytes := b.done << block.SectorShift
	due := b.start + int64(bytes/overwriteRate*nsPerSecond+bytes%overwriteRate*nsPerSecond/overwriteRate)
	if u.t.exec.Now() < due {
		u.t.exec.At(due, b.next)
		return
	}
	pass, at := b.done/b.size, b.done%b.size
	pattern := b.what.Pattern
	if b.what.Invert && (b.what.Passes-1-int(pass))%2 == 1 { // the last pass is not inverted
		pattern = make([]byte, len(b.what.Pattern))
		for i, c := range b.what.Pattern {
			pattern[i] = ^c
		}
	}
	r.Op, r.Origin, r.Flags, r.Data = block.OpWriteSame, block.OriginWriteSame, 0, [][]byte{pattern}
	if sgl.IsZero(r.Data) {
		r.Data = nil
	}
	r.Range = block.Range{Start: at, Count: min(overwritePiece, b.size-at)}
	u.dev.Submit([]*block.Request{r})
}

// step goes on after a piece.
func (b *eraseOperation) step(r *block.Request) {
	u := b.u
	switch {
	case u.removed:
	case r.Status == block.Resources:
		u.t.exec.At(u.t.exec.Now()+retryAfter, b.next)
	case r.Status != block.OK:
		u.eraseEnded(b, false)
	default:
		if b.done += r.Range.Count; b.what.Passes == 0 {
			b.done = b.total
		}
		if b.done < b.total {
			b.next()
			return
		}
		u.eraseEnded(b, true)
	}
}

// eraseEnded makes the unit ready again, or leaves it failed.
func (u *Unit) eraseEnded(b *eraseOperation, ok bool) {
	u.eraseOperation = nil
	if !ok {
		u.failedErase = &b.what
	}
	u.save(nil)
	switch {
	case b.task == nil:
	case ok:
		b.task.good()
	case b.what.Format:
		b.task.check(sense.FormatFailed)
	default:
		b.task.check(sense.SanitizeFailed)
	}
}

// Service actions and bits of SANITIZE (SBC-4 5.30).
const (
	sanitizeOverwrite = 0x01
	sanitizeBlock     = 0x02
	sanitizeCrypto    = 0x03
	sanitizeExit      = 0x1F
	sanitizeImmed     = 0x80
	sanitizeAUSE      = 0x20
	overwriteHeader   = 4
	overwriteInvert   = 0x80
	overwriteCount    = 0x1F
)

// doSanitize serves SANITIZE. BLOCK ERASE and CRYPTOGRAPHIC ERASE both drop the
// map of the unit: what it named can be reached by nothing afterwards.
func doSanitize(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	n := int(be.Uint16(t.CDB[7:]))
	sa := t.CDB[1] & 0x1F
	what := eraseParameters{Unrestricted: t.CDB[1]&sanitizeAUSE != 0}
	switch {
	case sa == sanitizeOverwrite:
		if n <= overwriteHeader || n > overwriteHeader+int(u.blockSize()) {
			t.fault(sense.InCDB(7, 7))
			return
		}
		b, ok := t.parameters(n, n, overwriteHeader)
		if !ok {
			return
		}
		length := int(be.Uint16(b[2:]))
		what.Passes, what.Invert = int(b[0]&overwriteCount), b[0]&overwriteInvert != 0
		switch {
		case what.Passes == 0:
			t.fault(sense.InList(sense.InvalidFieldInList, 0))
			return
		case length == 0 || length != n-overwriteHeader:
			t.fault(sense.InList(sense.InvalidFieldInList, 2))
			return
		}
		what.Pattern = sgl.Repeat(b[overwriteHeader:], int(u.blockSize()))
	case n != 0:
		t.fault(sense.InCDB(7, 7))
		return
	case sa == sanitizeExit:
		if f := u.failedErase; f != nil && !f.Format {
			if !f.Unrestricted {
				t.fault(sense.InCDB(1, 4))
				return
			}
			u.failedErase = nil
		}
		t.goodWhenSaved()
		return
	}
	t.erase(what, t.CDB[1]&sanitizeImmed != 0)
}

// erase starts the operation of the task's command.
func (t *Task) erase(what eraseParameters, immed bool) {
	u := t.state.u
	t.unit().describe(counters.Erase, u.info.Sectors<<block.SectorShift*uint64(max(what.Passes, 1)))
	if immed {
		u.erase(what, nil)
		t.good()
		return
	}
	u.erase(what, t)
}

// Bits of FORMAT UNIT and its parameter list (SBC-4 5.5).
const (
	formatPInfo     = 0xC0 // FMTPINFO
	formatLong      = 0x20
	formatData      = 0x10
	formatImmed     = 0x02
	formatInit      = 0x08 // IP
	formatDPRY      = 0x40
	formatSTPF      = 0x10
	formatDCRT      = 0x20
	formatShortHead = 4
	formatLongHead  = 8
	formatInitHead  = 4
)

// doFormat serves FORMAT UNIT: protection type 0, no defect list. Without an
// initialization pattern a thin unit is unmapped, another one reads zeros.
func doFormat(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	if t.CDB[1]&formatPInfo != 0 {
		t.fault(sense.InCDB(1, 7))
		return
	}
	what := eraseParameters{Format: true}
	if t.CDB[1]&formatData == 0 {
		t.erase(what, false)
		return
	}
	head := formatShortHead
	if t.CDB[1]&formatLong != 0 {
		head = formatLongHead
	}
	if _, ok := t.parameters(head, head, head); !ok { // the CDB says of no length
		return
	}
	b := sgl.Joined(t.DataOut, formatLongHead+formatInitHead+int(u.blockSize()))
	defects := uint32(be.Uint16(b[2:]))
	if head == formatLongHead {
		defects = be.Uint32(b[4:])
	}
	switch flags := b[1]; {
	case b[0]&7 != 0: // PROTECTION FIELD USAGE
		t.fault(sense.InList(sense.InvalidFieldInList, 0))
		return
	case flags&(formatDPRY|formatSTPF|formatDCRT) != 0 && flags&0x80 == 0: // mean something with FOV=1 only
		t.fault(sense.InList(sense.InvalidFieldInList, 1))
		return
	case head == formatLongHead && b[3] != 0:
		t.fault(sense.InList(sense.InvalidFieldInList, 3))
		return
	case defects != 0:
		t.fault(sense.InList(sense.InvalidFieldInList, head-2))
		return
	case flags&formatInit != 0:
		d := b[head:]
		if len(d) < formatInitHead {
			t.check(sense.ParameterListLength)
			return
		}
		kind, length := d[1], int(be.Uint16(d[2:]))
		t.OutTotal = head + formatInitHead + length
		switch {
		case kind > 1 || kind == 0 && length != 0:
			t.fault(sense.InList(sense.InvalidFieldInList, head+1))
			return
		case kind == 1 && (length == 0 || length > int(u.blockSize())):
			t.fault(sense.InList(sense.InvalidFieldInList, head+2))
			return
		case len(d) < formatInitHead+length:
			t.check(sense.ParameterListLength)
			return
		case kind == 1:
			what.Passes, what.Pattern = 1, sgl.Repeat(d[formatInitHead:formatInitHead+length], int(u.blockSize()))
		}
	}
	t.erase(what, b[1]&formatImmed != 0)
}
