package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// smallMemory mounts a tmpfs of 4 MiB, as root; it goes with the test.
func smallMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a tmpfs cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all room that there is in dir, and returns what gives it back.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			t.Error(err)
		}
	}
}

// note has the mdisk believe that it has pages.
func (v *viewed) note(first, last uint64) {
	v.exec.Lock()
	defer v.exec.Unlock()
	v.m.view.held.set(first, last)
}

// TestViewOfAFullFileSystem: what is there is overwritten where there is no room, and a page fault for which there is none is
// ErrFull of a write, and zeros for a read, as from the calls.
func TestViewOfAFullFileSystem(t *testing.T) {
	dir := smallMemory(t)
	v := openViewed(t, dir)
	defer v.close()
	const page = 4096
	for off := uint64(0); off < 1<<20; off += page {
		v.write("a page", off, page, 1, 2)
	}
	empty := fill(t, dir)
	for off := uint64(0); off < 1<<20; off += page {
		v.write("a page that is there", off, page, 2, 0)
		v.reads("it", off, page, 2, 0)
	}
	const hole = 8 << 20
	full := func(what string, off uint64, n int) {
		t.Helper()
		if err := v.transfer(true, off, make([]byte, n)); !errors.Is(err, block.ErrFull) {
			t.Errorf("%s ends with %v", what, err)
		}
	}
	full("a write into a hole", hole, page)
	v.note(hole/page, hole/page+63)
	full("a write into a hole that is taken for a page", hole, page)
	full("a write of more of them than one call has, whose first pages are there", 1<<20-128<<10, 256<<10)
	v.note(1<<20/page, 1<<20/page+63)
	full("such a write by the mapping", 1<<20-128<<10, 256<<10)
	v.reads("a hole that is taken for a page", hole+page, page, 0, 10)

	// Somebody punches a page out, and somebody else takes the room.
	if err := v.m.f.Punch(16*page, page); err != nil {
		t.Fatal(err)
	}
	again := make(chan func(), 1)
	func() {
		f, err := os.Create(filepath.Join(dir, "more"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, page)); err != nil {
			t.Fatal(err)
		}
		again <- func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }
	}()
	full("a write of a page that was punched out", 16*page, page)
	var sum *block.ChecksumError
	if err := v.transfer(false, 16*page, make([]byte, page)); !errors.As(err, &sum) {
		t.Errorf("a read of a page that was punched out ends with %v", err)
	}
	(<-again)()
	empty()
	v.write("a page that was punched out, when there is room", 16*page, page, 3, 0)
	v.reads("it", 16*page, page, 3, 0)
	if err := v.transfer(true, 1<<20-128<<10, bytes.Repeat([]byte{4}, 256<<10)); err != nil {
		t.Fatal(err)
	}
	v.reads("what there was no room for", 1<<20-128<<10, 256<<10, 4, 0)
}

// TestViewThatIsTakenAway: while goroutines read and write by the mapping, somebody cuts the file, gives it its length back, and
// takes the room that it had. Each command ends, with what it read or an error, and what is written then is there.
func TestViewThatIsTakenAway(t *testing.T) {
	dir := smallMemory(t)
	v := openViewed(t, dir)
	defer v.close()
	const n = 256 << 10
	if err := v.transfer(true, 0, make([]byte, 4*n)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range uint64(4) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ended := make(chan error, 1)
				v.exec.Lock()
				v.m.Submit([]*block.IO{{Write: i%2 == 0, Off: g * n, N: n, Vec: [][]byte{bytes.Repeat([]byte{byte(i)}, n)}, Done: func(io *block.IO) { ended <- io.Err }}})
				v.exec.Unlock()
				<-ended
			}
		})
	}
	for range 50 {
		if err := v.m.f.Truncate(0); err != nil {
			t.Error(err)
		}
		empty := fill(t, dir)
		if err := v.m.f.Truncate(viewedSize); err != nil {
			t.Error(err)
		}
		empty()
	}
	close(stop)
	wg.Wait()
	for off := uint64(0); off < 4*n; off += n {
		if err := v.transfer(true, off, bytes.Repeat([]byte{5}, n)); err != nil {
			t.Fatal(err)
		}
		v.reads("what was written at last", off, n, 5, 0)
	}
}

// TestViewsLeaveRoom: mappings take no more of the address space than their part of it, and nothing of one that is limited.
func TestViewsLeaveRoom(t *testing.T) {
	v := openViewed(t, folder(t, true))
	most, was := viewBytes.Load()+1<<20, mostViews
	mostViews = func() int64 { return most }
	defer func() { mostViews = was }()
	mapped := func(name string, size uint64) bool {
		t.Helper()
		m, err := v.s.Medium(name, size)
		if err != nil {
			t.Fatal(err)
		}
		return m.(*fileMedium).view.data != nil
	}
	if mapped("large", 2<<20) || !mapped("small", 512<<10) || mapped("third", 512<<10) {
		t.Error("an mdisk is mapped beyond the bound, or one within it is not")
	}
	v.close()
	if left := viewBytes.Load(); left != most-1<<20-viewedSize-sumAt(viewedSize) {
		t.Errorf("%d bytes are taken for mappings that have gone", left)
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &l); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1 << 62, Max: l.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_AS, &l)
	if reserveViews(1) {
		t.Error("a mapping takes some of a limited address space")
	}
}
