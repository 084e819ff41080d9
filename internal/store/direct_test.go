package store

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// onDisk returns a folder of the file system of tests, which must not be memory.
func onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if testkit.InMemory(dir) {
		t.Skip("the folder of tests is in memory")
	}
	if OS.Instant(dir) {
		t.Fatalf("%s is on a disk, and taken for memory", dir)
	}
	return dir
}

// TestDirectWrites: random writes past the page cache, many at a time and some over each other, beside
// reads. All is there, with its checksums, also where the ring dies meanwhile, and for who opens the
// files anew. That they did go past it, the page cache says: it has nothing of them.
func TestDirectWrites(t *testing.T) {
	for _, dies := range []bool{false, true} {
		fail, _, _ := faultyRings(t)
		dir, seed := onDisk(t), testkit.Seed(t)
		rnd := rand.New(rand.NewPCG(seed, 1))
		const size = 4 << 20
		exec, m := openMedium(t, dir, FilesOptions{Direct: true}, size)
		medium := m.(*fileMedium)
		needRing(t, medium.s)
		if medium.past.file == nil {
			t.Skip("the file system has no writes past the page cache")
		}
		want := make([]byte, size)
		for round := range 20 {
			exec.Wait(func(done func()) {
				left := 1
				end := func(io *block.IO) {
					if io != nil && io.Err != nil {
						t.Errorf("round %d: write %v of %d bytes at %d: %v", round, io.Write, io.N, io.Off, io.Err)
					}
					if left--; left == 0 {
						done()
					}
				}
				for range 200 {
					sectors := 8 * (1 + rnd.IntN(4))
					if rnd.IntN(4) == 0 {
						sectors = 1 + rnd.IntN(20)
					}
					n := sectors * block.SectorSize
					off := rnd.IntN((size-n)/4096) * 4096
					if n%4096 != 0 {
						off += rnd.IntN(8) * block.SectorSize
					}
					off = min(off, size-n)
					left++
					if rnd.IntN(4) == 0 {
						m.Submit([]*block.IO{{Off: uint64(off), N: uint64(n), Vec: [][]byte{make([]byte, n)}, Done: end}})
						continue
					}
					b := make([]byte, 64<<10)[:n] // a large one begins where a page does
					testkit.Fill(rnd, b)
					copy(want[off:], b)
					cut := rnd.IntN(sectors+1) * block.SectorSize
					m.Submit([]*block.IO{{Write: true, Off: uint64(off), N: uint64(n), Vec: [][]byte{b[:cut:cut], b[cut:]}, Done: end}})
				}
				end(nil)
			})
			if dies && round == 10 {
				fail.Store(true)
			}
		}
		got := make([]byte, size)
		if n, err := medium.f.ReadNow([][]byte{got[:4096]}, size-4096); !dies && n > 0 && err == nil && !bytes.Equal(got[:4096], want[size-4096:]) {
			t.Error("the page cache has something else")
		}
		check := func(exec live, m block.Medium) {
			exec.Wait(func(done func()) {
				m.Submit([]*block.IO{{N: size, Vec: [][]byte{got}, Done: func(io *block.IO) {
					if io.Err != nil || !bytes.Equal(got, want) {
						t.Errorf("the ring dies: %v: it has something else (%v)", dies, io.Err)
					}
					done()
				}}})
			})
		}
		check(exec, m)
		if err := medium.s.Close(); err != nil {
			t.Fatal(err)
		}
		fail.Store(false)
		exec, m = openMedium(t, dir, FilesOptions{}, size)
		check(exec, m)
	}
}

