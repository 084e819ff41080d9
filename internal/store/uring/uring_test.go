package uring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/testkit"
)

// open makes a ring, or skips: containers and old kernels have none.
func open(t testing.TB, submissions, answers int) *Ring {
	t.Helper()
	r, err := Open(submissions, answers)
	switch {
	case err != nil && testkit.HasRings():
		t.Fatal("the kernel has rings:", err)
	case err != nil:
		t.Skip(err)
	}
	return r
}

func file(t testing.TB, size int) (*os.File, []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 31 >> 4)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return f, b
}

func none(t testing.TB) func(uint64) {
	return func(user uint64) { t.Errorf("submission %d came back", user) }
}

// TestReadsAndWrites has more transfers than places, with one buffer and with several: each is
// answered once, and moves its own bytes.
func TestReadsAndWrites(t *testing.T) {
	r := open(t, 8, 256)
	if flags, err := unix.FcntlInt(uintptr(r.fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("other programs would inherit it: %#x, %v", flags, err)
	}
	f, want := file(t, 64<<10)
	fd := int(f.Fd())
	const n = 128
	got := make([][]byte, n)
	for i := range n {
		if r.Room() == 0 {
			if err := r.Submit(none(t)); err != nil {
				t.Fatal(err)
			}
		}
		if i%4 == 3 {
			r.Write(fd, [][]byte{want[i*512 : i*512+100], want[i*512+100 : i*512+512]}, int64(i*512), 0, uint64(i))
			continue
		}
		got[i] = make([]byte, 512)
		vec := [][]byte{got[i]}
		if i%2 == 1 {
			vec = [][]byte{got[i][:77], got[i][77:]}
		}
		r.Read(fd, vec, int64(i*512), 0, uint64(i))
	}
	seen := [n]bool{}
	for left := n; left > 0; {
		if err := r.SubmitAndWait(1, none(t)); err != nil {
			t.Fatal(err)
		}
		left -= r.Reap(func(user uint64, res int32) {
			i := int(user)
			if seen[i] || res != 512 {
				t.Errorf("transfer %d: seen %v, it gives %d", i, seen[i], res)
			}
			seen[i] = true
			if got[i] != nil && !bytes.Equal(got[i], want[i*512:i*512+512]) {
				t.Errorf("transfer %d reads something else", i)
			}
		})
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestErrorsAreAnswers: a bad descriptor, the end of the file and a place behind it are answers of
// their transfers, and change nothing for others.
func TestErrorsAreAnswers(t *testing.T) {
	r := open(t, 8, 16)
	defer r.Close()
	f, _ := file(t, 1000)
	b := make([]byte, 4*512)
	r.Read(-1, [][]byte{b[:512]}, 0, 0, 0)
	r.Read(int(f.Fd()), [][]byte{b[512:1024]}, 512, 0, 1)
	r.Read(int(f.Fd()), [][]byte{b[1024:1536]}, 4096, 0, 2)
	r.Read(int(f.Fd()), [][]byte{b[1536:]}, 0, 0, 3)
	if err := r.SubmitAndWait(4, none(t)); err != nil {
		t.Fatal(err)
	}
	want := [4]int32{-int32(unix.EBADF), 1000 - 512, 0, 512}
	if n := r.Reap(func(user uint64, res int32) {
		if res != want[user] {
			t.Errorf("transfer %d gives %d, not %d", user, res, want[user])
		}
	}); n != 4 {
		t.Errorf("%d answers", n)
	}
}

// TestRefusedSubmissions: what the kernel does not take comes back, once each, and the ring works
// when it takes again.
func TestRefusedSubmissions(t *testing.T) {
	r := open(t, 4, 8)
	defer r.Close()
	f, want := file(t, 4096)
	real := enterCall
	defer func() { enterCall = real }()
	for _, c := range []struct {
		name  string
		enter func(fd int, submit, wait, flags uint32) (int, error)
		taken int
		want  error
	}{
		{"busy", func(int, uint32, uint32, uint32) (int, error) { return 0, unix.EBUSY }, 0, unix.EBUSY},
		{"nothing taken", func(int, uint32, uint32, uint32) (int, error) { return 0, nil }, 0, unix.EAGAIN},
		{"interrupted, then some, then no memory", func() func(int, uint32, uint32, uint32) (int, error) {
			calls := 0
			return func(fd int, submit, wait, flags uint32) (int, error) {
				switch calls++; calls {
				case 1:
					return 0, unix.EINTR
				case 2:
					return real(fd, 1, wait, flags)
				}
				return 0, unix.ENOMEM
			}
		}(), 1, unix.ENOMEM},
	} {
		enterCall = c.enter
		back := map[uint64]int{}
		bufs := make([][]byte, 3)
		for i := range bufs {
			bufs[i] = make([]byte, 16)
			r.Read(int(f.Fd()), bufs[i:i+1], 0, 0, uint64(i))
		}
		if err := r.Submit(func(user uint64) { back[user]++ }); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		for i := range bufs {
			if wanted := map[bool]int{false: 1}[i < c.taken]; back[uint64(i)] != wanted {
				t.Errorf("%s: submission %d came back %d times", c.name, i, back[uint64(i)])
			}
		}
		enterCall = real
		if c.taken > 0 {
			if err := r.SubmitAndWait(c.taken, none(t)); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.Reap(func(uint64, int32) {}); n != c.taken || r.Room() != 4 {
			t.Errorf("%s: %d answers, room for %d", c.name, n, r.Room())
		}
		r.Read(int(f.Fd()), bufs[:1], 100, 0, 7)
		if err := r.SubmitAndWait(1, none(t)); err != nil {
			t.Fatal(err)
		}
		r.Reap(func(user uint64, res int32) {
			if user != 7 || res != 16 || !bytes.Equal(bufs[0], want[100:116]) {
				t.Errorf("%s: afterwards %d gives %d", c.name, user, res)
			}
		})
	}
}

// TestRefusedRings: what a kernel or a container refuses is an error, and leaves no descriptor.
func TestRefusedRings(t *testing.T) {
	real := setupCall
	defer func() { setupCall = real }()
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := descriptors()
	for _, want := range []error{unix.ENOSYS, unix.EPERM, unix.ENOMEM} {
		setupCall = func(uint32, *params) (int, error) { return -1, want }
		if r, err := Open(8, 16); r != nil || !errors.Is(err, want) {
			t.Errorf("%v: %v, %v", want, r, err)
		}
	}
	setupCall = func(n uint32, p *params) (int, error) {
		fd, err := real(n, p)
		p.features &^= featNativeWorkers
		return fd, err
	}
	if r, err := Open(8, 16); r != nil || err == nil {
		t.Errorf("an old kernel: %v, %v", r, err)
	}
	if now := descriptors(); now != before {
		t.Errorf("%d descriptors became %d", before, now)
	}
}

// TestNoWaitNeverWaits: reads that must not wait are all answered when Submit returns, with data or with EAGAIN.
func TestNoWaitNeverWaits(t *testing.T) {
	r := open(t, 64, 64)
	defer r.Close()
	f, _ := file(t, 1<<20)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 512<<10, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	bufs := make([]byte, 64*4096)
	for i := range 64 {
		r.Read(int(f.Fd()), [][]byte{bufs[i*4096 : i*4096+4096]}, int64(i)*16384, unix.RWF_NOWAIT, uint64(i))
	}
	if err := r.Submit(none(t)); err != nil {
		t.Fatal(err)
	}
	if n := r.Reap(func(user uint64, res int32) {
		if res != 4096 && res != -int32(unix.EAGAIN) && res != -int32(unix.EOPNOTSUPP) {
			t.Errorf("read %d gives %d", user, res)
		}
	}); n != 64 {
		t.Errorf("%d of 64 have answers", n)
	}
}
