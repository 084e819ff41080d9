package block

import (
	"bytes"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteAhead: pages that are in place cost no fault at their first write, and keep what they
// have, those as well that were in place for reads.
func TestWriteAhead(t *testing.T) {
	t.Run("untouched", func(t *testing.T) { writeAhead(t, 0) })
	t.Run("there for reads", func(t *testing.T) { writeAhead(t, unix.MAP_POPULATE) })
}

func writeAhead(t *testing.T, flags int) {
	const size, page = 8 << 20, 4096
	fd, err := unix.MemfdCreate("ahead", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	kept := []byte("what was there")
	if _, err := unix.Pwrite(fd, kept, size/2); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|flags)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem[:page], unix.MADV_POPULATE_WRITE); err != nil {
		t.Skip("this kernel cannot populate a mapping for writes:", err)
	}
	// Both ends lie inside a page.
	if err := WriteAhead(mem[100 : size-100]); err != nil {
		t.Fatal(err)
	}
	if got := mem[size/2:][:len(kept)]; !bytes.Equal(got, kept) {
		t.Errorf("%q has become %q", kept, got)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := faults(t)
	for at := 0; at < size; at += page {
		mem[at+8]++
	}
	// The runtime of this test may fault meanwhile.
	if n := faults(t) - before; n > size/page/8 {
		t.Errorf("%d faults at the first write to %d pages", n, size/page)
	}
	if err := WriteAhead(nil); err != nil {
		t.Error(err)
	}
}

func faults(t *testing.T) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return int64(u.Minflt)
}
