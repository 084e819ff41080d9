package store

import (
	"path/filepath"
	"testing"
)

// TestDirtyChangesNothing: what is declared dirty keeps its bytes, to the last page.
func TestDirtyChangesNothing(t *testing.T) {
	const size = 3*4096 + 512
	f, err := OS.OpenData(filepath.Join(t.TempDir(), "nvram"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(i % 251)
	}
	m.Dirty(0, size)
	m.Dirty(5000, 1)
	if err := m.Flush(0, size); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if n, err := f.Readv([][]byte{got}, 0); n != size || err != nil {
		t.Fatal(n, err)
	}
	for i, b := range got {
		if b != byte(i%251) || m.Bytes()[i] != b {
			t.Fatalf("byte %d became %d", i, b)
		}
	}
}
