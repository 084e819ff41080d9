package nvlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// flushRig writes down what a Flusher does.
type flushRig struct {
	t      *testing.T
	clock  *block.Virtual
	region *testRegion
	nv     *NVRAM
	log    *Log
	fl     *Flusher
	seen   []string
}

const retry = 5000

func newFlushRig(t *testing.T) *flushRig {
	l := Layout{Rows: 1, Pages: 1, LogBytes: MinLogBytes, Payload: true}
	r := &flushRig{t: t, clock: &block.Virtual{}}
	r.region = newTestRegion(l, rand.New(rand.NewPCG(1, 1)), r.clock)
	nv, err := open(r.region, true, l)
	if err != nil {
		t.Fatal(err)
	}
	r.nv, r.log = nv, NewLog(nv)
	r.fl = NewFlusher(nv, r.log, r.clock, retry, Hooks{
		Begun: func() { r.note("begun") },
		Ended: func(o Outcome) {
			word := "ended"
			for _, w := range []struct {
				is   bool
				name string
			}{{o.Err != nil, "failed"}, {o.Advanced, "advanced"}, {o.Turned, "turned"}} {
				if w.is {
					word += "+" + w.name
				}
			}
			r.note(word)
		},
		Heard: func() { r.note("heard") },
	})
	return r
}

func (r *flushRig) note(what string) { r.seen = append(r.seen, what) }

func (r *flushRig) record() {
	r.t.Helper()
	c, _ := r.log.Claim(1)
	if _, ok := c.Append(make([]Edit, 1), 0); !ok {
		r.t.Fatal("refused")
	}
}

func (r *flushRig) after(name string) {
	r.fl.After(func(err error) {
		if err != nil {
			name += " failed"
		}
		r.note(name)
	})
}

// saw compares what was seen since the last time.
func (r *flushRig) saw(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.seen, want) {
		r.t.Errorf("saw %s; want %s", strings.Join(r.seen, ", "), strings.Join(want, ", "))
	}
	r.seen = nil
}

// TestFlushesAreShared: who comes while a flush is under way shares the next; hooks and waiters hear in order, and
// what was appended behind the begin of a flush is not flushed by it.
func TestFlushesAreShared(t *testing.T) {
	r := newFlushRig(t)
	r.record()
	r.after("a")
	r.record()
	r.after("b")
	r.after("c")
	r.fl.Poll(true)
	r.saw("begun")
	if !r.fl.Running() {
		t.Error("it does not run")
	}
	for r.fl.Flushed() == 0 && r.clock.Step() {
	}
	if r.fl.Flushed() != 1 {
		t.Errorf("record %d was flushed; the second came behind the begin", r.fl.Flushed())
	}
	r.clock.RunUntil(retry / 2)
	r.saw("ended+advanced", "a", "begun", "heard", "ended+advanced", "b", "c", "heard")
	if r.fl.Flushed() != 2 || r.region.flushes != 2 || r.fl.Running() {
		t.Errorf("record %d is flushed, after %d flushes", r.fl.Flushed(), r.region.flushes)
	}
	r.fl.Poll(false)
	r.saw()
	r.fl.Want()
	r.fl.Poll(false)
	r.clock.Run()
	r.saw("begun", "ended", "heard")
	r.fl.Poll(false)
	r.saw()
}

// TestFailedFlush: nothing counts as flushed, the state says that none has ended well, and the flush is repeated after a while: not before,
// unless somebody asks.
func TestFailedFlush(t *testing.T) {
	r := newFlushRig(t)
	r.record()
	r.after("a")
	r.clock.Run()
	r.saw("begun", "ended+advanced", "a", "heard")
	r.region.fails = 3
	r.record()
	r.after("b")
	r.clock.RunUntil(r.clock.Now() + retry/2)
	r.saw("begun", "ended+failed+turned", "b failed", "heard")
	if s := r.nv.Saved(); !s.unheard || s.Flushed != 1 || r.fl.Flushed() != 1 {
		t.Errorf("the state is %+v", s)
	}
	since := r.fl.FailingSince()
	if since == 0 {
		t.Error("nobody knows since when it fails")
	}
	r.fl.Want()
	r.fl.Poll(true)
	r.saw()
	r.after("c")
	r.clock.RunUntil(r.clock.Now() + retry/4)
	r.saw("begun", "ended+failed", "c failed", "heard")
	if r.fl.FailingSince() != since {
		t.Error("it fails since another time")
	}
	r.clock.RunUntil(since + retry)
	r.saw("heard") // the time has come
	r.fl.Poll(false)
	r.clock.RunUntil(r.clock.Now() + retry/2)
	r.saw("begun", "ended+failed", "heard")
	r.clock.Run()
	r.fl.Poll(false)
	r.clock.Run()
	r.saw("heard", "begun", "ended+advanced+turned", "heard")
	if s := r.nv.Saved(); s.boot != 1 || s.Flushed != 2 || r.fl.Flushed() != 2 || r.fl.FailingSince() != 0 {
		t.Errorf("the state is %+v, failing since %d", s, r.fl.FailingSince())
	}
}

