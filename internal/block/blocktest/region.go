package blocktest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// RegionRig is a store whose NVRAM is put to the test, and what can happen to it.
type RegionRig struct {
	// Open opens what there is, also after Kill and Cut.
	Open func(exec *block.Virtual) (block.Store, error)
	// Kill is the death of the process, without Close.
	Kill func()
	// Cut is a loss of power; nil: the store knows of none.
	Cut func()
	// Fail has flushes fail from now on, or not any more; nil: they never do.
	Fail func(bool)
	// WriteBack makes some of what was written durable, as a kernel does at any time; it may be nil.
	WriteBack func()
	// Whole: what one call has written is there as a whole after Kill or not at all.
	Whole bool
}

// Region runs the contract of block.Region against rigs: commands as the array has them, with pages, descriptors, a record and
// the state, and commits and flushes that take their time; deaths of the process at any moment, and losses of power. What is there
// afterwards is compared with all that was ever written.
func Region(t *testing.T, seed uint64, open func(t *testing.T, rnd *rand.Rand) RegionRig) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 40
	}
	var saw regionSights
	for s := seed; s < seed+seeds; s++ {
		rnd := rand.New(rand.NewPCG(s, 11))
		rig := open(t, rnd)
		x := &regionTest{t: t, what: fmt.Sprintf("-run %s -seed %d", t.Name(), s), rig: rig, rnd: rnd, saw: &saw}
		x.reopen(true)
		for range 12 {
			for range 1 + rnd.IntN(60) {
				x.step()
			}
			x.crash()
		}
	}
	if saw.records == 0 || saw.flushes == 0 || saw.kills == 0 || saw.remote && (saw.commits == 0 || saw.lost == 0 || saw.torn == 0 && !saw.whole) || saw.cut && saw.cuts == 0 {
		t.Errorf("the test does not get there: %+v", saw)
	}
}

// regionSights counts what has happened.
type regionSights struct {
	records, commits, flushes, failed, kills, cuts, lost, torn int
	remote, cut, whole                                         bool // the region is not local; its power can be cut; nothing is torn
}

// The region of the test: a record in each place of the log.
const (
	testPages  = 12
	testUnit   = 64 // bytes that are compared at a time: no part shares one with another
	testRecord = 128
	testLog    = 32 * testRecord
)

var testLayout = block.RegionLayout{State: 4096, Counters: 4 * 64, Descriptors: testPages * 64, Log: testLog, Pages: testPages * 4096}

// written is what a command has made of a unit, and when: commands are numbered.
type written struct {
	command int
	b       [testUnit]byte
}

type regionTest struct {
	t    *testing.T
	what string
	rig  RegionRig
	rnd  *rand.Rand
	saw  *regionSights

	exec   *block.Virtual
	store  block.Store
	r      block.Region
	memory block.RegionMemory

	command   int                         // number of the last one
	committed int                         // the last one of which a death leaves all
	flushed   int                         // the last one of which a loss of power leaves all
	history   [block.NumParts][][]written // by unit, from what is sure to what is newest
	free      []int                       // pages
	used      []int                       // those of commands, the oldest first
	busy      bool                        // a flush is under way
	failing   bool
	boot      uint64
	appended  map[int]int // the place in the log of a command's record
}

func (x *regionTest) fatal(format string, args ...any) {
	x.t.Helper()
	x.t.Fatalf("%s: command %d: %s", x.what, x.command, fmt.Sprintf(format, args...))
}

// reopen opens the region; what it holds is what the test begins with.
func (x *regionTest) reopen(fresh bool) {
	x.exec = &block.Virtual{}
	var err error
	if x.store, err = x.rig.Open(x.exec); err != nil {
		x.fatal("%v", err)
	}
	r, new, err := x.store.Region("nvram", testLayout)
	if err != nil || fresh && !new {
		x.fatal("fresh %v, %v", new, err)
	}
	x.r, x.memory = r, r.Memory()
	x.saw.remote, x.saw.cut, x.saw.whole = !r.Local(), x.rig.Cut != nil, x.rig.Whole
	if x.failing {
		x.r.Distrust()
	}
	x.busy = false
}

