package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

const erasePrefix = "erase-"

// erasures are the deaths that an erasure of a unit meets: SANITIZE or FORMAT UNIT, answered early or not, then writes by
// those who find the unit ready, over a save of the unit's state that is slow or fails. The laws:
//
//   - What was answered is carried out: early, a start goes on with it.
//   - An erasure that was told to have ended, because the unit is ready, is over: no start brings back
//     what it took, and none begins it again. What was written since stays.
var erasures = []string{"erase-kill", "erase-power"}

const (
	eraseImmed = 0x80 // of a command's flags
	eraseBound = 60e9 // how long an erasure of a unit may take
)

// saves is what becomes of saves of one unit's state, for a while.
type saves struct {
	on    bool
	lun   int
	delay int64 // ns
	fail  int   // which one fails, 0: none
	n     int   // that there were
}

var errSave = errors.New("input/output error")

// save keeps a unit's state. Saves are carried out in their order.
func (r *rig) save(lun int, state []byte, done func(error)) {
	blob := "unit." + volume(lun)
	s := &r.saves
	if !s.on || s.lun != lun {
		r.arr.SetBlob(blob, state, done)
		return
	}
	s.n++
	fails, arr := s.n == s.fail, r.arr
	r.exec.At(r.exec.Now()+s.delay, func() {
		if fails {
			done(errSave)
			return
		}
		arr.SetBlob(blob, state, done)
	})
}

// erasing returns a group with an erasure and a death.
func (g *generator) erasing() Group {
	out := Group{End: erasures[g.rng.IntN(len(erasures))], By: g.rng.IntN(hosts), On: g.rng.IntN(len(luns)),
		After: []int{0, 0, g.rng.IntN(10), g.rng.IntN(60)}[g.rng.IntN(4)], Stage: g.rng.IntN(3), Slow: []int{0, 0, 0, 5, 200, 3000}[g.rng.IntN(6)]}
	if g.rng.IntN(4) == 0 {
		out.Fail = 1 + g.rng.IntN(3)
	}
	c := Command{Op: g.pick("sanitize", "format", "overwrite"), Host: out.By, LUN: out.On, Flags: byte(g.rng.IntN(3)+1) / 2 * eraseImmed}
	if c.Op == "overwrite" {
		g.stamp++
		c.Stamp, c.N = g.stamp, 1+g.rng.Uint64N(2) // passes
	}
	out.Commands = []Command{c}
	for range 1 + g.rng.IntN(4) {
		g.stamp++
		w := Command{Op: "write", Form: 10, Host: out.By, LUN: out.On, Stamp: g.stamp, N: 1 + g.rng.Uint64N(luns[out.On].blocks()/8)}
		w.LBA = g.rng.Uint64N(luns[out.On].blocks() - w.N + 1)
		if !slices.ContainsFunc(out.Commands[1:], w.conflicts) {
			out.Commands = append(out.Commands, w)
		}
	}
	return out
}

// eraseCDB returns the CDB and the parameter list of an erasure.
func (c Command) eraseCDB() (cdb, list []byte) {
	immed := c.Flags & eraseImmed
	switch c.Op {
	case "sanitize":
		return []byte{0x48, 2 | immed, 0, 0, 0, 0, 0, 0, 0, 0}, nil
	case "overwrite":
		pattern := strings.Join(sectorsOf(c.Stamp, luns[c.LUN].block), "")
		list = append([]byte{byte(c.N), 0, byte(len(pattern) >> 8), byte(len(pattern))}, pattern...)
		return []byte{0x48, 1 | immed, 0, 0, 0, 0, 0, byte(len(list) >> 8), byte(len(list)), 0}, list
	}
	if immed == 0 {
		return []byte{0x04, 0, 0, 0, 0, 0}, nil
	}
	return []byte{0x04, 0x10, 0, 0, 0, 0}, []byte{0, 2, 0, 0}
}

