package cdb

import "testing"

func TestExtent(t *testing.T) {
	long := make([]byte, 32)
	long[0], long[19], long[31] = Variable, 5, 6
	for _, c := range []struct {
		name         string
		b            []byte
		lba, n       uint64
		length, flag int // where they stand
	}{
		{"READ(6)", []byte{0x08, 0xFF, 0, 2, 3, 0}, 0x1F0002, 3, 4, 1},
		{"READ(6) of 256", []byte{0x08, 0, 0, 2, 0, 0}, 2, 256, 4, 1},
		{"READ(10)", []byte{0x28, 0, 1, 0, 0, 2, 0, 1, 3, 0}, 0x01000002, 0x103, 7, 1},
		{"READ(12)", []byte{0xA8, 0, 1, 0, 0, 2, 1, 0, 0, 3, 0, 0}, 0x01000002, 0x01000003, 6, 1},
		{"READ(16)", []byte{0x88, 0, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 3, 0, 0}, 1<<56 | 2, 0x01000003, 10, 1},
		{"WRITE SAME(32)", long, 5, 6, 28, 10},
	} {
		lba, n := Extent(c.b)
		if lba != c.lba || n != c.n || LengthOffset(c.b) != c.length || FlagsOffset(c.b) != c.flag || Length(c.b[0]) != len(c.b) {
			t.Errorf("%s: LBA %x, %x blocks, length at %d, flags at %d of %d bytes", c.name, lba, n, LengthOffset(c.b), FlagsOffset(c.b), Length(c.b[0]))
		}
	}
}

// TestLengths: an operation code's group says its length, and what is read of a CDB of that length
// lies in it.
func TestLengths(t *testing.T) {
	for op := range 256 {
		want := map[int]int{0: 6, 1: 10, 2: 10, 4: 16, 5: 12}[op>>5]
		if op == Variable {
			want = 32
		}
		if got := Length(byte(op)); got != want {
			t.Errorf("operation code %02x: %d bytes, want %d", op, got, want)
		}
		if want > 0 {
			b := make([]byte, want)
			b[0] = byte(op)
			if Extent(b); LengthOffset(b) >= want || FlagsOffset(b) >= want {
				t.Errorf("operation code %02x: fields behind the end", op)
			}
		}
	}
}