// settle begins anew with what is there.
func (x *regionTest) settle() {
	if x.rig.Fail != nil {
		x.rig.Fail(false)
	}
	if err := x.r.FlushNow(); err != nil {
		x.fatal("%v", err)
	}
	x.failing, x.boot = false, x.r.Boot()
	x.committed, x.flushed = x.command, x.command
	x.free, x.used, x.appended = nil, nil, map[int]int{}
	for i := range testPages {
		x.free = append(x.free, i)
	}
	for p := range block.NumParts {
		b := x.bytes(p)
		x.history[p] = make([][]written, len(b)/testUnit)
		for i := range x.history[p] {
			x.history[p][i] = []written{{x.command, [testUnit]byte(b[i*testUnit:])}}
		}
	}
}

// bytes returns what a part holds.
func (x *regionTest) bytes(p block.Part) []byte {
	if p != block.PartLog {
		return x.memory.Part(p)
	}
	b := make([]byte, testLog)
	if err := x.r.ReadLog(0, b); err != nil {
		x.fatal("the log cannot be read: %v", err)
	}
	return b
}

// wrote books what a command has made of bytes of a part.
func (x *regionTest) wrote(p block.Part, off int, b []byte) {
	for len(b) > 0 {
		i, in := off/testUnit, off%testUnit
		n := min(len(b), testUnit-in)
		list := x.history[p][i]
		w := written{x.command, list[len(list)-1].b}
		copy(w.b[in:], b[:n])
		x.history[p][i] = append(list, w)
		b, off = b[n:], off+n
	}
}

// put writes bytes of a part in place, as the array does.
func (x *regionTest) put(p block.Part, off int, b []byte) {
	if !x.r.Local() && p != block.PartCounters {
		x.r.Announce(p, off, len(b))
	}
	copy(x.memory.Part(p)[off:], b)
	x.wrote(p, off, b)
}

func (x *regionTest) random(n int) []byte {
	b := make([]byte, n)
	for at := b; len(at) > 0; at = at[min(len(at), 8):] {
		var eight [8]byte
		binary.LittleEndian.PutUint64(eight[:], x.rnd.Uint64())
		copy(at, eight[:])
	}
	return b
}

// record returns the record of the present command.
func (x *regionTest) record() []byte {
	return bytes.Repeat([]byte{byte(x.command), byte(x.command >> 8), byte(x.command >> 16), 0xa5}, testRecord/4)
}

// write is a command.
func (x *regionTest) write() {
	place := (x.command + 1) % (testLog / testRecord) * testRecord
	for c, at := range x.appended {
		if at == place && c > x.flushed {
			return // the log is full
		}
	}
	x.command++
	n := min(x.rnd.IntN(3), len(x.free))
	for _, p := range x.free[:n] {
		first, count := 0, 8
		if x.rnd.IntN(2) == 0 {
			first = x.rnd.IntN(8)
			count = 1 + x.rnd.IntN(8-first)
		}
		x.put(block.PartPages, p*4096+first*512, x.random(count*512))
		x.put(block.PartDescriptors, p*64, x.random(64))
	}
	x.used, x.free = append(x.used, x.free[:n]...), x.free[n:]
	x.r.Append(place, x.record())
	x.wrote(block.PartLog, place, x.record())
	x.appended[x.command] = place
	x.saw.records++
	x.put(block.PartState, x.rnd.IntN(8)*512+x.rnd.IntN(480), x.random(16))
	x.put(block.PartCounters, x.rnd.IntN(testLayout.Counters/8)*8, x.random(8))
}

func (x *regionTest) commit() {
	upTo := x.command
	if x.r.Local() {
		return
	}
	x.r.Commit(func(err error) {
		if err != nil {
			x.fatal("a commit failed: %v", err)
		}
		if x.committed > upTo {
			return // a flush was faster
		}
		x.committed = upTo
		x.saw.commits++
	})
}

// flush flushes; who waits for it may use the pages of earlier commands again.
func (x *regionTest) flush() {
	if x.busy {
		return
	}
	x.busy = true
	upTo, used := x.command, len(x.used)
	x.r.Flush(func(err error) {
		x.busy = false
		if x.failing = err != nil; err != nil {
			x.saw.failed++
			return
		}
		x.flushed, x.committed = upTo, max(x.committed, upTo)
		x.free, x.used = append(x.free, x.used[:used]...), x.used[used:]
		x.saw.flushes++
	})
}

func (x *regionTest) step() {
	if x.history[0] == nil {
		x.settle()
	}
	switch n := x.rnd.IntN(20); {
	case n < 10:
		x.write()
	case n < 14:
		x.commit()
	case n < 16:
		x.flush()
	case n < 17 && x.rig.Fail != nil:
		x.rig.Fail(x.rnd.IntN(2) == 0)
	case n < 18 && x.rig.WriteBack != nil:
		x.rig.WriteBack()
	default:
		x.exec.RunUntil(x.exec.Now() + x.rnd.Int64N(3000))
	}
}

