package lun

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestProvisioningStatus: what a unit does not call deallocated or anchored has data.
func TestProvisioningStatus(t *testing.T) {
	exec, k := &block.Virtual{}, &keeper{}
	d := &Device{exec: exec, t: k, opened: true, info: block.Info{BlockSize: 512, Sectors: 1 << 20}}
	r := &block.Request{Op: block.OpStatus, Range: block.Range{Count: 100}, Extents: make([]block.Extent, 0, 16), Done: func(*block.Request) {}}
	d.Submit([]*block.Request{r})
	reply := make([]byte, 8)
	for status := range byte(16) {
		reply = append(reply, 0, 0, 0, 0, 0, 0, 0, status, 0, 0, 0, 1, status, 0, 0, 0)
	}
	k.answer(exec, 0, statusGood, nil, reply)
	for i, e := range r.Extents {
		want := map[int]block.State{1: block.Unmapped, 2: block.Anchored}
		state, ok := want[i]
		if !ok {
			state = block.Data
		}
		if e.State != state {
			t.Errorf("status %d is %v", i, e.State)
		}
	}
	if r.Status != block.OK || len(r.Extents) != 16 {
		t.Errorf("%v, %d extents", r.Status, len(r.Extents))
	}
}

// TestThinUnitsReadZeros: a unit that may be unmapped and does not say that it reads zeros then is not offered as one that
// does.
func TestThinUnitsReadZeros(t *testing.T) {
	for bits, want := range map[byte]bool{0: false, 0x40: false, 0x80: false, 0xC0: true} {
		b := make([]byte, capacityLen)
		b[7], b[10], b[14] = 0xFF, 2, bits
		d := &Device{}
		if err := d.setCapacity(b); err != nil || d.info.Thin != want {
			t.Errorf("byte 14 is %#x: thin %v, %v", bits, d.info.Thin, err)
		}
	}
}
