// Starts that fail, that die, and that find damage where nobody heard how a flush ended.

package nvlog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestDeathInATruncateBehindAnUnheardFlush: a flush failed unheard, and the kernel has dropped a
// descriptor: its record is undone. The start dies within Truncate, before any of its updates of
// NVRAM. The next start finds the same.
func TestDeathInATruncateBehindAnUnheardFlush(t *testing.T) {
	for n := 1; n < 12; n++ {
		fw := newFirmware(t, 1, Layout{Rows: 1, Pages: 24, LogBytes: MinLogBytes, Payload: true}, false)
		fw.write(1, 1)
		fw.fl.Poll(true)
		fw.fl.After(func(error) {})
		fw.write(1, 1)
		fw.write(1, 1)
		first := fw.history[1].first
		// A flush begins, fails, and the kernel drops what it could not write of the first of the two.
		fw.nv.setBegun(fw.region.boot)
		for i := range uint32(fw.nv.Pages) {
			if fw.nv.Descriptor(i).Seq() == first {
				at := fw.layout.Region().Offset(block.PartDescriptors) + int(i)*descBytes&^(unit-1)
				copy(fw.region.unit(fw.region.mem, at), fw.region.disk[at:])
			}
		}
		c := crash{what: "death within a flush", mem: fw.region.mem, disk: fw.region.disk, clean: fw.region.clean, dropped: true}
		o := fw.open(c)
		if o.err != nil || o.end.Last != first-1 {
			t.Fatalf("%v, last %d, want %d", o.err, o.end.Last, first-1)
		}
		fl := NewFlusher(o.nv, o.log, fw.clock, 1000, Hooks{Begun: func() {}, Ended: func(Outcome) {}, Heard: func() {}})
		fl.Restore(o.saved)
		left, over := n, false
		what := ""
		func() {
			defer func() { recover() }()
			o.region.watched.On = func(p block.Part, b []byte) {
				if left--; left == 0 {
					what = fmt.Sprintf("before update %d, of part %d", n, p)
					panic("dead")
				}
			}
			fl.Truncate(fw.position.gen)
			over = true
		}()
		o.region.watched.On = nil
		if over {
			return
		}
		again := fw.open(crash{what: "death in a start", mem: o.region.mem, disk: o.region.disk, clean: o.region.clean, starting: true})
		if again.err != nil || again.end.Last != o.end.Last {
			t.Errorf("death %s: %v; the log ends with %d, not %d", what, again.err, again.end.Last, o.end.Last)
		}
	}
}

// TestHeaderThatTheKernelDropped: a flush failed unheard, and the kernel has dropped the page of the header, so that an older one
// says that no flush had begun. The log goes on behind what that says is its end: the start knows, and trusts no page that the
// kernel takes for clean.
func TestHeaderThatTheKernelDropped(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		fw := newFirmware(t, 1, Layout{Rows: 1, Pages: 24, LogBytes: MinLogBytes, Payload: true}, false)
		fw.write(1, 1)
		fw.fl.Poll(true)
		fw.fl.After(func(error) {})
		header := fw.region.mem[:headerBytes]
		copy(fw.region.disk, header) // the kernel writes it back by itself
		for range 4 {
			fw.write(1, 1)
		}
		first := fw.history[2].first
		if dropped {
			for i := range uint32(fw.nv.Pages) {
				if fw.nv.Descriptor(i).Seq() == first {
					at := fw.layout.Region().Offset(block.PartDescriptors) + int(i)*descBytes&^(unit-1)
					copy(fw.region.unit(fw.region.mem, at), fw.region.disk[at:])
				}
			}
			copy(header, fw.region.disk)
		}
		c := crash{what: "death within a flush", mem: fw.region.mem, disk: fw.region.disk, clean: fw.region.clean, dropped: dropped}
		o := fw.open(c)
		if o.err != nil || (o.end.Last < first) != dropped || o.region.distrusted != dropped || o.saved.unheard {
			t.Errorf("dropped %v: %v, the log ends with %d, %d was dropped; pages are distrusted: %v", dropped, o.err, o.end.Last, first, o.region.distrusted)
		}
	}
}