// eraseGroup runs a group with an erasure and a death. By what the erasure was told to be at the stage when death comes,
// the model knows what the next start has to find.
func (r *run) eraseGroup(g Group) error {
	c := g.Commands[0]
	if c.Op == "write" { // a program that was made shorter
		return nil
	}
	_, w := r.m.judge(c)
	r.saves = saves{on: true, lun: g.On, delay: int64(g.Slow) * 1e6, fail: g.Fail}
	lun, cdb, list, _ := r.cdb(c, nil)
	x := r.send(c.Host, lun, cdb, list, 0, false)
	good := func() bool { return x.over && x.task.Status == scsi.StatusGood }
	ready := false
	if g.Stage > 0 {
		if r.until(func() bool { return x.over }); !x.over {
			return fmt.Errorf("{%s} does not end", source(c))
		}
		if !good() && g.Fail == 0 || w.status != scsi.StatusGood {
			if msg := w.verdict(x.task, nil); msg != "" {
				return fmt.Errorf("{%s} %s", source(c), msg)
			}
		}
		ready = good() && c.Flags&eraseImmed == 0
	}
	if g.Stage > 1 && w.status == scsi.StatusGood {
		var err error
		if ready, err = r.ready(g); err != nil {
			return err
		}
	}
	// From here on it is erased, or will be.
	var started []*running
	var wants []want
	certain := func() {
		r.m.apply(w.effects)
		r.m.luns[g.On].flushed()
	}
	if ready {
		certain()
		r.erased.over++
		for _, c := range g.Commands[1:] {
			out, w := r.m.judge(c)
			lun, cdb, list, in := r.cdb(c, out)
			started, wants = append(started, r.send(c.Host, lun, cdb, list, in, false)), append(wants, w)
		}
		if len(started) > 0 {
			r.until(func() bool { return started[0].over })
		}
	}
	for range g.After {
		r.exec.Step()
	}
	switch {
	case ready:
	case good():
		certain()
	default:
		started, wants = append(started, x), append(wants, w)
	}
	end := Group{End: strings.TrimPrefix(g.End, erasePrefix), Commands: g.Commands}
	if ready {
		end.Commands = g.Commands[1:]
	}
	r.saves = saves{}
	wrote := slices.ContainsFunc(started, func(x *running) bool { return ready && x.over })
	if wrote {
		r.erased.written++
	}
	return r.die(end, started, wants, func() ([]effect, error) { return w.effects, r.erasedAgain(g, ready) })
}

// test returns the sense code of TEST UNIT READY behind all unit attentions.
func (r *run) test(host, lun int) (status byte, sense int) {
	for range 8 {
		t := r.do(host, lun, make([]byte, 6), nil, 0).task
		key, asc, q := scsitest.SenseCode(t.Sense)
		if status, sense = t.Status, int(key)<<16|int(asc)<<8|int(q); status != scsi.StatusCheckCondition || key != 6 {
			break
		}
	}
	return status, sense
}

// ready waits until the erasure of a unit has ended, and reports whether the unit is ready; where a save fails the
// erasure may have failed, too.
func (r *run) ready(g Group) (bool, error) {
	for limit := r.exec.Now() + eraseBound; r.exec.Now() < limit; r.exec.RunUntil(r.exec.Now() + 1e6) {
		switch status, sense := r.test(g.By, g.On); {
		case status == scsi.StatusGood:
			return true, nil
		case sense>>8 == 0x0331: // it says that the erasure has failed
			if g.Fail == 0 {
				return false, fmt.Errorf("the erasure has failed with %06x", sense)
			}
			r.erased.failed++
			return false, nil
		case sense != 0x020404 && sense != 0x02041B:
			return false, fmt.Errorf("a unit that is erased says %s", codes(status, sense))
		}
	}
	return false, errors.New("the erasure does not end")
}

// erasedAgain lets an erasure end that goes on after a start. One that had ended does not.
func (r *run) erasedAgain(g Group, ended bool) error {
	status, sense := r.test(g.By, g.On)
	switch {
	case status == scsi.StatusReservationConflict || status == scsi.StatusGood: // nobody erases for who is kept away
		return nil
	case ended:
		return fmt.Errorf("the erasure had ended, and the next start says %s", codes(status, sense))
	}
	r.erased.again++
	_, err := r.ready(Group{By: g.By, On: g.On})
	return err
}

// TestErasures runs programs of erasures and deaths alone, and sees that all of what they are about occurs.
func TestErasures(t *testing.T) {
	seeds := 12
	if testing.Short() || underRace {
		seeds = 8
	}
	first := firstSeed(t, seeds)
	var sum struct{ over, written, failed, again int }
	// A few seeds need not have all that these programs are about: of eight, one in fifteen has no erasure that fails.
	all := func() bool { return sum.over > 0 && sum.written > 0 && sum.failed > 0 && sum.again > 0 }
	for seed := first; seed < first+uint64(seeds) || !all() && seed < first+uint64(10*seeds); seed++ {
		g := &generator{rng: rand.New(rand.NewPCG(seed, 0xE5))}
		var groups []Group
		for range 12 {
			groups = append(groups, g.erasing())
		}
		for _, s := range []Setup{{Store: "memory", Profile: "none"}, {Store: "files", Profile: "none"}} {
			r, err := play(groups, s)
			if err != nil {
				t.Fatalf("%v: %v\nrepeat with -run TestErasures -first=%d", s, err, seed)
			}
			d := r.erased
			sum.over, sum.written, sum.failed, sum.again = sum.over+d.over, sum.written+d.written, sum.failed+d.failed, sum.again+d.again
		}
	}
	if !all() {
		t.Errorf("the programs had: %+v", sum)
	}
	t.Logf("the programs had: %+v", sum)
}
