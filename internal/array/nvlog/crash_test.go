package nvlog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// update is a write of NVRAM.
type update struct {
	part block.Part
	at   []byte
	old  []byte
	new  []byte
}

// dead is what a step panics with that does not survive an update.
type dead struct{ crash }

// watch calls begun before each update of NVRAM, and ended when its bytes are there.
func (fw *firmware) watch(begun func(), ended func(u *update)) (stop func()) {
	var u *update
	end := func() {
		if last := u; last != nil {
			u = nil
			last.new = slices.Clone(last.at)
			ended(last)
		}
	}
	fw.region.watched.On = func(part block.Part, b []byte) {
		end()
		begun()
		u = &update{part: part, at: b, old: slices.Clone(b)}
	}
	return func() {
		end()
		fw.region.watched.On = nil
	}
}

// dying is do, in which the process dies within the n-th update, or the power fails before it.
func (fw *firmware) dying(n int, power bool, do func()) (c crash, died bool) {
	defer func() {
		switch d := recover().(type) {
		case nil:
		case dead:
			c, died = d.crash, true
		default:
			panic(d)
		}
	}()
	kill := func(u *update) {
		if n--; n > 0 {
			return
		}
		from, to := 0, fw.rnd.IntN(len(u.new)+1)
		switch {
		case u.part == block.PartDescriptors:
			if to &^= 3; to < 8 {
				to = 0
			}
		case fw.rnd.IntN(3) == 0:
			from, to = to, len(u.new)
		}
		copy(u.at, u.old)
		copy(u.at[from:to], u.new[from:to])
		panic(dead{crash{what: fmt.Sprintf("death within part %d, bytes %d to %d of %d are there", u.part, from, to, len(u.new)),
			mem: fw.region.mem, disk: fw.region.disk, clean: fw.region.clean}})
	}
	cut := func() {
		if n--; n <= 0 {
			panic(dead{fw.powerCut()})
		}
	}
	if power {
		kill = func(*update) {}
	} else {
		cut = func() {}
	}
	stop := fw.watch(cut, kill)
	do()
	stop()
	return crash{}, false
}

func (fw *firmware) powerCut() crash {
	image := fw.region.cut()
	return crash{what: "power cut", mem: image, disk: slices.Clone(image), power: true}
}

// someCrash lets the firmware run for a while, and then the process die or the power fail.
func (fw *firmware) someCrash() crash {
	steps := 200
	if fw.rnd.IntN(2) == 0 { // what the crash before has left is still there
		steps = 6
	}
	for range fw.rnd.IntN(steps) {
		fw.step()
	}
	kind := fw.rnd.IntN(4)
	for range 50 {
		if kind >= 2 {
			break
		}
		if c, died := fw.dying(1+fw.rnd.IntN(1+fw.rnd.IntN(8)), kind == 1, fw.step); died {
			if kind == 0 && fw.rnd.IntN(3) == 0 { // before a start
				return fw.powerCut()
			}
			return c
		}
	}
	if kind == 2 {
		return fw.death("death")
	}
	return fw.powerCut()
}

// TestCrashes runs commands over a region, with flushes that take a while and fail, checkpoints, and pages that go to a back
// end. The process dies between updates and within them, and power is lost, also during recovery: what a start
// finds is the state after some first commands, each of them whole: all that were done, or all that were flushed.
func TestCrashes(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 30
	}
	base := testkit.Seed(t)
	refused, recovered, undone := 0, 0, 0
	for s := base; s < base+seeds; s++ {
		l := Layout{Rows: 1, Pages: 24, LogBytes: MinLogBytes, Payload: true}
		if s%6 != 0 {
			l.LogBytes = 1024 + int(s%5)*512
		}
		fw := newFirmware(t, s, l, s%4 != 0)
		for range 12 {
			for c, again := fw.someCrash(), true; again; {
				c, again = fw.recover(c)
			}
			recovered++
			undone += fw.undone
		}
		refused += fw.refused
	}
	if refused == 0 || undone == 0 {
		t.Errorf("in %d recoveries %d claims were refused, and %d records undone: the test does not get there", recovered, refused, undone)
	}
}

// anotherCrash ends a recovery.
func (fw *firmware) anotherCrash() crash {
	if fw.rnd.IntN(2) == 0 {
		return fw.powerCut()
	}
	c := fw.death("death in a recovery")
	c.starting = true
	return c
}

// stage is a stage of a recovery, in which the process dies now and then, or the power fails, or one behind the other.
func (fw *firmware) stage(do func()) (c crash, died bool) {
	if fw.rnd.IntN(3) != 0 {
		do()
		return crash{}, false
	}
	if c, died = fw.dying(1+fw.rnd.IntN(8), fw.rnd.IntN(3) == 0, do); died && !c.power && fw.rnd.IntN(3) == 0 {
		c = fw.powerCut()
	}
	c.starting, c.within = true, true
	return c, died
}
