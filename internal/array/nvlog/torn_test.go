package nvlog

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// cuts calls fn with how much of an update may be there when the process dies within it: bytes [from, to). A
// descriptor's words are written one after the other, each as a whole: no processor tears an aligned word, and the first
// has 8 bytes. Data, and what a checksum covers, may stop at any byte in any order.
func (u *update) cuts(fn func(from, to int)) {
	every := 1
	switch u.part {
	case block.PartDescriptors:
		for to := 8; to <= len(u.new); to += 4 {
			fn(0, to)
		}
		return
	case block.PartPages:
		every = 97
	}
	for at := 0; at <= len(u.new); at += every {
		fn(0, at)
		fn(at, len(u.new))
	}
}

// small is a layout of which thousands of images can be looked at.
var small = Layout{Rows: 1, Pages: 8, LogBytes: 2048, Payload: true}

// ready returns a firmware in the middle of its work, with so many free pages and with room in the log.
func ready(t *testing.T, seed uint64, l Layout, pages, edits int) *firmware {
	fw := newFirmware(t, seed, l, false)
	for range 50 + fw.rnd.IntN(200) {
		fw.step()
	}
	fw.makeRoom(pages, edits)
	return fw
}

// makeRoom makes room in the log and has so many pages free.
func (fw *firmware) makeRoom(pages, edits int) {
	for range 100 {
		if len(fw.free) >= pages && fw.log.Fits(edits) {
			return
		}
		fw.checkpoint()
		fw.destage()
		fw.fl.Poll(true)
	}
	fw.t.Fatalf("%s: no room", fw.what)
}

// TestTornCommands stops the writes of a command at every byte of its records and its descriptors, and at many of its
// data: it is there as a whole, or it never was.
func TestTornCommands(t *testing.T) {
	base := testkit.Seed(t)
	nothing, all, wraps := 0, 0, 0
	for s := base; s < base+24; s++ {
		l, edits, pages := small, int(s%7), int(s%3)
		if s%8 == 7 { // several records
			l.LogBytes, edits, pages = MinLogBytes, MaxEdits+1+int(s%3), 0
		}
		fw := ready(t, s, l, pages, edits)
		for n := 0; s%4 == 3 && n < 500 && !fw.log.wraps(fw.log.head, recordBytes(min(edits, MaxEdits))); n++ {
			fw.step()
			fw.makeRoom(pages, edits)
		}
		before, head := slices.Clone(fw.region.mem), fw.log.head
		var updates []*update
		stop := fw.watch(func() {}, func(u *update) { updates = append(updates, u) })
		if pages == 0 {
			fw.drop(edits)
		} else {
			fw.write(pages, edits)
		}
		stop()
		if fw.log.head < head {
			wraps++
		}
		n := len(fw.history) - 1
		with := fw.history
		last := with[n]
		image := make([]byte, len(before))
		look := func(what string, must bool) {
			fw.history, fw.pending = with[:n:n], &last
			c := crash{what: what, mem: image}
			o := fw.open(c)
			got := fw.commands(c, o)
			if fw.history, fw.pending = with[:got:got], nil; got > n {
				all++
			} else {
				nothing++
			}
			if must && got == n {
				t.Fatalf("%s: %s: the command is not there", fw.what, what)
			}
			live, _ := fw.pages(c, o)
			fw.verify(c, o, live, got)
		}
		for i, u := range updates {
			every := 1
			if u.part == block.PartLog && len(u.new) > 4096 {
				every = 101 // of a long record, some bytes
			}
			u.cuts(func(from, to int) {
				if min(from, to)%every+max(0, to-from)%every > 1 {
					return
				}
				copy(image, before)
				copy(image[fw.offset(u.at)+from:], u.new[from:to])
				look(fmt.Sprintf("update %d of %d, bytes %d to %d of %d", i, len(updates), from, to, len(u.new)), false)
			})
			copy(before[fw.offset(u.at):], u.new)
		}
		copy(image, before)
		look("all of it", true)
	}
	if nothing == 0 || all < 24 || wraps == 0 {
		t.Errorf("%d commands were there and %d not, %d wrapped: the test does not get there", all, nothing, wraps)
	}
}

// offset returns where in the region a part of it is.
func (fw *firmware) offset(part []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(fw.region.mem))))
}

