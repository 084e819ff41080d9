package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// blocks returns the bytes that a file takes on its disk.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestDiscardGivesRoomBack: the file system has the room again, of the data and of its checksums.
func TestDiscardGivesRoomBack(t *testing.T) {
	dir := folder(t, true)
	d, m := openMedium(t, dir, FilesOptions{}, 32<<20)
	const size = 16 << 20
	d.Wait(func(done func()) {
		m.Submit([]*block.IO{{Write: true, N: size, Vec: [][]byte{bytes.Repeat([]byte{1}, size)}, Done: func(*block.IO) { done() }}})
	})
	files := []string{filepath.Join(dir, "mdisk", "m.img"), filepath.Join(dir, "mdisk", "m.sum")}
	var before [2]int64
	for i, f := range files {
		before[i] = blocks(t, f)
	}
	d.Wait(func(done func()) {
		m.(block.Discarder).Discard(0, size, func(err error) {
			if err != nil {
				t.Error(err)
			}
			done()
		})
	})
	for i, least := range []int64{size, size/512*sumBytes - 8192} {
		if now := blocks(t, files[i]); before[i]-now < least {
			t.Errorf("%s took %d bytes and takes %d", files[i], before[i], now)
		}
	}
	if st, err := os.Stat(files[0]); err != nil || st.Size() != 32<<20 {
		t.Errorf("%v, %v", st, err)
	}
}

// flatFS is a file system that makes no holes.
type flatFS struct{ FS }

type flatFile struct{ DataFile }

func (f flatFS) OpenData(path string) (DataFile, error) {
	file, err := f.FS.OpenData(path)
	return flatFile{file}, err
}

func (flatFile) Punch(int64, int64) error { return errors.ErrUnsupported }

// TestDiscardUnsupported: where the file system makes no holes, nothing changes, and who asked hears why.
func TestDiscardUnsupported(t *testing.T) {
	d, m := openMedium(t, t.TempDir(), FilesOptions{FS: flatFS{OS}}, 1<<20)
	want, got := bytes.Repeat([]byte{1}, 4096), make([]byte, 4096)
	d.Wait(func(done func()) {
		m.Submit([]*block.IO{{Write: true, N: 4096, Vec: [][]byte{want}, Done: func(*block.IO) { done() }}})
	})
	d.Wait(func(done func()) {
		m.(block.Discarder).Discard(0, 4096, func(err error) {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("it ends with %v", err)
			}
			done()
		})
	})
	d.Wait(func(done func()) {
		m.Submit([]*block.IO{{N: 4096, Vec: [][]byte{got}, Done: func(*block.IO) { done() }}})
	})
	if !bytes.Equal(got, want) || m.(block.Discarder).Discarded() != 0 {
		t.Errorf("it reads %x..., and %d bytes count as discarded", got[:4], m.(block.Discarder).Discarded())
	}
}
