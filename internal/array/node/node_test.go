package node

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestLeafLeavesAndReturns: a leaf that was packed, or that left memory, is the same leaf when it is back; a page that is not
// its own changes nothing.
func TestLeafLeavesAndReturns(t *testing.T) {
	var s Slab
	s.LeafBytes, s.SlotOf = DefaultLeafBytes, func(Key) *window.Slot { return nil }
	k := LeafKey(3, 9)
	id, nd := s.Place(k)
	for i := range nd.Slots {
		nd.Slots[i] = window.Data(uint64(i * 4096))
		nd.Sums.Add(s.Sums(nd.Slots[i], 0))
	}
	nd.Slots[7], nd.Sums.Data = window.KindZero, nd.Sums.Data-128
	nd.Sums.Zero += 128
	was, sums, page := nd.Slots, nd.Sums, s.Encode(nd)
	slot := window.Child(id)
	same := func(when string) {
		t.Helper()
		got := s.At(uint32(slot.Value()))
		if slot.Kind() != window.KindChild || got.Slots != was || got.Sums != sums || got.Key() != k || s.Loose() != 1 {
			t.Errorf("%s it is another leaf: %+v, %d leaves", when, got.Sums, s.Loose())
		}
	}
	if s.Pack(&slot); slot.Kind() != window.KindPacked || s.Loose() != 0 || s.Sums(slot, 1) != sums {
		t.Fatalf("packed it is %#x, %+v", uint64(slot), s.Sums(slot, 1))
	}
	s.Unpack(&slot, k)
	same("unpacked")
	for _, packed := range []bool{false, true} {
		if packed {
			s.Pack(&slot)
		}
		if s.Drop(&slot); slot.Kind() != window.KindAbsent || s.Loose() != 0 || s.MemoryBytes() != 0 || s.Sums(slot, 1) != sums {
			t.Fatalf("absent it is %#x, %+v, and takes %d bytes", uint64(slot), s.Sums(slot, 1), s.MemoryBytes())
		}
		other := append([]byte(nil), page...)
		other[7*8] = byte(window.KindUnmapped)
		for what, bad := range map[string][]byte{"none": nil, "short": page[:100], "another": other} {
			absent := slot
			if _, _, err := s.Restore(&slot, k, bad); err == nil || slot != absent || s.Loose() != 0 {
				t.Errorf("page %s: %v, %d leaves", what, err, s.Loose())
			}
		}
		if _, _, err := s.Restore(&slot, k, page); err != nil {
			t.Fatal(err)
		}
		same("read")
	}
}
