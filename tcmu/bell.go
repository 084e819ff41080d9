package tcmu

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// bell wakes a goroutine that waits in a system call, in a thread of its own: an eventfd.
// A channel would make the goroutine one of the waking thread's, from which the runtime has another thread take it
// over: several times as long as what the goroutine has to do.
type bell struct{ fd int }

// What is rung for; the two count apart in the eventfd.
const (
	bellWork = 1
	bellEnd  = 1 << 32
)

func newBell() (*bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	return &bell{fd}, err
}

// ring never waits: the number of rings that nobody has heard of is far from 2^64.
func (b *bell) ring(what uint64) {
	var v [8]byte
	binary.NativeEndian.PutUint64(v[:], what)
	for {
		if _, err := unix.Write(b.fd, v[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// wait returns what has been rung for since the last time, when that is anything. An eventfd that
// cannot be read has ended.
func (b *bell) wait() (work, end bool) {
	var v [8]byte
	for {
		_, err := unix.Read(b.fd, v[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n := binary.NativeEndian.Uint64(v[:])
		return n%bellEnd != 0, n >= bellEnd || err != nil
	}
}

func (b *bell) close() { _ = unix.Close(b.fd) }
