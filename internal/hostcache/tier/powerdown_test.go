package tier

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// toldAtOnce is a device below that has news of the time before anybody listened.
type toldAtOnce struct {
	*path
	news []block.EventKind
}

func (d *toldAtOnce) Notify(fn func(block.Event)) {
	d.path.Notify(fn)
	for _, k := range d.news {
		fn(block.Event{Kind: k})
	}
}

// reopen starts again after a crash or an orderly stop; power: the array has lost its own
// meanwhile.
func (l *lab) reopen(power bool) {
	l.t.Helper()
	err := l.try(0, func(o *Options) {
		below := &toldAtOnce{path: l.path}
		if power {
			below.news = []block.EventKind{block.EventPowerLoss}
		}
		o.Below = below
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// again reopens and waits until the policy is in effect.
func (l *lab) again(power bool) {
	l.t.Helper()
	l.reopen(power)
	l.wait(func() bool { return l.d.State().Why == "" })
}

// warm: what was written is served from flash, and nothing is told to be lost.
func (l *lab) warm(value uint64) {
	l.t.Helper()
	was := len(l.a.log)
	l.want(0, 8, value)
	if len(l.a.log) != was {
		l.t.Error("what nobody has lost is not served from flash")
	}
	if s := l.flush(); s != block.OK {
		l.t.Errorf("a flush ends %v", s)
	}
}

// TestPowerLossWhileTheCacheWasDown: what it had sent and not flushed is gone below, so that it
// must not be served from flash, and a flush says so, whatever happens to the cache before one
// comes.
func TestPowerLossWhileTheCacheWasDown(t *testing.T) {
	through := func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} }
	back := func(value uint64) func(*lab) {
		return func(l *lab) {
			for s := range uint64(8) {
				l.a.data[s] = pattern(value, 1)
			}
		}
	}
	t.Run("after a crash", func(t *testing.T) {
		l := newLab(t, through)
		l.write(0, 8, 2)
		l.crash()
		back(1)(l)
		l.again(true)
		l.want(0, 8, 1)
		l.crash() // before anybody has asked for a flush
		l.again(false)
		l.want(0, 8, 1)
		l.d.j.renew() // the news is in the next snapshot as well
		l.d.pump()
		l.wait(func() bool { return !l.d.j.compact })
		l.crash()
		l.again(false)
		if s := l.flush(); s == block.OK {
			t.Error("a flush of what is lost succeeds")
		}
		if s := l.flush(); s != block.OK {
			t.Errorf("the next one ends %v", s)
		}
		l.crash()
		l.again(false)
		if s := l.flush(); s != block.OK {
			t.Errorf("after it was told of, a flush ends %v", s)
		}
	})
	t.Run("and it dies as soon as it is open", func(t *testing.T) {
		for luck := range 20 { // what is in flight gets to the flash, or not
			l := newLab(t, through)
			l.write(0, 8, 2)
			l.crash()
			for range luck {
				l.r.Uint64()
			}
			l.reopen(true)
			l.crash()
			l.again(false)
			if s := l.flush(); s == block.OK {
				t.Fatal("a flush of what is lost succeeds")
			}
		}
	})
	t.Run("after a crash without a loss of power", func(t *testing.T) {
		l := newLab(t, through)
		l.write(0, 8, 2)
		l.v.RunUntil(l.v.Now() + 100_000_000) // the fill, and its record
		l.crash()
		l.again(false)
		l.warm(2)
	})
	t.Run("after an orderly stop", func(t *testing.T) {
		l := newLab(t, func(w *world) {
			through(w)
			w.a.undo = map[uint64][][]byte{}
		})
		l.write(0, 8, 2)
		l.stop()
		if n := len(l.a.undo); n > 0 {
			t.Fatalf("%d sectors are volatile in the array after the stop", n)
		}
		l.path.dead = true
		l.again(true)
		l.warm(2)
	})
	t.Run("after an orderly stop and starts that died", func(t *testing.T) {
		for steps := range 60 {
			l := newLab(t, func(w *world) {
				through(w)
				w.opt.PowerSafe = steps%2 == 0
			})
			l.write(0, 8, 2)
			l.stop()
			l.path.dead = true
			for range 2 {
				open := false
				l.begin(0, nil, func(error) { open = true })
				for range steps / 2 {
					l.v.Step()
				}
				if steps > 50 {
					l.wait(func() bool { return open })
					l.want(0, 8, 2)
				}
				l.crash()
			}
			l.again(true)
			l.warm(2)
			if t.Failed() {
				t.Fatalf("it died after %d steps", steps/2)
			}
		}
	})
	t.Run("after an orderly stop and one write", func(t *testing.T) {
		for _, op := range []block.Op{block.OpWrite, block.OpWriteSame, block.OpUnmap} {
			for _, ended := range []bool{false, true} {
				l := newLab(t, through)
				l.write(0, 8, 2)
				l.stop()
				l.path.dead = true
				l.again(false)
				l.path.gate[op] = !ended
				r := &block.Request{Op: op, Range: block.Range{Start: 64, Count: 8}, Ranges: []block.Range{{Start: 64, Count: 8}}, Data: [][]byte{pattern(3, 8)}}
				if op == block.OpWriteSame {
					r.Data = [][]byte{pattern(3, 1)}
				}
				end := l.start(r)
				if ended {
					l.wait(end)
				} else { // the array has it
					l.wait(func() bool { return len(l.a.kept) > 0 })
				}
				l.crash()
				l.again(true)
				if s := l.flush(); s == block.OK {
					t.Errorf("%v, ended %v: a flush of what is lost succeeds", op, ended)
				}
			}
		}
	})
	t.Run("before there was a cache", func(t *testing.T) {
		l := newLab(t, through)
		l.crash()
		l.opt.Format = true
		l.again(true)
		l.write(0, 8, 2)
		if s := l.flush(); s != block.OK {
			t.Errorf("the first flush of a new cache ends %v", s)
		}
	})
	t.Run("what is dirty stays", func(t *testing.T) {
		l := newLab(t, withoutDestager)
		l.write(0, 8, 2)
		l.crash()
		back(1)(l)
		l.again(true)
		l.want(0, 8, 2)
	})
}

// powerLossWhileDown takes the array's first eight sectors back to what was there before, and nobody is told.
func (l *lab) powerLossWhileDown() {
	l.path.dead = true
	for s := range uint64(8) {
		l.a.data[s] = pattern(1, 1)
	}
}

// powerLossIsNoticed has the array lose power while the cache is down: the next start serves what is there,
// and says by a flush that fails that something is lost.
func (l *lab) powerLossIsNoticed() {
	l.t.Helper()
	l.powerLossWhileDown()
	l.again(true)
	l.want(0, 8, 1)
	if s := l.flush(); s == block.OK {
		l.t.Error("a flush of what is lost succeeds")
	}
}

// TestStopThatCannotFlushIsNoOrderlyOne: a loss of power behind it is one of what was sent.
func TestStopThatCannotFlushIsNoOrderlyOne(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.write(0, 8, 2)
	l.a.failing = 100
	l.stop()
	l.a.failing = 0
	l.powerLossIsNoticed()
}

// nameless is a LUN that cannot be told from others.
type nameless struct{ *path }

func (n nameless) Info() block.Info {
	i := n.path.Info()
	i.NAA = [16]byte{}
	return i
}

// TestLUNWithoutANameIsRefused: in one line that says what is missing.
func TestLUNWithoutANameIsRefused(t *testing.T) {
	l := newLab(t, nil)
	l.crash()
	_, err := l.open(func(o *Options) { o.Below = nameless{l.path} })
	if err == nil || !strings.Contains(err.Error(), "VPD page 83h") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %v", err)
	}
	if _, err := l.open(func(o *Options) {
		o.Below, o.Volatile, o.Policy, o.Format = nameless{l.path}, true, Policy{Mode: WriteThrough}, true
	}); err != nil {
		t.Errorf("a cache that keeps nothing is refused: %v", err)
	}
}

