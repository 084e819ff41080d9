// Package erase makes a medium new, or overwrites it, as SANITIZE and FORMAT UNIT ask for: an
// operation on a whole device, piece by piece and no faster than hosts can bear. It knows no unit
// and no task. Whoever starts one has seen to it that nothing else writes the device meanwhile.
package erase

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// rate is how fast patterns are written, in bytes a second. That is background work that all
// volumes of the pool would feel in the cache, so it gets a share that a host hardly notices.
const rate = 32 << 20

const (
	pieceSectors = 1 << 20 >> block.SectorShift // of one request
	second       = 1_000_000_000
	retryAfter   = second / 10 // when the device is short of resources
)

// Parameters say what an operation makes of the medium. They survive a loss of power, in JSON.
type Parameters struct {
	Format       bool   `json:"format,omitempty"`  // FORMAT UNIT, else SANITIZE
	Unrestricted bool   `json:"ause,omitempty"`    // a failure can be left by EXIT FAILURE MODE
	Passes       int    `json:"passes,omitempty"`  // 0 makes the medium as new
	Invert       bool   `json:"invert,omitempty"`  // every other pass writes the complement
	Pattern      []byte `json:"pattern,omitempty"` // one logical block
}

// Check returns an error for what cannot be done.
func (what *Parameters) Check() error {
	if what.Passes > 0 && len(what.Pattern) == 0 {
		return fmt.Errorf("an erasure of %d passes without a pattern", what.Passes)
	}
	return nil
}

// Bytes returns how much an operation writes to a device of so many bytes.
func (what *Parameters) Bytes(device uint64) uint64 { return device * uint64(max(what.Passes, 1)) }

// Operation is one erasure. It goes on until it is done, the device fails, or Stop.
type Operation struct {
	What    Parameters
	dev     block.Device
	clock   block.Clock
	ended   func(ok bool)
	req     block.Request
	stopped bool
	start   int64  // when it was made
	size    uint64 // sectors of a pass
	done    uint64
	total   uint64 // sectors of all passes
}

// New makes an operation. ended is called once, when it has ended by itself.
func New(dev block.Device, clock block.Clock, what Parameters, ended func(ok bool)) *Operation {
	o := &Operation{What: what, dev: dev, clock: clock, ended: ended, start: clock.Now(), size: dev.Info().Sectors}
	o.total = o.What.Bytes(o.size)
	o.req.Done = o.step
	return o
}

// Progress returns how many sectors are done, and of how many.
func (o *Operation) Progress() (done, total uint64) { return o.done, o.total }

// Stop ends the operation without a word, because its device is gone.
func (o *Operation) Stop() { o.stopped = true }

// Next submits the next piece, when its time has come. The first call begins the operation.
func (o *Operation) Next() {
	if o.stopped {
		return
	}
	r := &o.req
	switch {
	case o.done == o.total: // what is erased may not come back with a loss of power
		r.Op, r.Origin, r.Flags, r.Data, r.Ranges, r.Range = block.OpFlush, block.OriginHost, 0, nil, nil, block.Range{}
		o.dev.Submit([]*block.Request{r})
		return
	case o.What.Passes == 0:
		all := block.Range{Count: o.size}
		r.Op, r.Origin, r.Data = block.OpWriteSame, block.OriginWriteSame, nil
		r.Range, r.Flags = all, 0
		if o.dev.Info().Thin {
			r.Op, r.Origin, r.Ranges = block.OpUnmap, block.OriginUnmap, []block.Range{all}
			r.Range = block.Range{}
		}
		o.dev.Submit([]*block.Request{r})
		return
	}
	bytes := o.done << block.SectorShift
	due := o.start + int64(bytes/rate*second+bytes%rate*second/rate)
	if o.clock.Now() < due {
		o.clock.At(due, o.Next)
		return
	}
	pass, at := o.done/o.size, o.done%o.size
	r.Op, r.Origin, r.Flags, r.Data = block.OpWriteSame, block.OriginWriteSame, 0, [][]byte{o.pattern(int(pass))}
	if sgl.IsZero(r.Data) {
		r.Data = nil
	}
	r.Range = block.Range{Start: at, Count: min(pieceSectors, o.size-at)}
	o.dev.Submit([]*block.Request{r})
}

// pattern returns what a pass writes. The last pass is not inverted.
func (o *Operation) pattern(pass int) []byte {
	if !o.What.Invert || (o.What.Passes-1-pass)%2 == 0 {
		return o.What.Pattern
	}
	inverted := make([]byte, len(o.What.Pattern))
	for i, c := range o.What.Pattern {
		inverted[i] = ^c
	}
	return inverted
}

// step goes on after a piece.
func (o *Operation) step(r *block.Request) {
	switch {
	case o.stopped:
	case r.Status == block.Resources:
		o.clock.At(o.clock.Now()+retryAfter, o.Next)
	case r.Status != block.OK:
		o.ended(false)
	case r.Op == block.OpFlush:
		o.ended(true)
	default:
		if o.done += r.Range.Count; o.What.Passes == 0 {
			o.done = o.total
		}
		o.Next()
	}
}
