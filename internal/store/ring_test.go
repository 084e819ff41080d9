package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/uring"
)

// oddFS is a file system on a disk whose page cache has nothing. Rings know its files by other
// descriptors, and its reads by calls can fail.
type oddFS struct {
	FS
	descriptor func(path string, fd int) int // by which a ring knows a file
	calls      atomic.Int64                  // reads by calls
	waits      bool                          // it cannot read without waiting
	fail       error                         // of reads by calls
}

type oddFile struct {
	DataFile
	fs   *oddFS
	path string
}

func (o *oddFS) OpenData(path string) (DataFile, error) {
	f, err := o.FS.OpenData(path)
	return oddFile{f, o, path}, err
}

func (o *oddFS) Instant(string) bool { return false }

func (f oddFile) Descriptor() int {
	fd := f.DataFile.(descriptor).Descriptor()
	if f.fs.descriptor == nil {
		return fd
	}
	return f.fs.descriptor(f.path, fd)
}

func (f oddFile) ReadNow(vec [][]byte, off int64) (int, error) {
	if f.fs.waits {
		return 0, errWaits
	}
	return f.DataFile.ReadNow(vec, off)
}

func (f oddFile) Readv(vec [][]byte, off int64) (int, error) {
	f.fs.calls.Add(1)
	if f.fs.fail != nil {
		return 0, f.fs.fail
	}
	return f.DataFile.Readv(vec, off)
}

// oddStore is a store with one mdisk, m, of 1 MiB, each of whose sectors has another content.
type oddStore struct {
	t    *testing.T
	fs   *oddFS
	exec *block.Live
	s    *Files
	m    *fileMedium
	want []byte
}

