package nvlog

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// firmware is a small user of the package that keeps its rules (see the package comment): commands with edits and
// pages, a back end to which pages go, checkpoints. Beside it stands the model: the list of all commands.
type firmware struct {
	t    testing.TB
	what string // how to run it again
	rnd  *rand.Rand

	layout Layout
	region *testRegion
	clock  *block.Virtual
	nv     *NVRAM
	log    *Log
	fl     *Flusher

	position position // of the last checkpoint; survives everything
	// backend is what the back end has by address; survives everything.
	backend map[layout.PageKey]uint64

	free             []uint32
	live             map[layout.PageKey]uint32 // the newest page of an address
	cooling, buried  []uint32
	coolNow, buryNow []uint32

	history  []command                 // since the position
	pending  *command                  // that is being appended
	base     map[layout.PageKey]uint64 // what was written before history
	stamp    uint64
	sure     int // commands of history that a loss of power must not undo
	sureNext int
	refused  int  // claims that found no room
	lost     bool // the power, and no recovery has come far enough since
	dropped  bool // the kernel has dropped a part of what it had, and no flush behind a recovery has ended
	undone   int  // records that the last recovery undid
}

type position struct {
	seq  uint64
	tail int
	last uint64 // newest record when it was committed
	gen  uint64
}

// command is what must be in the log as a whole or not at all.
type command struct {
	first uint64 // number of its first record
	edits []Edit
	wrote map[layout.PageKey]uint64 // stamps; 0: dropped
}

func newFirmware(t testing.TB, seed uint64, l Layout, async bool) *firmware {
	fw := &firmware{t: t, what: fmt.Sprintf("-run %s -seed %d", t.Name(), seed), rnd: rand.New(rand.NewPCG(seed, 1)), layout: l,
		backend: map[layout.PageKey]uint64{}, base: map[layout.PageKey]uint64{}}
	fw.clock = &block.Virtual{}
	fw.region = newTestRegion(l, fw.rnd, nil)
	if async {
		fw.region.exec = fw.clock
	}
	nv, err := open(fw.region.watched, true, l)
	fw.must(err)
	fw.boot(nv)
	fw.must(fw.fl.Truncate(0))
	fw.settle(nil)
	return fw
}

func (fw *firmware) must(err error) {
	fw.t.Helper()
	if err != nil {
		fw.t.Fatalf("%s: %v", fw.what, err)
	}
}

// boot makes the parts that a process has.
func (fw *firmware) boot(nv *NVRAM) {
	fw.nv, fw.log = nv, NewLog(nv)
	fw.fl = NewFlusher(nv, fw.log, fw.clock, 1000, Hooks{Begun: fw.begun, Ended: fw.ended, Heard: func() {}})
	fw.free, fw.live = nil, map[layout.PageKey]uint32{}
	fw.cooling, fw.buried, fw.coolNow, fw.buryNow = nil, nil, nil, nil
}

func (fw *firmware) begun() {
	fw.coolNow, fw.cooling = fw.cooling, nil
	fw.buryNow, fw.buried = fw.buried, nil
	fw.sureNext = len(fw.history)
}

func (fw *firmware) ended(o Outcome) {
	if o.Err != nil {
		fw.cooling = append(fw.coolNow, fw.cooling...)
		fw.buried = append(fw.buryNow, fw.buried...)
		return
	}
	fw.sure = max(fw.sure, fw.sureNext)
	fw.free = append(fw.free, fw.buryNow...)
	for _, i := range fw.coolNow {
		fw.retire(i, Superseded)
	}
}

func (fw *firmware) retire(page uint32, mark Tombstone) {
	fw.nv.Retire(page, mark)
	fw.buried = append(fw.buried, page)
}

// value returns what the model says of an address after the first n commands of history, and whether anything is to
// be said: of what was dropped, nothing is.
func (fw *firmware) value(k layout.PageKey, n int) (uint64, bool) {
	v, ok := fw.base[k]
	for _, c := range fw.history[:n] {
		if s, wrote := c.wrote[k]; wrote {
			v, ok = s, s != 0
		}
	}
	return v, ok
}

// claim claims room and compares the answer with the question.
func (fw *firmware) claim(edits int) (Claim, bool) {
	fits := fw.log.Fits(edits)
	room, ok := fw.log.Claim(edits)
	if ok != fits {
		fw.t.Fatalf("%s: a command with %d edits fits: %v, and gets a claim: %v", fw.what, edits, fits, ok)
	}
	if !ok {
		fw.refused++
		if !fw.log.Starved() {
			fw.t.Fatalf("%s: a claim was refused, and nobody starves", fw.what)
		}
	}
	return room, ok
}

func (fw *firmware) someEdits(n int) []Edit {
	edits := make([]Edit, n)
	for i := range edits {
		edits[i] = Edit{Volume: fw.rnd.Uint32(), State: block.State(fw.rnd.IntN(4)),
			Range: block.Range{Start: fw.rnd.Uint64(), Count: fw.rnd.Uint64()}, Phys: fw.rnd.Uint64()}
	}
	return edits
}

