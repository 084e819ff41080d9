package tier

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// Events of a LUN that changes its size with requests under way, unheard, and while the cache starts.

// cutOff is what a LUN has lost from a sector on.
type cutOff struct {
	from      uint64
	may, back [][]entry
}

// comesBack notes that what was cut off, or some of it, may come back where the LUN has grown again. which tells of sectors; nil: all.
func (w *world) comesBack(c cutOff, which func(s uint64) bool) {
	for i, l := range c.may {
		s := c.from + uint64(i)
		if s >= uint64(len(w.may)) {
			return
		}
		if which == nil || which(s) {
			w.may[s] = append(slices.Clone(w.may[s]), l...)
			w.back[s] = append(slices.Clone(w.back[s]), c.back[i]...)
		}
	}
}

// cutTo makes the LUN smaller and returns what it has lost.
func (w *world) cutTo(to uint64) cutOff {
	c := cutOff{to, slices.Clone(w.may[to:]), slices.Clone(w.back[to:])}
	w.resize(to)
	w.smallest = min(w.smallest, to)
	return c
}

// usual ends an event: the LUN has a size that suits all others.
func (w *world) usual() {
	if w.a.sectors < 500 {
		w.resize(500 + w.r.Uint64N(200))
		w.heardOfSize()
	}
	w.smallest = everything
}

// pass lets pass, as n says, some time, or some requests, or nothing.
func (w *world) pass(n int) {
	switch n {
	case 0:
		w.v.RunUntil(w.v.Now() + w.r.Int64N(400_000))
	case 1:
		w.v.RunUntil(w.v.Now() + w.r.Int64N(3*w.a.delay))
	case 2:
		w.steps(w.r.IntN(10))
	}
}

// somewhere lets pass some time, or requests, or all of them.
func (w *world) somewhere() {
	n := w.r.IntN(5)
	if w.pass(n); n == 3 {
		w.settle()
	}
}

// putBehind writes to what is about to be cut off, and across the new end.
func (w *world) putBehind(to uint64) {
	n := w.a.sectors
	for range w.r.IntN(5) {
		count := 1 + w.r.Uint64N(40)
		at := n - count - w.r.Uint64N(n-to+20)
		w.putAt([]block.Op{block.OpWrite, block.OpWrite, block.OpWriteSame, block.OpUnmap}[w.r.IntN(4)], block.Range{Start: at, Count: count})
	}
}

// newEnd draws a smaller size, which may be in the midst of a block, and rarely nothing at all.
func (w *world) newEnd() uint64 {
	if w.r.IntN(12) == 0 {
		return w.r.Uint64N(2) * w.r.Uint64N(40)
	}
	return max(400, w.a.sectors-1-w.r.Uint64N(120))
}

// eventSizesBesideRequests: the LUN has one size after the other, with requests, fills and destages under way. The cache hears of a
// smaller one before the LUN grows, at once or later, and of a larger one sometime.
func (w *world) eventSizesBesideRequests() {
	if w.taker > 0 {
		return
	}
	w.smallest = w.a.sectors
	var cuts []cutOff // that may not be recorded
	for range 1 + w.r.IntN(4) {
		w.steps(w.r.IntN(12))
		to := w.newEnd()
		w.putBehind(max(to, 400))
		w.somewhere()
		if w.r.IntN(4) == 0 {
			w.flush()
		}
		for range 1 + w.r.IntN(2) { // so often in a row
			if to >= w.a.sectors {
				break
			}
			cuts = append(cuts, w.cutTo(to))
			if to >= 400 && w.r.IntN(3) == 0 {
				w.somewhere() // unheard so far
			}
			w.heardOfSize()
			if to = w.r.Uint64N(to + 1); to < 400 && w.r.IntN(4) > 0 {
				break
			}
		}
		if w.a.sectors >= 400 {
			w.somewhere()
		}
		if w.r.IntN(8) > 0 || w.a.sectors < 400 {
			w.resize(max(400, w.a.sectors) + w.r.Uint64N(200))
			if w.r.IntN(4) == 0 {
				w.somewhere()
			}
			w.heardOfSize()
		}
		w.somewhere()
		if !w.d.shrinking() {
			cuts = nil
		}
		if w.r.IntN(4) == 0 {
			for _, c := range cuts {
				w.comesBack(c, nil)
			}
			cuts = nil
			w.crash()
			if w.r.IntN(2) == 0 {
				w.cutHost()
			}
			w.reboot()
			if w.taker > 0 {
				break
			}
		}
	}
	w.settle()
	w.usual()
}

