package block

import "unsafe"

// tableBytes is the size from which on a table is worth huge pages: below it the processor's
// own table of translations has room for its pages.
const tableBytes = 8 << 20

// Table returns n zero values, as make does, for a table that is large and that is looked into
// at random: on Linux it lies in huge pages as far as the system has them, so that a look costs
// one miss of the processor's caches and not also one or more for the address. T should hold
// no pointers. The memory belongs to the garbage collector. Safe for concurrent use.
func Table[T any](n int) []T {
	t := make([]T, n)
	if size := uintptr(n) * unsafe.Sizeof(*new(T)); size >= tableBytes {
		adviseHuge(unsafe.Pointer(unsafe.SliceData(t)), size)
	}
	return t
}