// TestDeathInATruncateOfHalfACommand: the process dies behind the first record of a command that has two. A start
// undoes it, and dies before any of its updates of NVRAM. The next start finds the same.
func TestDeathInATruncateOfHalfACommand(t *testing.T) {
	for n := 1; ; n++ {
		fw := newFirmware(t, 1, Layout{Rows: 1, Pages: 24, LogBytes: MinLogBytes, Payload: true}, false)
		fw.write(1, 1)
		room, ok := fw.claim(MaxEdits + 1)
		if !ok {
			t.Fatal("there is no room")
		}
		whole := fw.log.Seq()
		if _, ok := room.Append(fw.someEdits(MaxEdits+1), 0); !ok {
			t.Fatal("the log refuses what was claimed")
		}
		o := fw.open(fw.death("death"))
		if o.err != nil || o.end.Last != whole {
			t.Fatalf("%v, last %d, want %d", o.err, o.end.Last, whole)
		}
		fl := NewFlusher(o.nv, o.log, fw.clock, 1000, Hooks{Begun: func() {}, Ended: func(Outcome) {}, Heard: func() {}})
		fl.Restore(o.saved)
		left, over := n, false
		func() {
			defer func() { recover() }()
			o.region.watched.On = func(block.Part, []byte) {
				if left--; left == 0 {
					panic("dead")
				}
			}
			fl.Truncate(fw.position.gen)
			over = true
		}()
		o.region.watched.On = nil
		again := fw.open(crash{what: "death in a start", mem: o.region.mem, disk: o.region.disk, clean: o.region.clean, starting: true})
		if again.err != nil || again.end.Last != whole {
			t.Errorf("death before update %d: %v; the log ends with %d, not %d", n, again.err, again.end.Last, whole)
		}
		if over {
			return
		}
	}
}

// TestFailedStartOverFormat1: the first start over NVRAM of format 1 cannot flush it. The next one
// writes all of it.
func TestFailedStartOverFormat1(t *testing.T) {
	store, l, r := format1()
	for start := range 2 {
		r.distrusted = false // another process
		n, _, err := Open(store, "nvram", l)
		if err != nil {
			t.Fatal(err)
		}
		f := NewFlusher(n, NewLog(n), nil, 0, Hooks{})
		f.Restore(n.Saved())
		if start == 1 && !r.distrusted {
			t.Error("a flush has failed, and the next process takes the kernel's word for what is clean")
		}
		r.fails = 2 // one is tried again
		if f.FlushNow() == nil {
			t.Fatal("it does not fail")
		}
	}
}

// TestFlippedDescriptorBehindADeathInAFlush: the process dies within a flush, nothing is missing, and
// one bit of a descriptor is flipped, any but those of a number that is missing then: it is mended,
// and nothing that was acknowledged is undone.
func TestFlippedDescriptorBehindADeathInAFlush(t *testing.T) {
	for bit := range 8 * descBytes {
		begun := bit%2 == 1
		fw := newFirmware(t, 1, Layout{Rows: 1, Pages: 24, LogBytes: MinLogBytes, Payload: true}, false)
		for range 3 {
			fw.write(1, 1)
		}
		if begun {
			fw.nv.setBegun(fw.region.boot)
		}
		first := fw.history[0].first
		for i := range uint32(fw.nv.Pages) {
			if d := fw.nv.Descriptor(i); d.Seq() == first {
				d[bit/8] ^= 1 << (bit % 8)
			}
		}
		o := fw.open(crash{what: "death", mem: fw.region.mem, disk: fw.region.disk, clean: fw.region.clean})
		if o.err != nil || o.end.Undone != 0 {
			t.Errorf("bit %d, within a flush: %v: %v; %d records are undone, power lost: %v", bit, begun, o.err, o.end.Undone, o.end.PowerLost)
		}
	}
}

// TestTornStateThenPowerLoss: the process dies within a write of the state block, at any of its bytes, the
// kernel writes that sector alone, and the power fails before a start. The state says no less than what
// the last flush that ended well has made durable.
func TestTornStateThenPowerLoss(t *testing.T) {
	torn := 0
	for s := range uint64(20) {
		fw := newFirmware(t, s, Layout{Rows: 1, Pages: 24, LogBytes: MinLogBytes, Payload: true}, true)
		saved := func(image []byte) Saved {
			c := crash{mem: image, disk: slices.Clone(image), power: true}
			return fw.open(c).nv.Saved()
		}
		var begun, durable Saved
		fw.region.begun = func() { begun = fw.nv.Saved() }
		ended := fw.fl.hooks.Ended
		fw.fl.hooks.Ended = func(o Outcome) {
			if ended(o); o.Err == nil {
				durable = begun
			}
		}
		stop := fw.watch(func() {}, func(u *update) {
			if u.part != block.PartState || len(u.new) != stateBytes {
				return
			}
			at := stateOffset
			if &u.at[0] == &fw.nv.header[otherOffset] {
				at = otherOffset
			}
			for n := 1; n < stateBytes; n += 4 {
				image := slices.Clone(fw.region.disk)
				copy(fw.region.unit(image, at), fw.region.mem[at:])
				copy(image[at+n:], u.old[n:])
				torn++
				if after := saved(image); after.damaged || after.Flushed < durable.Flushed || after.Generation < durable.Generation {
					t.Fatalf("seed %d: %d bytes of a state block are written: records to %d and batches to %d are durable, and it says %d and %d, damaged: %v",
						s, n, durable.Flushed, durable.Generation, after.Flushed, after.Generation, after.damaged)
				}
			}
		})
		for range 400 {
			fw.step()
		}
		stop()
	}
	if torn < 1000 {
		t.Errorf("%d torn writes: the test does not get there", torn)
	}
}
