package lun

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestShortReadIsNoData: a target answers a READ with less than was asked for. What the memory held behind
// that is nobody's to read.
func TestShortReadIsNoData(t *testing.T) {
	for n, want := range map[int]block.Status{0: block.Hardware, 5: block.Hardware, 511: block.Hardware, 512: block.OK} {
		exec, k := &block.Virtual{}, &keeper{}
		d := &Device{exec: exec, t: k, opened: true}
		ended := false
		r := &block.Request{Op: block.OpRead, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}, Done: func(*block.Request) { ended = true }}
		d.Submit([]*block.Request{r})
		k.answer(exec, 0, 0, nil, make([]byte, n))
		if !ended || r.Status != want {
			t.Errorf("of 512 bytes %d came: it has ended: %v, with %v, want %v", n, ended, r.Status, want)
		}
	}
}
