package lun

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// segmenter is a unit, of a number a sector, that carries out EXTENDED COPY as an array does: one segment after the other, and
// reads the whole source of each first.
type segmenter struct {
	keeper
	sectors []uint32
}

func (s *segmenter) Start(c *Command) {
	for b := c.Out[0][copyHead+2*copyTarget:]; len(b) >= copySegment; b = b[copySegment:] {
		n, from, to := uint64(be.Uint16(b[10:])), be.Uint64(b[12:]), be.Uint64(b[20:])
		copy(s.sectors[to:to+n], s.sectors[from:from+n])
	}
	c.Status, c.Lost = statusGood, nil
	c.Done(c)
}

// copied is what a copy within a unit makes of its sectors if the whole source is read first.
func copied[T any](sectors []T, ranges []block.Range, offset uint64, to block.Range) []T {
	var source []T
	for _, g := range ranges {
		source = append(source, sectors[g.Start:g.End()]...)
	}
	after := slices.Clone(sectors)
	copy(after[to.Start:to.End()], source[offset:])
	return after
}

// overlap draws a copy within a unit of so many sectors, whose source is up to three ranges.
func overlap(rng *rand.Rand, sectors uint64) (ranges []block.Range, offset uint64, to block.Range) {
	total := uint64(0)
	for n := 1 + rng.IntN(3); n > 0; n-- {
		g := block.Range{Count: 1 + rng.Uint64N(sectors/4)}
		g.Start = rng.Uint64N(sectors - g.Count)
		ranges, total = append(ranges, g), total+g.Count
	}
	offset = rng.Uint64N(total)
	to.Count = 1 + rng.Uint64N(total-offset)
	to.Start = rng.Uint64N(sectors - to.Count + 1)
	return ranges, offset, to
}

// TestCopiesOverTheirSource: a copy of more than one segment that overlaps its source is as if the whole source was read first, or
// is refused. A single range has an order always.
func TestCopiesOverTheirSource(t *testing.T) {
	const sectors = 300_000
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	unit := &segmenter{sectors: make([]uint32, sectors)}
	exec := &block.Virtual{}
	naa := [16]byte{0x60, 1}
	dev := func() *Device {
		return &Device{exec: exec, t: unit, name: designator{1, designNAA, naa[:]}, info: block.Info{BlockSize: 512, Sectors: sectors, NAA: naa}}
	}
	a, b := dev(), dev() // two sessions may lead to one unit
	run := func(on *Device, ranges []block.Range, offset uint64, to block.Range) block.Status {
		t.Helper()
		for i := range unit.sectors {
			unit.sectors[i] = uint32(i)
		}
		want := copied(unit.sectors, ranges, offset, to)
		r := &block.Request{Op: block.OpPlace, Range: to, Ref: a.hold(&block.Request{Ranges: ranges}), RefOffset: offset, Done: func(*block.Request) {}}
		on.Submit([]*block.Request{r})
		for exec.Step() {
		}
		r.Ref.Release()
		if r.Status == block.OK && !slices.Equal(unit.sectors, want) {
			i := 0
			for unit.sectors[i] == want[i] {
				i++
			}
			t.Fatalf("%v from %d to %v: at sector %d", ranges, offset, to, i)
		}
		return r.Status
	}
	const mib, long = 2048, 64 * 2048
	for _, g := range [][2]uint64{{0, mib}, {mib, 0}, {0, 1}, {7, 0}, {0, long - 1}, {0, long}} {
		for _, on := range []*Device{a, b} {
			if s := run(on, []block.Range{{Start: g[0], Count: long}}, 0, block.Range{Start: g[1], Count: long}); s != block.OK {
				t.Errorf("64 MiB from %d to %d: %v", g[0], g[1], s)
			}
		}
	}
	ends := map[block.Status]int{}
	// Few have no order: some rounds more may be needed until one comes.
	for n := 0; n < 300 || ends[block.Unsupported] == 0 && n < 30_000; n++ {
		ranges, offset, to := overlap(rng, sectors)
		s := run(a, ranges, offset, to)
		if len(ranges) == 1 && s != block.OK {
			t.Errorf("%v from %d to %v: %v", ranges, offset, to, s)
		}
		ends[s]++
	}
	if ends[block.OK] < 100 || ends[block.Unsupported] == 0 || len(ends) > 2 {
		t.Errorf("they end %v", ends)
	}
}

// openFile makes a file of so many sectors, and a lab with nothing but its executor.
func openFile(t *testing.T, sectors uint64) (*lab, *File) {
	t.Helper()
	l := &lab{t: t, x: block.NewLive()}
	t.Cleanup(l.x.Stop)
	f, err := OpenFile(l.x, filepath.Join(t.TempDir(), "file"), sectors<<block.SectorShift)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return l, f
}

// TestFileCopiesOverItsSource: so it is with a file, whose copies go by chunks.
func TestFileCopiesOverItsSource(t *testing.T) {
	const sectors = 10 << 10 // of which a chunk has 2 << 10
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	l, f := openFile(t, sectors)
	d := f.Device("file", 512)
	numbers := make([][block.SectorSize]byte, sectors)
	for i := range numbers {
		be.PutUint64(numbers[i][:], uint64(i))
	}
	flat := func(list [][block.SectorSize]byte) []byte {
		b := make([]byte, 0, len(list)<<block.SectorShift)
		for i := range list {
			b = append(b, list[i][:]...)
		}
		return b
	}
	before, all := flat(numbers), block.Range{Count: sectors}
	run := func(ranges []block.Range, offset uint64, to block.Range) block.Status {
		t.Helper()
		got := make([]byte, len(before))
		hold := &block.Request{Op: block.OpHold, Ranges: ranges}
		place := &block.Request{Op: block.OpPlace, Range: to, RefOffset: offset}
		for _, r := range []*block.Request{{Op: block.OpWrite, Range: all, Data: [][]byte{before}}, hold, place, {Op: block.OpRead, Range: all, Data: [][]byte{got}}} {
			place.Ref = hold.Ref
			if s := l.do(d, r); s != block.OK && r != place {
				t.Fatalf("%v: %v", r.Op, s)
			}
		}
		hold.Ref.Release()
		if place.Status == block.OK && !bytes.Equal(got, flat(copied(numbers, ranges, offset, to))) {
			t.Fatalf("%v from %d to %v has copied something else", ranges, offset, to)
		}
		return place.Status
	}
	const mib = 2 << 10
	for _, g := range [][2]uint64{{0, mib}, {mib, 0}, {0, 1}, {1, 0}} {
		if s := run([]block.Range{{Start: g[0], Count: 4 * mib}}, 0, block.Range{Start: g[1], Count: 4 * mib}); s != block.OK {
			t.Errorf("4 MiB from %d to %d: %v", g[0], g[1], s)
		}
	}
	for range 20 {
		ranges, offset, to := overlap(rng, sectors)
		if s := run(ranges, offset, to); s != block.OK && (s != block.Unsupported || len(ranges) == 1) {
			t.Errorf("%v from %d to %v: %v", ranges, offset, to, s)
		}
	}
}
