package store

import (
	"math/bits"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Transfers of files in memory. They wait for no disk, so the runtime is not told of them: in a call that
// it knows of its watcher may lend the processor to others, which costs two changes of threads and wakes
// the watcher, dearer than the call. Writes wait for each other and for a Punch, which may take long (the lock of
// the inode): while one goes on they are calls of which the runtime knows.
const (
	// shortCall is up to how many bytes are moved that way, and shortVec in how many buffers.
	shortCall = 256 << 10
	shortVec  = 128
	// aloneCall is shortCall where there is one processor: nobody could go on meanwhile in any case.
	aloneCall = 1 << 20
)

// alone: there is one processor for all goroutines.
var alone = runtime.NumCPU() == 1

// shortest returns what shortCall is here.
func shortest() int {
	if alone {
		return aloneCall
	}
	return shortCall
}

// short makes a call of preadv(2) or pwritev(2) that waits for nobody; ok says that it is one, and was made.
func (o *osFile) short(call uintptr, vec [][]byte, off int64) (n int, ok bool, err error) {
	if !o.memory || len(vec) > shortVec || call == unix.SYS_PWRITEV && o.punching.Load() > 0 {
		return 0, false, nil
	}
	var iov [shortVec]unix.Iovec
	bytes, k := 0, 0
	for _, b := range vec {
		if len(b) == 0 {
			continue
		}
		iov[k].Base = unsafe.SliceData(b)
		iov[k].SetLen(len(b))
		bytes += len(b)
		k++
	}
	if bytes == 0 || bytes > shortest() {
		return 0, false, nil
	}
	// The upper half of an offset is an argument of its own where a word has 32 bits.
	upper := uintptr(uint64(off) >> (bits.UintSize - 1) >> 1)
	got, _, errno := syscall.RawSyscall6(call, uintptr(o.fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(k), uintptr(off), upper, 0)
	if errno != 0 {
		return -1, true, errno
	}
	return int(got), true, nil
}
