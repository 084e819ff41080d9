package testkit

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the machine offers, by calls of this package's own. A test that skips itself because the code under test found
// nothing would skip a defect of that code, too.

// featNativeWorkers is what a kernel from 5.12 on says of its io_uring.
const featNativeWorkers = 1 << 9

// HasRings reports whether the kernel gives this process an io_uring that does all that package uring needs.
func HasRings() bool {
	var params [30]uint32 // struct io_uring_params; the features are the sixth word
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 256, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return false
	}
	return unix.Close(int(fd)) == nil && params[5]&featNativeWorkers != 0
}

// InMemory reports whether a folder is in a file system in memory.
func InMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}