// growing is a device that has become larger before anybody listened.
type growing struct{ *toldAtOnce }

func (g growing) Notify(fn func(block.Event)) {
	g.sectors += 64
	g.toldAtOnce.Notify(fn)
}

// TestCapacityOfTheDeviceBelow: a change that was heard before the cache listened counts as well.
func TestCapacityOfTheDeviceBelow(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(100, 8, 1)
	l.crash()
	if err := l.try(0, func(o *Options) {
		o.Below = growing{&toldAtOnce{l.path, []block.EventKind{block.EventCapacity}}}
	}); err != nil {
		t.Fatal(err)
	}
	if n := l.d.Info().Sectors; n != 4096+64 {
		t.Errorf("the cache has %d sectors", n)
	}
	l.write(4096, 8, 2)
	l.want(4096, 8, 2)
	l.want(100, 8, 1)
}

// TestLabelOfAnEarlierVersionIsNoSeal: that closed its label without a flush of the array.
func TestLabelOfAnEarlierVersionIsNoSeal(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.write(0, 8, 2)
	l.stop()
	for i := range 2 {
		sector := l.cards[0].b[i*labelCopy:][:block.SectorSize]
		old, _ := decodeLabel(sector)
		old.flushed = false
		copy(sector, old.encode())
	}
	l.powerLossIsNoticed()
}

// TestStopBesideAWriteIsNoOrderlyOne: a write that is below when the cache is stopped ends behind
// the last flush.
func TestStopBesideAWriteIsNoOrderlyOne(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.path.gate[block.OpWrite] = true
	r := &block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(2, 8)}}
	end := l.start(r)
	l.stop()
	l.path.open(block.OpWrite)
	l.wait(end)
	l.powerLossWhileDown()
	l.again(true)
	if s := l.flush(); r.Status == block.OK && s == block.OK {
		t.Error("a flush of what is lost succeeds")
	}
}

// TestPowerLossOfHostBehindThatOfArray: without a sync of every write, too, the news of what the
// array has lost outlives a loss of the host's power, for the array does not say it again.
func TestPowerLossOfHostBehindThatOfArray(t *testing.T) {
	for _, running := range []bool{false, true} {
		l := newLab(t, func(w *world) {
			w.opt.Policy = Policy{Mode: WriteThrough}
			w.cards[0].volatile = true
		})
		l.write(0, 8, 2)
		if running {
			for _, fn := range l.path.notify {
				fn(block.Event{Kind: block.EventPowerLoss})
			}
			l.v.RunUntil(l.v.Now() + 100_000_000)
		} else {
			l.crash()
			l.again(true)
		}
		l.crash()
		l.cards[0].powerCut()
		l.bootID++
		l.again(false)
		if s := l.flush(); s == block.OK {
			t.Errorf("running %v: a flush of what is lost succeeds", running)
		}
	}
}
