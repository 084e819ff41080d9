package lun

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestCopiesOfPartsOfBlocks: an EXTENDED COPY moves whole blocks. What lies otherwise in those of 4096 bytes is refused, and
// what is sent describes the same sectors as the request. Random ranges; the seed is in the log.
func TestCopiesOfPartsOfBlocks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	naa := func(id byte) [16]byte { return [16]byte{0x60, id} }
	dev := func(id byte) *Device {
		n := naa(id)
		return &Device{exec: &block.Virtual{}, t: &keeper{}, shift: 3, name: designator{1, designNAA, n[:]}, info: block.Info{BlockSize: 4096, Sectors: 1 << 20, NAA: n}}
	}
	draw := func(most int) uint64 { // of sectors, mostly whole blocks
		n := uint64(rng.IntN(most))
		if rng.IntN(8) > 0 {
			n &^= 7
		}
		return n
	}
	refused, sent := 0, 0
	for range 2000 {
		src, dst := dev(1), dev(2)
		var ranges []block.Range
		whole := true
		total := uint64(0)
		for range 1 + rng.IntN(3) {
			g := block.Range{Start: draw(1 << 16), Count: 1 + draw(1<<10)}
			if rng.IntN(8) > 0 {
				g.Count = (g.Count + 7) &^ 7
			}
			whole = whole && (g.Start|g.Count)&7 == 0
			ranges, total = append(ranges, g), total+g.Count
		}
		offset := draw(int(total))
		to := block.Range{Start: draw(1 << 16), Count: (total - offset) &^ 7}
		whole = whole && (offset|to.Start)&7 == 0
		r := &block.Request{Op: block.OpPlace, Range: to, Ref: src.hold(&block.Request{Ranges: ranges}), RefOffset: offset}
		c := &Command{}
		switch s := dst.encode(c, r); {
		case s == block.OK != whole:
			t.Fatalf("%v from %d to %v: %v", ranges, offset, to, s)
		case s != block.OK:
			refused++
			continue
		}
		sent++
		if got, want := segmentsOf(c.list), placesOf(ranges, offset, to); got != want {
			t.Fatalf("%v from %d to %v: segments %s, want %s", ranges, offset, to, got, want)
		}
	}
	if refused < 100 || sent < 100 {
		t.Errorf("%d refused, %d sent", refused, sent)
	}
}

// segmentsOf lists what the segments of a parameter list copy, in blocks.
func segmentsOf(list []byte) (s string) {
	for b := list[copyHead+2*copyTarget:]; len(b) >= copySegment; b = b[copySegment:] {
		s += fmt.Sprintf("%d+%d>%d ", be.Uint64(b[12:]), be.Uint16(b[10:]), be.Uint64(b[20:]))
	}
	return s
}

// placesOf is what they should.
func placesOf(ranges []block.Range, skip uint64, to block.Range) (s string) {
	at, left := to.Start, to.Count
	for _, g := range ranges {
		k := min(skip, g.Count)
		skip -= k
		if n := min(g.Count-k, left); n > 0 {
			s += fmt.Sprintf("%d+%d>%d ", (g.Start+k)/8, n/8, at/8)
			at, left = at+n, left-n
		}
	}
	return s
}
