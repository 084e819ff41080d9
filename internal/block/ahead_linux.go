package block

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WriteAhead has all pages of a piece of a mapping, which is shared, in place for writes, so that none costs
// its first writer a fault. To have them there for reads is not enough: where the kernel has to know
// what was written, each page faults again at its first write. The pages count as written to, so
// this is for files in memory (tmpfs), which are never written back. It is advice: a kernel that cannot
// do it (before Linux 5.14) does nothing.
//
// Nobody may write to these pages meanwhile, the whole ones at both ends included. After an error
// the memory may be for reads alone.
func WriteAhead(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	size := uintptr(os.Getpagesize())
	skip := uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (size - 1)
	n := (skip + uintptr(len(b)) + size - 1) &^ (size - 1)
	whole := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(skip))), n)
	// Pages that are there for reads already would stay as they are. The file keeps what they have.
	if unix.Madvise(whole, unix.MADV_DONTNEED) != nil {
		return nil
	}
	if Again(func() error { return unix.Madvise(whole, unix.MADV_POPULATE_WRITE) }) != nil {
		return nil
	}
	// User Mode Linux has each page in its own table now, but not in that of its host, to which it
	// hands pages one by one at their first use, 0.05 to 0.25 ms each, and all at once when their protection
	// changes. Elsewhere this costs a walk over the table.
	if unix.Mprotect(whole, unix.PROT_READ) != nil {
		return nil
	}
	return unix.Mprotect(whole, unix.PROT_READ|unix.PROT_WRITE)
}
