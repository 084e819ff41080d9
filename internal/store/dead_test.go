package store

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/uring"
)

// faultyRings has all calls of rings fail once it is told so, and counts these until the test ends.
func faultyRings(t *testing.T) (fail *atomic.Bool, now, deep *atomic.Int64) {
	fail, now, deep = new(atomic.Bool), new(atomic.Int64), new(atomic.Int64)
	t.Cleanup(func() { openURing = uring.Open })
	openURing = func(places, answers int) (*uring.Ring, error) {
		r, err := uring.Open(places, answers)
		if err != nil {
			return nil, err
		}
		n := now
		if answers == ringAnswers {
			n = deep
		}
		r.Fault = func() error {
			if !fail.Load() {
				return nil
			}
			n.Add(1)
			return unix.EBADF
		}
		return r, nil
	}
	return fail, now, deep
}

// TestRingThatDies: when the ring works no more, it is given up after a number of tries, and said so once.
// What it has not handed over ends, and what the kernel has and never brings, too: by calls. The buffers
// that the kernel may write to are never used again.
func TestRingThatDies(t *testing.T) {
	fail, now, deep := faultyRings(t)
	o, answer := openSilent(t)
	var said []string
	o.s.opt.Notice = func(line string) { said = append(said, line) }
	m, err := o.s.Medium("silent", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	silent := m.(*fileMedium)
	const reads = 50
	ended := make(chan *block.IO, reads)
	o.exec.Lock()
	silent.waits, o.m.waits = true, true // nothing but the ring that waits
	for i := range uint64(reads) {
		got := make([]byte, 4096)
		got[0] = 1 // the mdisk has zeros
		m.Submit([]*block.IO{{Off: i * 4096, N: 4096, Vec: [][]byte{got}, Done: func(io *block.IO) { ended <- io }}})
	}
	o.exec.Unlock()
	r := o.s.ring
	for under := 0; under < reads; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		under = len(r.slots) - len(r.free)
		r.mu.Unlock()
	}
	o.reads(1, nil) // it goes to the kernel behind them: they are there
	lost.Lock()
	before := len(lost.bufs)
	lost.Unlock()
	fail.Store(true)
	o.reads(500, nil)
	for range reads {
		if io := o.wait(ended); io.Err != nil || io.Vec[0][0] != 0 {
			t.Fatalf("a read that the ring had ends with %v, or brings something else", io.Err)
		}
	}
	// A call may be about to begin while the ring begins to fail: its failure counts as the end of what rings the bell.
	if n := deep.Load(); n != ringTries && n != ringTries+1 {
		t.Errorf("it was tried %d times, and not %d", n, ringTries)
	}
	answer()
	lost.Lock()
	mine := lost.bufs[before:]
	lost.Unlock()
	if len(mine) != 2*reads {
		t.Errorf("%d buffers of %d reads are kept for the kernel", len(mine), reads)
	}
	kept := map[*byte]bool{}
	for _, b := range mine {
		kept[unsafe.SliceData(b)] = true
	}
	o.reads(300, nil)
	o.exec.Lock()
	for _, list := range o.s.bufs.free {
		for _, b := range list {
			if kept[unsafe.SliceData(b)] {
				t.Error("a buffer that the kernel may write to is used again")
			}
		}
	}
	for x := o.s.free; x != nil; x = x.next {
		if kept[unsafe.SliceData(x.own.list[0])] {
			t.Error("a buffer for checksums that the kernel may write to is used again")
		}
	}
	o.m.waits = false
	o.exec.Unlock()
	for range 2 * ringTries { // these are in the page cache
		o.reads(ringBatch, nil)
	}
	if n := now.Load(); n != ringTries {
		t.Errorf("reads of the page cache tried it %d times, and not %d", n, ringTries)
	}
	if err := o.s.Close(); err != nil {
		t.Error(err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "io_uring has failed") {
		t.Errorf("it said %q", said)
	}
}

// TestCloseOfADeadRing: a store is closed while its ring dies.
func TestCloseOfADeadRing(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	fail, _, _ := faultyRings(t)
	for i := range 20 {
		fail.Store(false)
		o := openOdd(t, &oddFS{})
		o.exec.Lock()
		o.m.waits = true
		o.exec.Unlock()
		fail.Store(true)
		_, ended := o.begin(depth + 50)
		time.Sleep(time.Duration(i) * 10 * time.Millisecond)
		if err := o.s.Close(); err != nil {
			t.Fatal(err)
		}
		for range depth + 50 {
			if io := o.wait(ended); io.Err != nil && !errors.Is(io.Err, ErrClosed) {
				t.Fatal(io.Err)
			}
		}
	}
}

// TestEngines: a store that needs a ring does not open without, and leaves the folder to others; on tmpfs,
// where nothing waits, it does not need one.
func TestEngines(t *testing.T) {
	defer func() { openURing = uring.Open }()
	openURing = func(int, int) (*uring.Ring, error) { return nil, unix.EPERM }
	exec := block.NewLive()
	defer exec.Stop()
	dir := t.TempDir()
	fs := &oddFS{FS: OS}
	if _, err := OpenFiles(exec, dir, FilesOptions{FS: fs, NeedRing: true}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "aio: threads") {
		t.Errorf("it says %v", err)
	}
	for _, at := range []struct {
		dir string
		opt FilesOptions
	}{{dir, FilesOptions{FS: fs}}, {dir, FilesOptions{FS: fs, NoRing: true}}, {folder(t, true), FilesOptions{NeedRing: true}}} {
		s, err := OpenFiles(exec, at.dir, at.opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
