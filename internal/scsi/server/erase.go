// SANITIZE and FORMAT UNIT: an operation on the whole unit that goes on after its command, and
// after a loss of power. While there is one, and after one has failed, the unit is not ready
// (access.go). It begins when all that was at the device is over: what that wrote must go too.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// overwriteRate is how fast SANITIZE and FORMAT UNIT write patterns, in bytes a
// second. They are background work that all volumes of the pool would feel in the
// cache, so they get a share that a host hardly notices.
const overwriteRate = 32 << 20

const (
	overwritePiece = 1 << 20 >> block.SectorShift // sectors of one request
	Second         = 1_000_000_000
	retryAfter     = Second / 10 // when the device is short of resources
)

// erasure says what an operation makes of the medium.
type EraseParameters struct {
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
	what  EraseParameters
	task  *Task // waits for the end; nil with IMMED=1 or when it was aborted
	req   block.Request
	start int64  // when it began
	size  uint64 // sectors of a pass
	done  uint64
	total uint64 // sectors of all passes
}

// Erase starts an operation. task, which may be nil, ends with it.
func (u *Unit) Erase(what EraseParameters, task *Task) {
	b := &eraseOperation{u: u, what: what, task: task, start: u.t.exec.Now()}
	b.size = u.info.Sectors
	b.total = b.size * uint64(max(what.Passes, 1))
	b.req.Done = b.step
	u.eraseOperation, u.failedErase = b, nil
	u.t.copies.Revoke(u) // they hold what is to be erased
	if task != nil {
		task.state.continuation = b
	}
	u.Save(nil)
	// Commands that run already end first: what they write must go too. Copies end now.
	w := NewWaiter(b.next)
	u.Shut(func(*Nexus) bool { return true })
	u.Fence(w, Rest, func(_, _ *ITL, how Use) (byte, sense.Code) {
		if how == UsesData {
			return sense.StatusCheckCondition, sense.TokenRevoked
		}
		return sense.StatusCheckCondition, b.busyCode()
	})
	for x := u.first; x != nil; x = x.state.next {
		if _, copies := x.state.continuation.(Outsourced); !copies && x != task && x.state.phase.elsewhere() {
			w.More()
			x.state.waiters = append(x.state.waiters, w)
		}
	}
	w.Less(u.t)
}

// Release lets the task go: the operation goes on without it.
func (b *eraseOperation) Release(*Task) { b.task = nil }

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
	due := b.start + int64(bytes/overwriteRate*Second+bytes%overwriteRate*Second/overwriteRate)
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
	u.Save(nil)
	switch {
	case b.task == nil:
	case ok:
		b.task.Good()
	case b.what.Format:
		b.task.Check(sense.FormatFailed)
	default:
		b.task.Check(sense.SanitizeFailed)
	}
}