// TestFlippedBits flips single bits of the header, the state blocks, records and descriptors: a start finds what it
// would have found without, and repairs them.
func TestFlippedBits(t *testing.T) {
	base := testkit.Seed(t)
	for s := base; s < base+8; s++ {
		fw := ready(t, s, small, 1, 3)
		fw.write(1, 3)
		whole := fw.open(crash{what: "no flip", mem: slices.Clone(fw.region.mem)})
		fw.commands(crash{what: "no flip"}, whole)
		wantLive, _ := fw.pages(crash{what: "no flip"}, whole)
		image := make([]byte, len(fw.region.mem))
		flip := func(off, bit int) {
			what := fmt.Sprintf("bit %d of byte %d is flipped", bit, off)
			copy(image, fw.region.mem)
			image[off] ^= 1 << bit
			c := crash{what: what, mem: image}
			o := fw.open(c)
			n := fw.commands(c, o)
			live, _ := fw.pages(c, o)
			if o.end != whole.end || !maps.Equal(live, wantLive) || o.saved.Flushed != whole.saved.Flushed || o.saved.Generation != whole.saved.Generation {
				t.Fatalf("%s: %s: %+v, %+v, pages %v; without, %+v, %+v, %v", fw.what, what, o.end, o.saved, live, whole.end, whole.saved, wantLive)
			}
			fw.verify(c, o, live, n)
		}
		h := fw.nv.header
		for _, part := range [][]byte{h[:headerSum+4], h[stateOffset:][:stateBytes], h[newestOffset:][:16], h[otherOffset:][:stateBytes]} {
			for bit := range len(part) * 8 {
				flip(fw.offset(part)+bit/8, bit%8)
			}
		}
		for _, part := range [][]byte{fw.region.ring(fw.layout), fw.nv.descs} {
			for off := range part {
				flip(fw.offset(part)+off, fw.rnd.IntN(8))
			}
		}
		for k, i := range sorted(fw.live) {
			bit := fw.rnd.IntN(4096 * 8)
			fw.nv.Page(i)[bit/8] ^= 1 << (bit % 8)
			if bad := ^fw.nv.GoodSectors(i); bad != 1<<(bit/8/unit) || bits.OnesCount8(bad) != 1 {
				t.Fatalf("%s: address %x: bit %d is flipped, the sectors %08b count as bad", fw.what, k, bit, bad)
			}
		}
	}
}

// TestLongRecordIsRepaired: any bit of the longest record.
func TestLongRecordIsRepaired(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, maxRecord)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	sealRecord(b, 9, kindEdits, false, MaxEdits, 3)
	want := slices.Clone(b)
	for range 300 {
		bit := rnd.IntN(len(b) * 8)
		if rnd.IntN(4) == 0 {
			bit = rnd.IntN(recordHead * 8)
		}
		b[bit/8] ^= 1 << (bit % 8)
		if validRecord(b, 9) || !repairRecord(b, 9) || !slices.Equal(b, want) {
			t.Fatalf("-seed %d: bit %d is flipped, and not repaired", seed, bit)
		}
		other := rnd.IntN(len(b) * 8)
		b[bit/8] ^= 1 << (bit % 8)
		if b[other/8] ^= 1 << (other % 8); bit != other && repairRecord(b, 9) {
			t.Fatalf("-seed %d: bits %d and %d are flipped, and it is repaired", seed, bit, other)
		}
		copy(b, want)
	}
}

// TestTornTombstone: where the process dies within Retire, the page counts as before, or has its tombstone.
func TestTornTombstone(t *testing.T) {
	for _, marks := range [][]Tombstone{{Destaged}, {Superseded}, {Destaged, Superseded}, {Superseded, Destaged}} {
		fw := newFirmware(t, 1, small, false)
		fw.fill(3, 77)
		fw.nv.Describe(3).Seal(5, 9, 1, 0xff, 0)
		for _, m := range marks[:len(marks)-1] {
			fw.nv.Retire(3, m)
		}
		d := fw.nv.Descriptor(3)
		old := slices.Clone(d)
		fw.nv.Retire(3, marks[len(marks)-1])
		copy(old[descTombstone:], d[descTombstone:descSum])
		torn := Descriptor(slices.Clone(old))
		if torn.Valid() || !torn.repair() {
			t.Fatalf("%v: without its checksum, the tombstone is valid, or cannot be repaired", marks)
		}
		if got := torn.Tombstone(); got != Tombstone(old[descTombstone])&^marks[len(marks)-1] && got != d.Tombstone() {
			t.Errorf("%v: repaired, it is %d", marks, got)
		}
		if torn.Seq() != 5 || torn.Key() != 9 || torn.Mask() != 0xff {
			t.Errorf("%v: repaired, it is another page's: %d %d", marks, torn.Seq(), torn.Key())
		}
	}
}