// append appends a command in full. Whatever else is in the log must stay as it is.
func (fw *firmware) append(room *Claim, c command, pages int) {
	before := fw.content()
	c.first = room.Next()
	fw.pending = &c
	for rest := c.edits; ; pages = 0 {
		next := room.Next()
		var ok bool
		if rest, ok = room.Append(rest, pages); !ok || fw.log.Seq() != next {
			fw.t.Fatalf("%s: the log refuses what was claimed: %v, or numbers it %d, not %d", fw.what, ok, fw.log.Seq(), next)
		}
		if len(rest) == 0 {
			break
		}
	}
	if now := fw.content(); fw.log.Used() >= fw.log.Size() || !bytes.HasPrefix(now, before) {
		fw.t.Fatalf("%s: an append has changed the records before it; %d of %d bytes are used", fw.what, fw.log.Used(), fw.log.Size())
	}
	fw.history, fw.pending = append(fw.history, c), nil
}

// content returns the bytes of the log between tail and head.
func (fw *firmware) content() []byte {
	l, ring := fw.log, fw.region.ring(fw.layout)
	if l.tail <= l.head {
		return slices.Clone(ring[l.tail:l.head])
	}
	return append(slices.Clone(ring[l.tail:]), ring[:l.head]...)
}

// write writes new stamps to some addresses, in a command with so many edits.
func (fw *firmware) write(pages, edits int) {
	room, ok := fw.claim(edits)
	if !ok || len(fw.free) < pages {
		return
	}
	c := command{edits: fw.someEdits(edits), wrote: map[layout.PageKey]uint64{}}
	seq := room.Next()
	var filled []uint32
	for range pages {
		k := layout.KeyOf(uint16(fw.rnd.IntN(2)), fw.rnd.Uint64N(6)*layout.PageSectors)
		if c.wrote[k] != 0 {
			continue
		}
		fw.stamp++
		i := fw.free[0]
		fw.free = fw.free[1:]
		fw.fill(i, fw.stamp)
		fw.nv.Describe(i).Seal(seq, k, 7, 0xff, 0)
		c.wrote[k] = fw.stamp
		filled = append(filled, i)
	}
	fw.append(&room, c, len(filled))
	for _, i := range filled {
		k := fw.nv.Descriptor(i).Key()
		if old, ok := fw.live[k]; ok {
			fw.cooling = append(fw.cooling, old)
		}
		fw.live[k] = i
	}
}

func (fw *firmware) fill(page uint32, stamp uint64) {
	data := fw.nv.Write(page, 0, layout.PageSectors)
	for at := 0; at < len(data); at += 8 {
		le.PutUint64(data[at:], stamp*0x9E3779B97F4A7C15+uint64(at))
	}
	d := fw.nv.Describe(page)
	for s := range layout.PageSectors {
		d.SetSum(s, crc32.Checksum(data[s*unit:(s+1)*unit], castagnoli))
	}
}

// drop has a command without pages make an address one of which nothing is to be said.
func (fw *firmware) drop(edits int) {
	room, ok := fw.claim(edits)
	if !ok {
		return
	}
	c := command{edits: fw.someEdits(edits), wrote: map[layout.PageKey]uint64{}}
	for k, i := range sorted(fw.live) {
		if fw.rnd.IntN(4) == 0 {
			c.wrote[k] = 0
			delete(fw.live, k)
			fw.cooling = append(fw.cooling, i)
		}
	}
	fw.append(&room, c, 0)
}

// destage brings pages to the back end that a loss of power cannot undo any more.
func (fw *firmware) destage() {
	for k, i := range sorted(fw.live) {
		if fw.nv.Descriptor(i).Seq() <= fw.fl.Flushed() && fw.rnd.IntN(2) == 0 {
			fw.backend[k], _ = fw.value(k, len(fw.history))
			delete(fw.live, k)
			fw.retire(i, Destaged)
		}
	}
}

// checkpoint commits one behind a flush.
func (fw *firmware) checkpoint() {
	seq, tail := fw.log.BeginCheckpoint()
	fw.fl.After(func(err error) {
		if err != nil {
			return
		}
		gone := 0
		for gone < len(fw.history) && fw.history[gone].first <= seq {
			gone++
		}
		fw.rebase(gone)
		fw.sure = max(0, fw.sure-gone)
		fw.sureNext = max(0, fw.sureNext-gone)
		fw.position = position{seq, tail, seq, fw.position.gen + 1}
		fw.log.Trim(tail)
		fw.fl.SetGeneration(fw.position.gen)
	})
}

// rebase makes the first n commands a part of what the model begins with.
func (fw *firmware) rebase(n int) {
	for _, c := range fw.history[:n] {
		for k, s := range c.wrote {
			if fw.base[k] = s; s == 0 {
				delete(fw.base, k)
			}
		}
	}
	fw.history = slices.Clone(fw.history[n:])
}

// step does something.
func (fw *firmware) step() {
	switch n := fw.rnd.IntN(20); {
	case n < 7:
		fw.write(1+fw.rnd.IntN(3), fw.rnd.IntN(4))
	case n < 9:
		fw.drop(1 + fw.rnd.IntN(8))
	case n < 10:
		fw.drop(1 + fw.rnd.IntN(3*MaxEdits))
	case n < 13:
		fw.destage()
	case n < 15:
		fw.fl.Poll(true)
	case n < 16:
		fw.fl.After(func(error) {})
	case n < 17 || fw.log.Starved():
		fw.checkpoint()
	case n < 18:
		fw.region.writeBack()
	case n < 19 && fw.region.exec != nil && fw.rnd.IntN(4) == 0:
		fw.region.fails = 1
	default:
		fw.clock.RunUntil(fw.clock.Now() + fw.rnd.Int64N(300))
	}
}