// eventUnheardCut: the LUN shrinks and grows again before the cache hears of it, or while it is down. What is clean is gone as soon
// as the cache has asked; what is dirty may come back.
func (w *world) eventUnheardCut() {
	if w.taker > 0 {
		return
	}
	w.smallest = w.a.sectors
	w.steps(w.r.IntN(10))
	n, to := w.a.sectors, max(400, w.newEnd())
	w.putBehind(to)
	w.settle()
	if w.r.IntN(2) == 0 {
		w.v.RunUntil(w.v.Now() + w.r.Int64N(10*w.a.delay))
	}
	down, clean := w.r.IntN(2) == 0, false
	if down {
		if w.r.IntN(2) == 0 {
			w.flush()
			w.settle()
			clean = w.d.clean() && len(w.mayFail) == 0 && w.d.local().state == memberPresent && len(w.d.j.buf) <= batchHead && len(w.d.j.batches) == 0
		}
		w.crash()
		if !clean && w.r.IntN(2) == 0 {
			w.cutHost()
		}
	}
	dirty := map[uint64]bool{}
	w.d.eachDirty(block.Range{Start: to, Count: n - to}, func(g block.Range) bool {
		for s := g.Start; s < g.End(); s++ {
			dirty[s] = true
		}
		return true
	})
	c := w.cutTo(to)
	if w.r.IntN(3) == 0 && to < w.a.sectors-1 { // twice
		w.resize(to + 1 + w.r.Uint64N(40))
		w.resize(to)
	}
	w.resize([]uint64{n, max(to+1, n-20+w.r.Uint64N(60))}[w.r.IntN(2)])
	if down {
		if !clean {
			w.comesBack(c, nil)
		}
		w.reboot()
	} else {
		w.comesBack(c, func(s uint64) bool { return dirty[s] })
		if w.r.IntN(2) == 0 || w.a.sectors != n {
			w.heardOfSize()
		}
		w.unheard(func() { w.news(w.path) })
	}
	w.settle()
	w.checkAll(false)
	w.usual()
}

// eventSizesAtStart: the LUN has another size, once or more, while the cache starts. Of what it hears then, it knows the last.
func (w *world) eventSizesAtStart() {
	if w.taker > 0 || len(w.mayFail) > 0 {
		return
	}
	w.smallest = w.a.sectors
	w.steps(w.r.IntN(10))
	w.putBehind(400)
	if w.r.IntN(2) == 0 {
		w.settle()
	}
	w.crash()
	present := w.present()
	if w.r.IntN(3) == 0 {
		w.cutHost()
	}
	ended, failed := false, error(nil)
	w.begin(0, nil, func(err error) { ended, failed = true, err })
	var cuts []cutOff // of which the cache has not heard
	for range 1 + w.r.IntN(3) {
		for until := w.v.Now() + w.r.Int64N(1+w.a.delay); !ended && w.v.Now() < until && w.v.Step(); {
		}
		if w.r.IntN(2) == 0 {
			cuts = append(cuts, w.cutTo(max(400, w.newEnd())))
		}
		if w.r.IntN(2) == 0 {
			w.heardOfSize()
			if len(w.path.notify) > 0 {
				cuts = nil
			}
		}
		if w.r.IntN(2) == 0 {
			w.resize(w.a.sectors + w.r.Uint64N(100))
			for _, c := range cuts {
				w.comesBack(c, nil)
			}
		}
		w.heardOfSize()
	}
	for i := 0; !ended && i < 2_000_000 && w.v.Step(); i++ {
	}
	if !ended {
		w.fail("open does not end")
	}
	if err := w.begun(0, failed); err != nil {
		if w.had(present) {
			w.fail("the flash had everything, and is refused: %v", err)
		}
		w.takeOverAny(present)
	}
	w.news(w.path) // it may have asked before
	w.settle()
	if n := w.d.Info().Sectors; n != w.a.sectors {
		w.fail("the LUN has %d sectors, and the cache says %d", w.a.sectors, n)
	}
	w.checkAll(false)
	w.usual()
}

// TestSizes is TestModel with changes of the LUN's size alone.
func TestSizes(t *testing.T) {
	runWorlds(t, (*seeds+2)/3, func(w *world) {
		[]func(*world){(*world).eventResizeLUN, (*world).eventShrinkAndGrow, (*world).eventSizesBesideRequests, (*world).eventUnheardCut, (*world).eventSizesAtStart}[w.r.IntN(5)](w)
	})
}
