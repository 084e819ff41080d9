package lun

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestReferencesTellOfChanges: a reference by name is worth what it names, and says when that has changed.
func TestReferencesTellOfChanges(t *testing.T) {
	sector := [][]byte{make([]byte, 512)}
	g := func(start, n uint64) block.Range { return block.Range{Start: start, Count: n} }
	dev := func() *Device {
		naa := [16]byte{0x60, 1}
		return &Device{exec: &block.Virtual{}, t: &keeper{}, zero: make([]byte, 512), name: designator{1, designNAA, naa[:]}, info: block.Info{BlockSize: 512, Sectors: 1 << 20, NAA: naa}}
	}
	for name, row := range map[string]struct {
		req  block.Request
		want bool
	}{
		"a read":                  {block.Request{Op: block.OpRead, Range: g(10, 1), Data: sector}, false},
		"a flush":                 {block.Request{Op: block.OpFlush}, false},
		"a write beside it":       {block.Request{Op: block.OpWrite, Range: g(20, 1), Data: sector}, false},
		"a write":                 {block.Request{Op: block.OpWrite, Range: g(19, 1), Data: sector}, true},
		"a write of zeros":        {block.Request{Op: block.OpWriteSame, Range: g(0, 100)}, true},
		"an unmap":                {block.Request{Op: block.OpUnmap, Ranges: []block.Range{g(0, 1), g(31, 1)}}, true},
		"an unmap beside it":      {block.Request{Op: block.OpUnmap, Ranges: []block.Range{g(0, 10), g(20, 10), g(32, 1)}}, false},
		"a compare and write":     {block.Request{Op: block.OpCompareWrite, Range: g(30, 1), Data: sector, Compare: sector}, true},
		"a copy that lands there": {block.Request{Op: block.OpPlace, Range: g(5, 6), Ref: &ref{dev: dev(), ranges: []block.Range{g(100, 6)}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := dev()
			h := d.hold(&block.Request{Ranges: []block.Range{g(10, 10), g(30, 2)}}).(block.Vulnerable)
			row.req.Done = func(*block.Request) {}
			d.Submit([]*block.Request{&row.req})
			if h.Changed() != row.want {
				t.Errorf("changed: %v", h.Changed())
			}
			h.Release()
			if len(d.held) != 0 {
				t.Error("it is watched after its end")
			}
		})
	}
}
