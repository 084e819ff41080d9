package nvlog

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestRowsAgainstMaps compares rows with maps of counters, over starts, also where NVRAM has no room for all.
func TestRowsAgainstMaps(t *testing.T) {
	base := testkit.Seed(t)
	ownerOf := func(h RowHead) uint64 { return uint64(h.ID()) }
	for s := base; s < base+50; s++ {
		rnd := rand.New(rand.NewPCG(s, 2))
		nv, err := open(newTestRegion(Layout{Rows: 20, LogBytes: MinLogBytes}, nil, nil), true, Layout{Rows: 20, LogBytes: MinLogBytes})
		if err != nil {
			t.Fatal(err)
		}
		rs, want := OpenRows(nv, ownerOf), map[RowHead]uint64{}
		check := func() {
			t.Helper()
			got := map[RowHead]uint64{}
			for kind := uint8(1); kind <= rowLast; kind++ {
				if kind == rowRetired {
					continue
				}
				rs.Each(kind, func(r *Row) {
					if r.Head().Kind() != kind {
						t.Fatalf("-seed %d: kind %d has a row of kind %d", s, kind, r.Head().Kind())
					}
					got[r.Head()] = r.Cells[3]
				})
			}
			var owners []uint64
			for h := range want {
				owners = append(owners, ownerOf(h))
				if !slices.Contains(rs.Owned(ownerOf(h)), h) || rs.Find(h) == nil {
					t.Fatalf("-seed %d: %x is nobody's, or not found", s, h)
				}
			}
			slices.Sort(owners)
			if !maps.Equal(got, want) || !slices.Equal(rs.Owners(), slices.Compact(owners)) {
				t.Fatalf("-seed %d: %v, not %v; of %v, not %v", s, got, want, rs.Owners(), owners)
			}
		}
		for range 300 {
			owner := uint64(rnd.IntN(6))
			h := HeadOf([...]uint8{1, 2, 3, 4, rowLast}[rnd.IntN(5)], uint8(rnd.IntN(2)), uint16(rnd.IntN(2)), uint32(owner))
			switch n := rnd.IntN(20); {
			case n < 14:
				if rs.Find(h) == nil && want[h] != 0 {
					t.Fatalf("-seed %d: %x is lost", s, h)
				}
				rs.Get(h).Cells[3]++
				want[h]++
			case n < 18:
				kind := [...]uint8{0, 1, 2, 3, 4, rowLast}[rnd.IntN(6)]
				rs.Drop(owner, kind)
				maps.DeleteFunc(want, func(h RowHead, _ uint64) bool { return ownerOf(h) == owner && (kind == 0 || h.Kind() == kind) })
			default:
				for _, r := range rs.extra {
					delete(want, r.Head()) // ends with the process
				}
				rs = OpenRows(nv, ownerOf)
			}
			check()
		}
	}
}

// TestRowsOfOlderPrograms: rows that counted together what there was no room for, and a head twice, are taken back.
func TestRowsOfOlderPrograms(t *testing.T) {
	l := Layout{Rows: 8, LogBytes: MinLogBytes}
	nv, err := open(newTestRegion(l, nil, nil), true, l)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range []RowHead{HeadOf(1, 0, 0, 7), HeadOf(1, 0, 0, 1<<32-1), HeadOf(1, 0, 0, 7), HeadOf(9, 0, 0, 7), rowRetired} {
		nv.row(i).head = h
		nv.row(i).Cells[0] = uint64(10 + i)
	}
	rs := OpenRows(nv, func(h RowHead) uint64 { return uint64(h.ID()) })
	if r := rs.Find(HeadOf(1, 0, 0, 7)); r == nil || r.Cells[0] != 10 || len(rs.free) != 4 {
		t.Errorf("the row is %+v, %d are free", r, len(rs.free))
	}
	if r := rs.Get(HeadOf(2, 3, 4, 5)); r.Cells != [RowCells]uint64{} || r.Head().Key() != 3 || r.Head().Group() != 4 || r.Head().ID() != 5 {
		t.Errorf("a row that is used again begins with %+v", r)
	}
}