// TestWritesOfAnEarlierProcess: an mdisk is opened when nothing of an earlier process writes to its file
// any more, which the lock of its open file says.
func TestWritesOfAnEarlierProcess(t *testing.T) {
	for _, opt := range engines {
		dir := onDisk(t)
		_, s := openFolder(t, dir, opt)
		m, err := s.Medium("m", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(s.mdiskPath("m"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		// What is read may hang without an end in a process that was killed: only who writes past the page
		// cache keeps the lock.
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if direct := m.(*fileMedium).past.file != nil; direct != (err == unix.EWOULDBLOCK) {
			t.Fatalf("%+v: it is written past the page cache: %v, and to lock it ends with %v", opt, direct, err)
		}
		f.Close()
	}
	dir := onDisk(t)
	_, s := openFolder(t, dir, FilesOptions{})
	f, err := os.Create(s.mdiskPath("m"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	begin, over := time.Now(), make(chan error)
	time.AfterFunc(200*time.Millisecond, func() { over <- unix.Flock(int(f.Fd()), unix.LOCK_UN) })
	if _, err := s.Medium("m", 1<<20); err != nil || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("it was opened after %v: %v", time.Since(begin), err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestVectorsInParts: a write by vectors is whole, wherever it is cut.
func TestVectorsInParts(t *testing.T) {
	f, err := OS.OpenData(onDisk(t) + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 2))
	const size = 1 << 20
	want, got := make([]byte, size), make([]byte, size)
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	f.(*osFile).parts = true
	for range 200 {
		off := rnd.IntN(size)
		n := rnd.IntN(size - off + 1)
		b := want[off : off+n]
		testkit.Fill(rnd, b)
		var vec [][]byte
		for len(b) > 0 {
			k := 1 + rnd.IntN(min(len(b), 1+rnd.IntN(100_000)))
			vec, b = append(vec, b[:k]), b[k:]
		}
		if err := writeFull(f, vec, int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	if err := readFull(f, [][]byte{got}, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has something else (%v)", err)
	}
}

// written returns the bytes that this process has had written to disks.
func written(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("the kernel does not count what a process writes:", err)
	}
	at := bytes.Index(b, []byte("\nwrite_bytes: "))
	for _, c := range b[at+len("\nwrite_bytes: "):] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// TestFlushWritesWhatHasChanged: pages of NVRAM that lie far apart are changed. A flush writes these and a
// few of their neighbours, whatever size of folios the file system likes.
func TestFlushWritesWhatHasChanged(t *testing.T) {
	const size, apart = 64 << 20, 1 << 20
	_, s := openFolder(t, onDisk(t), FilesOptions{})
	r, _, err := s.Region("nvram", block.RegionLayout{State: 4096, Pages: size})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.FlushNow(); err != nil {
		t.Fatal(err)
	}
	before := written(t)
	pages := r.Memory().Pages
	for at := 0; at < len(pages); at += apart {
		pages[at]++
	}
	if err := r.FlushNow(); err != nil {
		t.Fatal(err)
	}
	n := written(t) - before
	if least := size / apart * 4096; n < least {
		t.Skipf("the file system counts %d bytes, and not %d", n, least)
	}
	if most := size / apart * 2 * partBytes; n > most {
		t.Errorf("%d pages were changed, %d bytes were written, and more than %d", size/apart, n, most)
	}
}

// TestPreparedPages: what is made ready to be written has the same bytes then, and behind a flush.
func TestPreparedPages(t *testing.T) {
	exec, s := openFolder(t, onDisk(t), FilesOptions{})
	r, _, err := s.Region("nvram", block.RegionLayout{State: 4096, Pages: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 3))
	pages := r.Memory().Pages
	want := make([]byte, len(pages))
	for range 200 {
		var list []uint32
		for i := range uint32(256) {
			if rnd.IntN(3) > 0 {
				list = append(list, i)
			}
		}
		exec.Wait(func(done func()) { r.(block.Preparer).Prepare(list, done) })
		exec.Wait(func(done func()) {
			r.Flush(func(err error) {
				if err != nil {
					t.Error(err)
				}
				done()
			})
			for range 50 { // while it is flushed
				at := rnd.IntN(len(pages))
				pages[at]++
				want[at]++
			}
		})
		if !bytes.Equal(pages, want) {
			t.Fatal("NVRAM has other bytes")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.dir + "/nvram")
	if err != nil || !bytes.Equal(b[len(b)-len(want):], want) {
		t.Errorf("the file has other bytes (%v)", err)
	}
}