// TestDeathBeforeTheEndOfAFlushIsHeard: from before a flush begins until it has ended well, the state says that nobody has
// heard of its end, whichever way it is asked for. A start then writes everything once more.
func TestDeathBeforeTheEndOfAFlushIsHeard(t *testing.T) {
	for name, flush := range map[string]func(*Flusher){
		"After":    func(f *Flusher) { f.After(func(error) {}) },
		"Last":     func(f *Flusher) { f.Last(func(error) {}) },
		"FlushNow": func(f *Flusher) { f.FlushNow() },
	} {
		for _, fails := range []int{0, 2} {
			r := newFlushRig(t)
			r.fl.Truncate(0)
			r.record()
			r.region.fails = fails
			within := false
			r.region.begun = func() { within = r.nv.Saved().unheard }
			flush(r.fl)
			r.clock.RunUntil(retry / 2)
			s := r.nv.Saved()
			if !within || s.unheard != (fails > 0) {
				t.Errorf("%s: under way it is not heard of: %v; behind it: %v", name, within, s.unheard)
			}
			if r.fl.Restore(s); r.region.distrusted != (fails > 0) {
				t.Errorf("%s: the region is distrusted: %v", name, r.region.distrusted)
			}
		}
	}
}

// TestFlushWithinHook: a flush that is asked for while one ends begins when all have heard, also where flushes take no time.
func TestFlushWithinHook(t *testing.T) {
	r := newFlushRig(t)
	r.region.exec = nil
	n := 0
	r.fl.hooks.Ended = func(Outcome) {
		r.note("ended")
		if n++; n == 1 {
			r.after("b")
		}
	}
	r.after("a")
	r.saw("begun", "ended", "a", "begun", "ended", "b", "heard", "heard")
}

// TestStateBlocks: of the two blocks the one counts that says more; where one is torn, the other; where both say the
// same, the one that promises less. Of the newest record's two words, the smaller counts.
func TestStateBlocks(t *testing.T) {
	for _, row := range []struct {
		what         string
		write        func(n *NVRAM)
		flushed, gen uint64
		boot         uint64
		damaged      bool
		other        bool
		newest       uint64
	}{
		{"none", func(*NVRAM) {}, 0, 0, 0, true, false, 0},
		{"the first", func(n *NVRAM) { n.saveState(false, 5, 6, 7) }, 5, 6, 7, false, false, 0},
		{"the second", func(n *NVRAM) { n.saveState(true, 5, 6, 7) }, 5, 6, 7, false, true, 0},
		{"more flushed", func(n *NVRAM) { n.saveState(false, 5, 6, 7); n.saveState(true, 6, 6, 7) }, 6, 6, 7, false, true, 0},
		{"a newer batch", func(n *NVRAM) { n.saveState(false, 5, 7, 7); n.saveState(true, 5, 6, 7) }, 5, 7, 7, false, false, 0},
		{"no boot", func(n *NVRAM) { n.saveState(false, 5, 6, 7); n.saveState(true, 5, 6, 0) }, 5, 6, 0, false, true, 0},
		{"a torn one", func(n *NVRAM) {
			n.saveState(false, 5, 6, 7)
			n.saveState(true, 6, 6, 7)
			le.PutUint64(n.header[otherOffset:], 0xffff)
		}, 5, 6, 7, false, false, 0},
		{"torn newest", func(n *NVRAM) {
			n.saveState(false, 5, 6, 7)
			n.setNewest(8)
			le.PutUint64(n.header[newestOffset:], 9)
		}, 5, 6, 7, false, false, 8},
		{"newest, flipped up", func(n *NVRAM) {
			n.saveState(false, 5, 6, 7)
			n.setNewest(8)
			n.header[newestOffset+12] ^= 1
		}, 5, 6, 7, false, false, 8},
	} {
		r := newFlushRig(t)
		r.nv.setNewest(0)
		row.write(r.nv)
		want := Saved{Flushed: row.flushed, Generation: row.gen, boot: row.boot, newest: row.newest, damaged: row.damaged, other: row.other}
		if got := r.nv.Saved(); got != want {
			t.Errorf("%s: %+v, not %+v", row.what, got, want)
		}
	}
}

