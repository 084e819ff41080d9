package block

import "testing"

// TestTable writes and reads every element of tables on either side of the size for which huge
// pages are asked for.
func TestTable(t *testing.T) {
	for _, n := range []int{0, 1, tableBytes/8 - 1, tableBytes / 8, tableBytes/8 + 1, 3*tableBytes/8 + 5} {
		x := Table[uint64](n)
		if len(x) != n {
			t.Fatalf("%d elements, not %d", len(x), n)
		}
		for i := range x {
			if x[i] != 0 {
				t.Fatalf("element %d of %d is not zero", i, n)
			}
			x[i] = uint64(i) + 1
		}
		for i := range x {
			if x[i] != uint64(i)+1 {
				t.Fatalf("element %d of %d is lost", i, n)
			}
		}
	}
}
