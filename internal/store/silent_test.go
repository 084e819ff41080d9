package store

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/uring"
)

// Disks that do not answer, and the ring that all mdisks share.

// openSilent is openOdd, where mdisks whose names have "silent" do not answer the ring before answer.
func openSilent(t *testing.T) (o *oddStore, answer func()) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pipe[0]) })
	o = openOdd(t, &oddFS{descriptor: func(path string, fd int) int {
		if strings.Contains(path, "silent") {
			return pipe[0]
		}
		return fd
	}})
	return o, func() { unix.Close(pipe[1]) }
}

// TestManySilentMdisks: mdisks that do not answer take all places of the ring, and those of another
// one are read all the same.
func TestManySilentMdisks(t *testing.T) {
	o, answer := openSilent(t)
	ended, n := make(chan *block.IO, 20*depth), 0
	for i := range 20 {
		m, err := o.s.Medium(fmt.Sprintf("silent%d", i), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o.exec.Lock()
		m.(*fileMedium).waits = true // a pipe is not a file: see TestAbandonedInTheRing
		for at := range uint64(depth) {
			m.Submit([]*block.IO{{Off: at * 4096, N: 4096, Vec: [][]byte{make([]byte, 4096)}, Done: func(io *block.IO) { ended <- io }}})
			n++
		}
		o.exec.Unlock()
	}
	o.s.ring.mu.Lock()
	if places := len(o.s.ring.slots); n <= places || len(o.s.ring.free) > len(o.s.ring.pending) {
		t.Errorf("%d reads do not take all of %d places", n, places)
	}
	o.s.ring.mu.Unlock()
	forgetFiles(t, o.s.dir)
	o.reads(500, nil)
	answer()
	for range n {
		if io := o.wait(ended); io.Err != nil {
			t.Fatal(io.Err)
		}
	}
	if err := o.s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSilentMdiskFillsOneCall: more reads of an mdisk that does not answer than one call takes, and
// those of another one behind them in the same line.
func TestSilentMdiskFillsOneCall(t *testing.T) {
	smallRing(t, 4, 256) // one transfer a call
	o, answer := openSilent(t)
	m, err := o.s.Medium("silent", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	const reads = 20
	ended := make(chan *block.IO, reads)
	var ios []*block.IO
	for at := range uint64(reads) {
		ios = append(ios, &block.IO{Off: at * 4096, N: 4096, Vec: [][]byte{make([]byte, 4096)}, Done: func(io *block.IO) { ended <- io }})
	}
	forgetFiles(t, o.s.dir)
	o.exec.Lock()
	m.(*fileMedium).waits = true // a pipe is not a file: see TestAbandonedInTheRing
	m.Submit(ios)
	o.exec.Unlock()
	_, others := o.begin(3)
	for range 3 {
		if io := o.wait(others); io.Err != nil {
			t.Error(io.Err)
		}
	}
	answer()
	for range reads {
		o.wait(ended)
	}
	if err := o.s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRingStaysOnItsThread: the kernel ends a read in the thread that submitted it, which it could not
// while that waits for a disk for somebody else.
func TestRingStaysOnItsThread(t *testing.T) {
	defer func() { openURing = uring.Open }()
	var mu sync.Mutex
	threads := map[int]int{}
	openURing = func(places, answers int) (*uring.Ring, error) {
		r, err := uring.Open(places, answers)
		if err == nil && answers == ringAnswers {
			r.Fault = func() error {
				mu.Lock()
				threads[unix.Gettid()]++
				mu.Unlock()
				return nil
			}
		}
		return r, err
	}
	o := openOdd(t, &oddFS{})
	defer o.s.Close()
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 * runtime.GOMAXPROCS(0) { // others want its processor when it comes back
		go func() {
			for !stop.Load() {
				time.Sleep(0)
			}
		}()
	}
	for range 20 {
		forgetFiles(t, o.s.dir)
		o.reads(100, nil)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(threads) != 1 {
		t.Errorf("calls by thread: %v", threads)
	}
}