// TestStartsThatCannotFlush: an error names what is wrong, and the state then promises no more than
// behind a flush of which nobody heard.
func TestStartsThatCannotFlush(t *testing.T) {
	for name, start := range map[string]func(f *Flusher) error{
		"Truncate":   func(f *Flusher) error { return f.Truncate(3) },
		"Commission": func(f *Flusher) error { return f.Commission(3) },
		"FlushNow":   (*Flusher).FlushNow,
	} {
		r := newFlushRig(t)
		r.record()
		r.region.fails = 2 // one is tried again
		if err, s := start(r.fl), r.nv.Saved(); !errors.Is(err, errFlush) || s.boot != 0 && !s.unheard {
			t.Errorf("%s: %v, state %+v", name, err, s)
		}
		if err := start(r.fl); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "FlushNow" && (r.fl.Flushed() != 1 || r.fl.Generation() != 3) {
			t.Errorf("%s: %d records are flushed, generation %d", name, r.fl.Flushed(), r.fl.Generation())
		}
	}
}

// TestGenerationOnlyGrows: batches may end in any order.
func TestGenerationOnlyGrows(t *testing.T) {
	r := newFlushRig(t)
	for i, n := range []uint64{1, 3, 2} {
		r.fl.SetGeneration(n)
		if got, want := r.nv.Saved().Generation, min(3, uint64(i)*2+1); got != want {
			t.Errorf("generation %d is saved, not %d", got, want)
		}
	}
	last := fmt.Errorf("not called")
	r.fl.Last(func(err error) { last = err })
	r.clock.Run()
	if last != nil {
		t.Error(last)
	}
}

// TestGenerationWithinAFlush: the state is not touched while a flush may read it; who asks for a flush behind a batch
// hears when the batch's number is durable.
func TestGenerationWithinAFlush(t *testing.T) {
	r := newFlushRig(t)
	r.record()
	r.after("a")
	r.fl.SetGeneration(5)
	if n := r.nv.Saved().Generation; n != 0 {
		t.Errorf("the state is written within a flush: generation %d", n)
	}
	heard := false
	r.fl.After(func(err error) {
		on := testRegion{mem: slices.Clone(r.region.disk)}
		nv, e := open(on.lay(r.nv.Layout), false, r.nv.Layout)
		if heard = true; err != nil || e != nil || nv.Saved().Generation != 5 {
			t.Errorf("behind a flush: %v, %v, %+v", err, e, nv.Saved())
		}
	})
	if r.clock.Run(); !heard {
		t.Error("it never hears")
	}
}

// TestLastFlushIsAlone: the last flush begins when the one under way has ended, for there is one at a time; who
// waited shares it, and behind it none begins, whoever asks.
func TestLastFlushIsAlone(t *testing.T) {
	for _, busy := range []bool{false, true} {
		r := newFlushRig(t)
		r.record()
		want := []string{}
		if busy {
			r.after("a")
			r.saw("begun")
			want = append(want, "ended+advanced", "a", "heard")
		}
		r.fl.Last(func(err error) {
			if err != nil || r.fl.Running() {
				t.Errorf("busy %v: it ended %v, and one runs: %v", busy, err, r.fl.Running())
			}
			r.note("last")
		})
		if r.region.underWay != 1 {
			t.Errorf("busy %v: %d flushes are under way", busy, r.region.underWay)
		}
		r.after("b")
		r.fl.Want()
		r.fl.Poll(true)
		r.clock.Run()
		if busy {
			r.saw(append(want, "b", "last")...)
		} else { // the last one had begun, and does not have what is in NVRAM since
			r.saw("b failed", "last")
		}
		r.after("c")
		r.fl.Poll(true)
		r.clock.Run()
		if r.saw("c failed"); r.fl.Running() || r.region.underWay != 0 {
			t.Errorf("busy %v: a flush runs behind the last one", busy)
		}
	}
}
