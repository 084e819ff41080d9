package tier

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// fickle is a world whose clients withdraw what they have asked for, over an array that keeps some
// requests and loses power.
type fickle struct {
	*world
	owed bool // a flush has yet to fail, for what the array has lost
}

// begin opens the cache; power: the array has lost its own since the cache was open last.
func (f *fickle) begin(power bool) {
	f.t.Helper()
	if err := f.try(0, func(o *Options) {
		below := &toldAtOnce{path: f.path}
		if power {
			below.news = []block.EventKind{block.EventPowerLoss}
		}
		o.Below = struct {
			*toldAtOnce
			canceller
		}{below, canceller{obliging{f.path}}}
	}); err != nil {
		f.fail("%v", err)
	}
	f.troubled = true // what is withdrawn, or was lost, ends so
}

// canceller is the one method of obliging.
type canceller struct{ o obliging }

func (c canceller) Cancel(r *block.Request) { c.o.Cancel(r) }

// withdraw has somebody not want a request any more.
func (f *fickle) withdraw() {
	if n := len(f.pending); n > 0 {
		r := f.pending[f.r.IntN(n)]
		f.note("withdraw %v %v %v", r.Op, r.Range, r.Ranges)
		f.revoked[r] = true
		f.d.Cancel(r)
	}
}

// gates are operations that the array may keep until their request is withdrawn, or the round ends.
var gates = []block.Op{block.OpRead, block.OpWrite, block.OpFlush, block.OpHold, block.OpPlace, block.OpWriteSame, block.OpUnmap, block.OpCompareWrite}

func (f *fickle) round() {
	for _, op := range gates {
		if f.r.IntN(3) == 0 {
			f.a.gate[op] = true
		}
	}
	for range 10 + f.r.IntN(60) {
		f.step()
		if f.r.IntN(3) == 0 {
			f.withdraw()
		}
		if f.inflight > 24 {
			f.v.RunUntil(f.v.Now() + 500_000)
		}
	}
	if f.r.IntN(2) == 0 { // all of them, as a reset does
		for _, r := range slices.Clone(f.pending) {
			f.revoked[r] = true
			f.d.Cancel(r)
		}
	}
	for _, op := range gates {
		f.path.open(op)
	}
	f.settle()
	f.v.RunUntil(f.v.Now() + 500_000_000)
	if d := f.d; d.flushing != 0 || len(d.flushers)+len(d.parked)+len(d.delays.list) > 0 || len(d.waiting) > 0 {
		f.fail("%d flushes, %d parked, %d delayed are left; %s", d.flushing, len(d.parked), len(d.delays.list), d.dump())
	}
}

// tell asks for a flush, which must fail if the array has lost what was not flushed.
func (f *fickle) tell() {
	f.settle()
	if f.r.IntN(2) == 0 { // one that nobody waits for tells nobody
		r := &block.Request{Op: block.OpFlush}
		f.submit(r, func(*block.Request) {})
		f.revoked[r] = true
		if f.d.Cancel(r); f.owed || f.r.IntN(2) == 0 {
			f.settle()
			f.v.RunUntil(f.v.Now() + 20_000_000)
		}
	}
	owed := f.owed
	f.owed = false
	f.submit(&block.Request{Op: block.OpFlush}, func(r *block.Request) {
		f.note("flush: %v", r.Status)
		if owed && r.Status == block.OK {
			f.fail("a flush of what the array has lost succeeds")
		}
	})
	f.settle()
}

// cut cuts the array's power, with the cache at work or not.
func (f *fickle) cut() {
	alive := f.r.IntN(2) == 0
	f.settle()
	f.tell()
	f.round()
	f.flush() // so that a version of each sector is known to stay
	f.settle()
	for range 1 + f.r.IntN(4) { // it is below and volatile, and some of it on the flash
		f.put(block.OpWrite)
	}
	f.put(block.OpWriteSame)
	f.settle()
	f.v.RunUntil(f.v.Now() + 20_000_000)
	lost := f.d.volatile.ended > f.d.volatile.flushed
	if !alive {
		f.crash()
		lost = true // nobody knows
	}
	f.note("the array's power is cut, the cache lives: %v", alive)
	f.cutArray()
	switch {
	case alive:
		for _, fn := range f.a.notify {
			fn(block.Event{Kind: block.EventPowerLoss})
		}
	default:
		f.begin(true)
	}
	f.owed = lost
	if f.r.IntN(3) == 0 {
		f.v.RunUntil(f.v.Now() + 20_000_000)
		f.crash()
		f.begin(false)
	}
	f.checkAll(false)
	f.tell()
}

// TestRandomRequestsAreWithdrawn runs random requests that are withdrawn at random moments, over an
// array that loses power: all of them end, nothing is left of them, no sector is other than it may
// be, and a flush tells of a loss. -tier.seed takes a seed back.
func TestRandomRequestsAreWithdrawn(t *testing.T) {
	n := max(*seeds/3, 1)
	from := firstSeed(t, n)
	for i := range n {
		seed := from + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := &fickle{world: newWorld(t, seed, &arena{})}
			f.traced = true
			f.slowest = 5_000_000_000 // what is kept is a destage, too
			if f.r.IntN(2) == 0 {     // what is clean may be volatile below
				f.opt.Policy = Policy{Mode: WriteThrough}
			}
			f.begin(false)
			for range 3 {
				f.round()
				f.checkAll(false)
				if f.r.IntN(2) == 0 {
					f.cut()
				}
			}
			f.tell()
			f.stop()
			f.array("the array after the end")
		})
	}
}
