package tcmu

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// sharedTwice maps a file twice: what one mapping writes the other reads, as between kernel and
// process, and the race detector sees two addresses.
func sharedTwice(t *testing.T, size int) (ours, theirs []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "ring"))
	if err == nil {
		err = f.Truncate(int64(size))
	}
	var m [2][]byte
	for i := range m {
		if err == nil {
			m[i], err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Munmap(m[0])
		_ = syscall.Munmap(m[1])
		f.Close()
	})
	return m[0], m[1]
}

// TestChangingEntry: what an entry says is read once. Here the number of segments, the operation
// code and the number of commands that a task management function concerns change while it is
// looked at.
func TestChangingEntry(t *testing.T) {
	const ring, data, size = 4096, 4096 + 4096, 4 * 4096
	ours, theirs := sharedTwice(t, size)
	d := &Device{mem: ours, ring: ours[ring:data], data: data}
	entry := func(m []byte) *cmdRequest { return (*cmdRequest)(unsafe.Pointer(&m[ring])) }
	const length = requestSize + iovecSize
	const cdbAt = ring + 1024
	q := entry(theirs)
	q.iovCnt, q.cdbOff = 1, cdbAt
	ne := binary.NativeEndian
	ne.PutUint64(theirs[ring+requestSize:], data)
	ne.PutUint64(theirs[ring+requestSize+8:], 512)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		tmr := (*tmrEntry)(unsafe.Pointer(&theirs[ring+2048]))
		for !stop.Load() {
			atomic.StoreUint32(&q.iovCnt, 1<<30)
			atomic.StoreUint32(&tmr.cmdCnt, 1<<30)
			theirs[cdbAt], theirs[cdbAt+7] = 0x7F, 0x18
			atomic.StoreUint32(&q.iovCnt, 1)
			atomic.StoreUint32(&tmr.cmdCnt, 1)
			theirs[cdbAt], theirs[cdbAt+7] = 0x00, 0
		}
	}()
	defer func() {
		stop.Store(true)
		<-done
		if p := recover(); p != nil {
			t.Errorf("the entry changed, and so: %v", p)
		}
	}()
	c := &Command{dev: d}
	taken := 0
	// A busy machine may let the other side stand still with an entry that is refused: then it takes longer.
	for begin := time.Now(); time.Since(begin) < time.Second || taken == 0 && time.Since(begin) < patience; {
		for range 1000 {
			if d.describe(c, entry(ours), ours[ring:ring+length]) {
				taken++
				additional := byte(0)
				if len(c.CDB) > 7 {
					additional = c.CDB[7]
				}
				if len(c.CDB) != cdbLen(c.CDB[0], additional) {
					t.Fatalf("a CDB of %d bytes begins with %#x", len(c.CDB), c.CDB[0])
				}
			}
			if m, err := readTMR(ours[ring+2048 : ring+2048+tmrSize+8]); err == nil && len(m.IDs) > 4 {
				t.Fatalf("%d numbers in an entry with room for 4", len(m.IDs))
			}
		}
	}
	if taken == 0 {
		t.Error("no entry was ever taken: the test shows nothing")
	}
}
