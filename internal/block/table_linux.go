package block

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// adviseHuge asks for huge pages inside of a piece of memory. It is advice: where the
// system has none, memory stays as it is.
func adviseHuge(p unsafe.Pointer, n uintptr) {
	skip := -uintptr(p) & (hugePage - 1)
	if n < skip+hugePage {
		return
	}
	n = (n - skip) &^ (hugePage - 1)
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), n), unix.MADV_HUGEPAGE)
}
