package nvlog

import (
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// TestOpen: what a region says of itself must agree with what is expected of it.
func TestOpen(t *testing.T) {
	l := Layout{Rows: 8, Pages: 16, LogBytes: MinLogBytes, Payload: true}
	seal := func(b []byte) { le.PutUint32(b[headerSum:], crc32.Checksum(b[:headerSum], castagnoli)) }
	for _, row := range []struct {
		what   string
		change func(b []byte)
		says   string
	}{
		{"as it was", func([]byte) {}, ""},
		{"one bit flipped", func(b []byte) { b[13] ^= 4 }, ""},
		{"another file", func(b []byte) { copy(b, "something else entirely") }, "is not one of arraysim's"},
		{"another magic", func(b []byte) { b[0]++; seal(b) }, "is not one of arraysim's"},
		{"two bits flipped", func(b []byte) { b[13] ^= 5 }, "is not one of arraysim's"},
		{"a newer format", func(b []byte) { b[8] = Version + 1; seal(b) }, "has format 4, this program reads format 3"},
		{"more pages", func(b []byte) { b[12]++; seal(b) }, "different size"},
		{"a longer log", func(b []byte) { b[17]++; seal(b) }, "different size"},
		{"fewer rows", func(b []byte) { b[20]--; seal(b) }, "different size"},
	} {
		r := newTestRegion(l, nil, nil)
		if _, fresh, err := Open(testStore{region: r, size: l.Region().Size(), fresh: true}, "nvram", l); !fresh || err != nil {
			t.Fatalf("a fresh one: %v, %v", fresh, err)
		}
		row.change(r.mem)
		n, fresh, err := Open(testStore{region: r, size: l.Region().Size()}, "nvram", l)
		if fresh || (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: fresh %v, %v", row.what, fresh, err)
		}
		if err == nil && n.Format() != Version {
			t.Errorf("%s: format %d", row.what, n.Format())
		}
	}
	r := newTestRegion(l, nil, nil)
	if _, fresh, err := Open(testStore{region: r, size: l.Region().Size()}, "nvram", l); !fresh || err != nil {
		t.Errorf("power was lost before the first flush: %v, %v", fresh, err)
	}
	if _, _, err := Open(testStore{region: r, size: 1}, "nvram", l); err == nil {
		t.Error("a region of another size is opened")
	}
}

// format1 returns a store whose region is empty and of the first format, the layout that it is opened with, and the region.
func format1() (testStore, Layout, *testRegion) {
	l := Layout{Rows: DefaultRows, Pages: 16, LogBytes: MinLogBytes, Payload: true}
	old := l
	old.Rows = rowsV1
	r := newTestRegion(old, rand.New(rand.NewPCG(1, 1)), nil)
	copy(r.mem, magic)
	le.PutUint32(r.mem[8:], 1)
	le.PutUint32(r.mem[12:], 16)
	le.PutUint32(r.mem[16:], MinLogBytes)
	le.PutUint32(r.mem[20:], crc32.Checksum(r.mem[:20], castagnoli))
	return testStore{region: r, size: old.Region().Size()}, l, r
}

// TestOpenFormat1: a region of the first format has its number of rows, knew of no loss of power, and becomes one of the
// present format with Commission.
func TestOpenFormat1(t *testing.T) {
	store, l, _ := format1()
	for start, format := range []uint32{1, Version} {
		n, fresh, err := Open(store, "nvram", l)
		if err != nil || fresh || n.Format() != format || n.Rows != rowsV1 {
			t.Fatalf("start %d: %v, fresh %v, %+v", start, err, fresh, n)
		}
		s := n.Saved()
		if s.damaged || !s.sameBoot(1) {
			t.Errorf("start %d: %+v", start, s)
		}
		f := NewFlusher(n, NewLog(n), nil, 0, Hooks{})
		f.Restore(s)
		if err := f.Commission(1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeathWithinTheHeader: the first start, or the one that makes format 2 of format 1, dies behind any word of the header.
// The next one finds nothing, or what was there.
func TestDeathWithinTheHeader(t *testing.T) {
	for n := range len(headerWords) + 3 {
		// halfWritten makes what a death behind n words leaves.
		halfWritten := func(old, now []byte) (b []byte) {
			b = slices.Clone(old)
			words := append([]int{headerSum}, headerWords[:]...)
			for _, at := range words[:min(n, len(words))] {
				copy(b[at:at+4], now[at:])
			}
			if n > len(words) {
				copy(b[:8], now)
			}
			return b
		}
		l := Layout{Rows: 8, Pages: 16, LogBytes: MinLogBytes, Payload: true}
		r := newTestRegion(l, nil, nil)
		if _, err := open(r, true, l); err != nil {
			t.Fatal(err)
		}
		whole := n > len(headerWords)+1
		copy(r.mem, halfWritten(make([]byte, headerSum+4), r.mem[:headerSum+4]))
		if _, fresh, err := Open(testStore{region: r, size: l.Region().Size()}, "nvram", l); err != nil || fresh == whole {
			t.Errorf("%d words of a first header: fresh %v, %v", n, fresh, err)
		}
		store, l, r := format1()
		old := slices.Clone(r.mem[:headerSum+4])
		nv, _, err := Open(store, "nvram", l)
		if err != nil {
			t.Fatal(err)
		}
		nv.writeHeader()
		copy(r.mem, halfWritten(old, r.mem[:headerSum+4]))
		for range 2 {
			again, fresh, err := Open(store, "nvram", l)
			if err != nil || fresh || again.Format() != 1 && again.Format() != Version || again.Rows != rowsV1 {
				t.Errorf("%d words of a new format: fresh %v, %v", n, fresh, err)
			}
		}
	}
}

// TestPartsDoNotOverlap writes all of each part and looks at the others.
func TestPartsDoNotOverlap(t *testing.T) {
	for _, l := range []Layout{{Rows: 3, Pages: 5, LogBytes: MinLogBytes + 8, Payload: true}, {Rows: 64, Pages: 1, LogBytes: MinLogBytes, Payload: true}} {
		r := newTestRegion(l, nil, nil)
		n, err := open(r, true, l)
		if err != nil {
			t.Fatal(err)
		}
		claimed := 0
		claim := func(what string, b []byte) {
			for i := range b {
				if b[i] != 0 {
					t.Fatalf("%+v: %s lies over something else", l, what)
				}
				b[i] = 0xff
			}
			claimed += len(b)
		}
		clear(r.mem)
		claim("the header", r.mem[:headerBytes])
		for i := range l.Rows {
			row := n.row(i)
			if row.head != 0 || row.Cells != [RowCells]uint64{} {
				t.Fatalf("%+v: row %d lies over something else", l, i)
			}
			row.head = 1<<64 - 1
			for c := range row.Cells {
				row.Cells[c] = 1<<64 - 1
			}
			claimed += rowBytes
		}
		for i := range uint32(l.Pages) {
			claim("a descriptor", n.Describe(i))
			claim("a page", n.Write(i, 0, layout.PageSectors))
		}
		claim("the log", r.ring(l))
		if rest := len(r.mem) - claimed; rest < 0 || rest >= layout.PageBytes {
			t.Errorf("%+v: %d bytes are nothing's", l, rest)
		}
		if got := n.Sectors(0, l.Pages*layout.PageSectors); len(got) != l.Pages*layout.PageBytes || &got[len(got)-1] != &n.Page(uint32(l.Pages - 1))[layout.PageBytes-1] {
			t.Errorf("%+v: the sectors of all pages are %d bytes", l, len(got))
		}
	}
}
