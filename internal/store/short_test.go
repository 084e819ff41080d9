package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestShortCalls moves lists of buffers, short and long, few and many, some of them empty, to a file in
// memory and back.
func TestShortCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	dir := folder(t, true)
	f, err := OS.OpenData(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if memory := f.(*osFile).memory; memory != testkit.InMemory(dir) {
		t.Fatalf("a file of %s is in memory: %v", dir, memory)
	} else if !memory {
		t.Skip(dir, "is no tmpfs")
	}
	for range 300 {
		data := make([]byte, r.IntN(3*shortCall/2))
		testkit.Fill(r, data)
		off := r.Int64N(1<<33) &^ 1
		if err := writeFull(f, cut(r, data), off); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(data))
		if err := readFull(f, cut(r, got), off); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes at %d come back as others: %v", len(data), off, err)
		}
		if _, ok, err := f.(*osFile).short(unix.SYS_PREADV, [][]byte{got}, -1); ok && !errors.Is(err, unix.EINVAL) {
			t.Fatalf("a read before the file: %v", err)
		}
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
	}
	vec := [][]byte{make([]byte, 4096), make([]byte, 8192)}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Writev(vec, 4096); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Readv(vec, 4096); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations for a write and a read", n)
	}
}

// cut makes a list of up to 200 buffers of one, some of them empty.
func cut(r *rand.Rand, b []byte) (vec [][]byte) {
	most := 1 + r.IntN(200)
	for len(b) > 0 {
		n := min(len(b), r.IntN(2*len(b)/most+2))
		if len(vec) == most {
			n = len(b)
		}
		vec = append(vec, b[:n])
		b = b[n:]
	}
	return vec
}
