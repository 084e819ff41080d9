package block

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/testkit"
)

// empty is a file of no bytes.
func empty(t *testing.T) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// However often signals interrupt a file system that forgets what it has done by then, a file
// gets all of its bytes, each once, in order.
func TestAllocateUnderSignals(t *testing.T) {
	r, f := rand.New(rand.NewPCG(testkit.Seed(t), 1)), empty(t)
	for _, most := range []int64{4096, 100_000, 1 << 20, 1 << 40} { // bytes between two signals
		const size = 100<<20 + 4096
		got, calls := int64(0), 0
		err := allocate(int(f.Fd()), size, func(at, n int64) error {
			calls++
			if at != got || n <= 0 || at+n > size || calls == 1 && n != size {
				t.Fatalf("%d bytes at %d, after %d of %d", n, at, got, size)
			}
			if n > 4096 && n > r.Int64N(2*most) {
				return unix.EINTR
			}
			got += n
			return nil
		})
		if err != nil || got != size {
			t.Errorf("a signal every %d bytes: %d of %d bytes in %d calls, error %v", most, got, size, calls, err)
		}
	}
}

func TestAllocate(t *testing.T) {
	f := empty(t)
	const size = 1<<20 + 5000
	var st unix.Stat_t
	if err := errors.Join(Allocate(int(f.Fd()), size), unix.Fstat(int(f.Fd()), &st)); err != nil {
		t.Fatal(err)
	}
	if st.Size != size || st.Blocks*512 < size {
		t.Errorf("%d bytes, %d of them allocated; want %d", st.Size, st.Blocks*512, size)
	}
	// The disk is full in the midst of it, behind a signal.
	err := allocate(int(f.Fd()), 1<<30, func(at, n int64) error {
		switch {
		case n == 1<<30:
			return unix.EINTR
		case at > 0:
			return unix.ENOSPC
		}
		return unix.Ftruncate(int(f.Fd()), n)
	})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != size {
		t.Errorf("%d bytes after a failure, error %v; want %d", st.Size, err, size)
	}
	if err := Allocate(-1, 1); !errors.Is(err, unix.EBADF) {
		t.Errorf("error %v for no file", err)
	}
}

func TestAgain(t *testing.T) {
	answers := []error{unix.EINTR, unix.EINTR, unix.EIO}
	err := Again(func() error {
		err := answers[0]
		answers = answers[1:]
		return err
	})
	if err != unix.EIO || len(answers) != 0 {
		t.Errorf("error %v, %d answers left", err, len(answers))
	}
}