// crash ends the process, with or without the power, and looks at what is left.
func (x *regionTest) crash() {
	local := x.r.Local()
	cut := x.rig.Cut != nil && x.rnd.IntN(2) == 0
	if cut {
		x.rig.Cut()
		x.saw.cuts++
	} else {
		x.rig.Kill()
		x.saw.kills++
	}
	if x.failing = x.failing || x.busy; cut {
		x.failing = false
	}
	x.reopen(false)
	if boot := x.r.Boot(); !cut && boot != x.boot || cut && boot == x.boot && boot != 0 {
		x.fatal("power was lost: %v; the boot was %d, and is %d", cut, x.boot, boot)
	}
	switch {
	case cut:
		x.look(x.flushed, func(p block.Part, _, least int) int { return least })
	case local:
		x.look(x.command, func(p block.Part, _, _ int) int { return x.command })
	default:
		x.lookKilled()
	}
	x.settle()
}

// lookKilled looks at what the death of the process has left of a region that is not local: of the commands the first ones, and each
// with its pages and descriptors; the state says nothing of records that are not there.
func (x *regionTest) lookKilled() {
	log, newest := x.bytes(block.PartLog), x.committed
	for c, at := range x.appended {
		was := x.command
		x.command = c
		if bytes.Equal(log[at:at+testRecord], x.record()) {
			newest = max(newest, c)
		}
		x.command = was
	}
	x.saw.lost += x.command - newest
	found := x.look(x.committed, func(p block.Part, _, least int) int {
		switch p {
		case block.PartPages, block.PartDescriptors, block.PartLog:
			return newest
		}
		return least
	})
	for i, c := range found[block.PartState] {
		if c > newest {
			x.fatal("unit %d of the state is of command %d, and the log ends with %d", i, c, newest)
		}
	}
}

// look compares all parts with what was written: each unit holds what some command made of it, at least the last one up to what
// atLeast says for it, which gets least. It returns whose they are, at least.
func (x *regionTest) look(least int, atLeast func(p block.Part, unit, least int) int) (found [block.NumParts][]int) {
	x.t.Helper()
	for p := range block.NumParts {
		b, from := x.bytes(p), least
		if p == block.PartCounters && !x.r.Local() {
			from = x.flushed
		}
		found[p] = make([]int, len(x.history[p]))
		for i, list := range x.history[p] {
			now, need := b[i*testUnit:(i+1)*testUnit], atLeast(p, i, from)
			k := len(list) - 1
			for k >= 0 && !bytes.Equal(list[k].b[:], now) && !x.isTorn(p, list, k, now) {
				k--
			}
			if k < 0 {
				x.fatal("unit %d of part %d holds what nobody wrote; %d commands are committed, %d flushed", i, p, x.committed, x.flushed)
			}
			// A command may have written what was there: then the unit is of the older one, too.
			oldest := k
			for oldest > 0 && list[oldest-1].b == list[k].b {
				oldest--
			}
			if found[p][i] = list[oldest].command; k+1 < len(list) && list[k+1].command <= need {
				x.fatal("unit %d of part %d is of command %d; that of command %d is lost, of %d committed and %d flushed", i, p, list[k].command, list[k+1].command, x.committed, x.flushed)
			}
		}
	}
	return found
}

// wordsOf tells whether each word of a unit is one of these versions'.
func wordsOf(list []written, now []byte) bool {
	for at := 0; at < testUnit; at += 8 {
		if !slices.ContainsFunc(list, func(w written) bool { return bytes.Equal(w.b[at:at+8], now[at:at+8]) }) {
			return false
		}
	}
	return true
}

// isTorn tells whether a unit holds an update's first bytes over what was there before: the k-th is the older one.
func (x *regionTest) isTorn(p block.Part, list []written, k int, now []byte) bool {
	if p == block.PartCounters {
		return wordsOf(list[k:], now)
	}
	if k+1 >= len(list) || list[k+1].command <= x.committed {
		return false
	}
	if p != block.PartLog || x.rig.Whole {
		return false
	}
	old, next := list[k].b[:], list[k+1].b[:]
	for n := 1; n < testUnit; n++ {
		if bytes.Equal(now[:n], next[:n]) && bytes.Equal(now[n:], old[n:]) {
			x.saw.torn++
			return true
		}
	}
	return false
}
