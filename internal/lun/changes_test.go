package lun

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// page is the log page, with extents of generation, LBA and blocks.
func page(generation, since uint64, extents ...[3]uint64) []byte {
	b := be.AppendUint64(be.AppendUint64([]byte{pageChanges, 0, 0, 0, 0, 0, 3, 16}, generation), since)
	for i, e := range extents {
		b = be.AppendUint16(b, uint16(1+i))
		b = append(b, 3, changeLen-4)
		for _, v := range e {
			b = be.AppendUint64(b, v)
		}
		b = append(b, 0, 0, 0, 9, 0, 0, 0, 0)
	}
	be.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

func TestChangedExtentsAreRead(t *testing.T) {
	d := &Device{shift: 3, info: block.Info{Sectors: 8000}}
	full := page(20, 10, [3]uint64{12, 0, 5}, [3]uint64{18, 100, 1})
	for _, c := range []struct {
		what     string
		b        []byte
		since    uint64
		extents  []block.Range
		complete bool
	}{
		{"all", full, 10, []block.Range{{Start: 0, Count: 40}, {Start: 800, Count: 8}}, true},
		{"what is new", full, 12, []block.Range{{Start: 800, Count: 8}}, true},
		{"nothing new", full, 20, nil, true},
		{"too long ago", full, 9, []block.Range{{Start: 0, Count: 40}, {Start: 800, Count: 8}}, false},
		{"another array's generation", full, 21, nil, false},
		{"across the end", page(20, 10, [3]uint64{12, 999, 2}), 10, []block.Range{{Start: 7992, Count: 8}}, true},
		{"behind the end, which was cut off", page(20, 10, [3]uint64{11, 0, 1}, [3]uint64{12, 1000, 24}), 10, []block.Range{{Start: 0, Count: 8}}, true},
		{"an overflow", page(20, 10, [3]uint64{12, 1<<64 - 1, 1<<64 - 1}), 10, nil, false},
	} {
		_, extents, complete := d.changes(c.b, c.since)
		if complete != c.complete || !slices.Equal(extents, c.extents) {
			t.Errorf("%s: %v, complete %v", c.what, extents, complete)
		}
	}
	for n := range full { // whatever is cut off, nothing panics
		if _, _, complete := d.changes(full[:n], 10); complete {
			t.Errorf("%d bytes are taken for the page", n)
		}
	}
}