func openOdd(t *testing.T, fs *oddFS) *oddStore {
	fs.FS = OS
	o := &oddStore{t: t, fs: fs, exec: block.NewLive(), want: make([]byte, 1<<20)}
	t.Cleanup(o.exec.Stop)
	var err error
	if o.s, err = OpenFiles(o.exec, t.TempDir(), FilesOptions{FS: fs}); err != nil {
		t.Fatal(err)
	}
	needRing(t, o.s)
	m, err := o.s.Medium("m", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.want {
		o.want[i] = byte(i>>9) ^ byte(i*7)
	}
	o.m = m.(*fileMedium)
	live{o.exec}.Wait(func(done func()) {
		m.Submit([]*block.IO{{Write: true, N: 1 << 20, Vec: [][]byte{o.want}, Done: func(*block.IO) { done() }}})
	})
	return o
}

// begin submits n reads of 4 KiB in one batch, which the page cache answers only if it may; ended
// hears of each.
func (o *oddStore) begin(n int) (ios []*block.IO, ended chan *block.IO) {
	ended = make(chan *block.IO, n)
	for i := range n {
		ios = append(ios, &block.IO{Off: uint64(i) % 256 * 4096, N: 4096, Vec: [][]byte{make([]byte, 1000), make([]byte, 3096)},
			Done: func(io *block.IO) { ended <- io }})
	}
	o.exec.Lock()
	o.m.Submit(ios)
	o.exec.Unlock()
	return ios, ended
}

func (o *oddStore) wait(ended chan *block.IO) *block.IO {
	o.t.Helper()
	select {
	case io := <-ended:
		return io
	case <-time.After(time.Minute):
		o.t.Fatal("a read never ended")
		return nil
	}
}

// reads has n reads, which all have to bring the right data, or to fail with want.
func (o *oddStore) reads(n int, want error) {
	o.t.Helper()
	_, ended := o.begin(n)
	for range n {
		io := o.wait(ended)
		if got := append(bytes.Clone(io.Vec[0]), io.Vec[1]...); !errors.Is(io.Err, want) {
			o.t.Fatalf("a read at %d ends with %v, not %v", io.Off, io.Err, want)
		} else if want == nil && !bytes.Equal(got, o.want[io.Off:io.Off+4096]) {
			o.t.Fatalf("a read at %d brings something else", io.Off)
		}
	}
}

// other makes a file with contents and returns its descriptor.
func other(t *testing.T, contents []byte, flags int) int {
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// pipeEnd returns the descriptor of a pipe from which nobody will hear.
func pipeEnd(t *testing.T) int {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	unix.Close(pipe[1])
	t.Cleanup(func() { unix.Close(pipe[0]) })
	return pipe[0]
}

// TestRingThatFails: whatever a ring says of a read that it does not bring as a whole, the read is
// done once more by calls, and ends as these say: with the data, or with their error.
func TestRingThatFails(t *testing.T) {
	noise := bytes.Repeat([]byte("noise"), 300<<10)
	for name, fd := range map[string]func() int{
		"bad descriptor":      func() int { return -1 },
		"not for reading":     func() int { return other(t, noise, unix.O_WRONLY) },
		"nothing to read":     func() int { return other(t, nil, unix.O_RDONLY) },
		"it ends too early":   func() int { return other(t, noise[:512<<10+100], unix.O_RDONLY) },
		"other contents":      func() int { return other(t, noise, unix.O_RDONLY) },
		"nobody writes to it": func() int { return pipeEnd(t) },
	} {
		for _, ext := range []string{".img", ".sum"} {
			t.Run(name+ext, func(t *testing.T) {
				odd := fd()
				o := openOdd(t, &oddFS{descriptor: func(path string, fd int) int {
					if strings.Contains(path, ext) { // one of the checksums is made under another name
						return odd
					}
					return fd
				}})
				o.fs.calls.Store(0)
				o.reads(300, nil)
				if n := o.fs.calls.Load(); n < 2 { // of two files
					t.Errorf("%d reads by calls: the ring did not fail", n)
				}
				o.fs.fail = unix.EIO
				if name != "it ends too early" { // there some come from the ring
					o.reads(10, unix.EIO)
				}
				if err := o.s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestRingCarriesReads: where nothing fails, no read is done by calls.
func TestRingCarriesReads(t *testing.T) {
	o := openOdd(t, &oddFS{})
	defer o.s.Close()
	forgetFiles(t, o.s.dir)
	o.fs.calls.Store(0)
	o.reads(2000, nil)
	if n := o.fs.calls.Load(); n != 0 {
		t.Errorf("%d reads by calls", n)
	}
}

// TestFileSystemsThatWait: a file system that cannot read without waiting is not read by the ring. The
// kernel would do that in threads of its own, few and for all mdisks, which one that hangs would take.
func TestFileSystemsThatWait(t *testing.T) {
	o := openOdd(t, &oddFS{waits: true})
	defer o.s.Close()
	o.fs.calls.Store(0)
	for range 10 {
		o.reads(1, nil)
	}
	o.reads(100, nil)
	if n := o.fs.calls.Load(); n < 110 {
		t.Errorf("%d reads by calls", n)
	}
}

// smallRing gives stores that the test opens from now on rings of as many places. A ring that a store
// has is not replaced: workers look at it.
func smallRing(t *testing.T, places, answers int) {
	t.Cleanup(func() { openURing = uring.Open })
	openURing = func(_, usual int) (*uring.Ring, error) {
		if usual == ringAnswers {
			return uring.Open(places, answers)
		}
		return uring.Open(places, places)
	}
}

// TestFullRing: with room for one transfer all come to their end.
func TestFullRing(t *testing.T) {
	smallRing(t, 4, 4)
	o := openOdd(t, &oddFS{})
	defer o.s.Close()
	if n := len(o.s.ring.slots); n != 1 {
		t.Fatal(n)
	}
	for range 5 {
		forgetFiles(t, o.s.dir)
		o.reads(500, nil)
	}
}

// TestRingTakesNothing: a kernel that takes no submissions for a while costs time, and no read.
func TestRingTakesNothing(t *testing.T) {
	defer func() { openURing = uring.Open }()
	var left atomic.Int64
	var errno atomic.Int64
	openURing = func(places, answers int) (*uring.Ring, error) {
		r, err := uring.Open(places, answers)
		if err == nil {
			r.Fault = func() error {
				if left.Add(-1) >= 0 {
					return unix.Errno(errno.Load())
				}
				return nil
			}
		}
		return r, err
	}
	o := openOdd(t, &oddFS{})
	defer o.s.Close()
	for _, no := range []unix.Errno{unix.EAGAIN, unix.EBUSY, unix.ENOMEM} {
		forgetFiles(t, o.s.dir)
		errno.Store(int64(no))
		left.Store(10)
		for range 10 {
			o.reads(100, nil)
		}
		if left.Load() >= 0 {
			t.Error("the kernel was not asked often enough")
		}
	}
}

// TestNoRing: where the kernel or a container refuses io_uring, the store works without, and leaves
// nothing of it.
func TestNoRing(t *testing.T) {
	defer func() { openURing = uring.Open }()
	for refused := range 2 {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			rings := 0
			openURing = func(places, answers int) (*uring.Ring, error) {
				if rings++; rings > refused {
					return nil, unix.EPERM
				}
				return uring.Open(places, answers)
			}
			exec := block.NewLive()
			defer exec.Stop()
			before, _ := os.ReadDir("/proc/self/fd")
			s, err := OpenFiles(exec, t.TempDir(), FilesOptions{FS: &oddFS{FS: OS}})
			if err != nil {
				t.Fatal(err)
			}
			if s.ring != nil {
				t.Fatal("it has a ring")
			}
			if now, _ := os.ReadDir("/proc/self/fd"); len(now) != len(before)+1 { // the lock
				t.Errorf("%d descriptors became %d", len(before), len(now))
			}
			m, err := s.Medium("m", 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			got := bytes.Repeat([]byte{1}, 4096)
			live{exec}.Wait(func(done func()) {
				m.Submit([]*block.IO{{N: 4096, Vec: [][]byte{got}, Done: func(*block.IO) { done() }}})
			})
			if !bytes.Equal(got, make([]byte, 4096)) {
				t.Error("it reads something else than zeros")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAbandonedInTheRing: the ring has reads of a disk that does not answer, here a pipe. Buffers
// given back stay as they are when it does.
func TestAbandonedInTheRing(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	o := openOdd(t, &oddFS{descriptor: func(path string, fd int) int {
		if filepath.Ext(path) == ".img" {
			return pipe[0]
		}
		return fd
	}})
	o.m.waits = true // a pipe is not a file: that is about the ring which waits
	const reads = 200
	ios, ended := o.begin(reads) // more than the depth: some are held
	time.Sleep(10 * time.Millisecond)
	bufs := make([][]byte, reads)
	o.exec.Lock()
	for i, io := range ios {
		bufs[i] = io.Vec[0]
		if i%2 == 0 {
			o.m.Abandon(io)
			copy(bufs[i], "somebody else's")
		}
	}
	o.exec.Unlock()
	select {
	case <-ended:
		t.Fatal("a read of a silent disk has ended")
	default:
	}
	unix.Close(pipe[1]) // it answers: that there is nothing
	for range reads {
		io := o.wait(ended)
		if io.Vec != nil && (io.Err != nil || !bytes.Equal(io.Vec[0], o.want[io.Off:io.Off+1000])) {
			t.Errorf("the read at %d ends with %v, or brings something else", io.Off, io.Err)
		}
	}
	for i := 0; i < reads; i += 2 {
		if ios[i].Vec != nil || !bytes.HasPrefix(bufs[i], []byte("somebody else's\x00")) {
			t.Errorf("read %d moved data although it was abandoned", i)
		}
	}
	if err := o.s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseWaitsForTheRing: what the disk still has when the store is closed ends first.
func TestCloseWaitsForTheRing(t *testing.T) {
	for range 20 {
		o := openOdd(t, &oddFS{})
		forgetFiles(t, o.s.dir)
		_, ended := o.begin(100)
		if err := o.s.Close(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if io := o.wait(ended); io.Err != nil {
				t.Fatal(io.Err)
			}
		}
	}
}
