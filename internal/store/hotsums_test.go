package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// countFS is a file system that never waits, and counts reads of checksums.
type countFS struct {
	FS
	reads int
}

type countFile struct {
	DataFile
	fs *countFS
}

func (c *countFS) Instant(string) bool { return true }

func (c *countFS) OpenData(path string) (DataFile, error) {
	f, err := c.FS.OpenData(path)
	if strings.Contains(path, ".sum") {
		f = countFile{f, c}
	}
	return f, err
}

func (f countFile) Readv(vec [][]byte, off int64) (int, error) {
	f.fs.reads++
	return f.DataFile.Readv(vec, off)
}

// TestHotSums: what is read again and again is read without its checksums' file, and is what was
// written last all the same, whoever wrote it, or is found to be damaged.
func TestHotSums(t *testing.T) {
	fs := &countFS{FS: OS}
	exec := block.NewLive()
	defer exec.Stop()
	d := live{exec}
	s, err := OpenFiles(exec, folder(t, true), FilesOptions{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const size = (hotParts + 1) * hotData
	open, err := s.Medium("m", size)
	if err != nil {
		t.Fatal(err)
	}
	m := open.(*fileMedium)
	transfer := func(write bool, class block.Class, off uint64, b []byte) (err error) {
		d.Wait(func(done func()) {
			m.Submit([]*block.IO{{Write: write, Class: class, Off: off, N: uint64(len(b)), Vec: [][]byte{b},
				Done: func(io *block.IO) { err = io.Err; done() }}})
		})
		return err
	}
	write := func(off uint64, n int, with byte) {
		t.Helper()
		if err := transfer(true, block.ClassHost, off, bytes.Repeat([]byte{with}, n)); err != nil {
			t.Fatal(err)
		}
	}
	// has reads 4 KiB n times, which takes that many reads of checksums at most.
	has := func(what string, off uint64, with byte, n, most int) {
		t.Helper()
		before := fs.reads
		for range n {
			got := make([]byte, 4096)
			if err := transfer(false, block.ClassHost, off, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{with}, 4096)) {
				t.Fatalf("%s: it reads %x..., not %x: %v", what, got[0], with, err)
			}
		}
		if now := fs.reads - before; now > most {
			t.Errorf("%s: %d reads of checksums for %d reads", what, now, n)
		}
	}
	write(0, 1<<20, 1)
	has("a large write", 8192, 1, 100, 3)
	has("its neighbour", 12288, 1, 100, 0)
	write(8192, 4096, 2)
	has("a small write", 8192, 2, 100, 0)
	write(4096, 256<<10, 3)
	has("a large write over it", 8192, 3, 100, 3)
	// Another part with the same place in memory: it takes the place when it is met twice.
	has("the last part", hotParts*hotData+4096, 0, 100, 3)
	has("the first part again", 8192, 3, 100, 3)
	d.Wait(func(done func()) { m.Discard(8192, 8192, func(error) { done() }) })
	has("a discard", 8192, 0, 100, 3)
	write(8192, 4096, 4)
	has("a write behind that", 8192, 4, 100, 0)
	// What others write to both files is not in memory.
	o := &fileMedium{s: s, f: m.f, sums: m.sums, size: size}
	if err := o.transferWith(&block.IO{Write: true, Off: 8192, N: 4096, Vec: [][]byte{bytes.Repeat([]byte{5}, 4096)}}, &scratch{}); err != nil {
		t.Fatal(err)
	}
	has("somebody else's write", 8192, 5, 100, 5)
	// Scrubs compare with what is on the disk, and damage is found by all.
	has("before damage", 8192, 5, 10, 3)
	if _, err := m.sums.Writev([][]byte{[]byte("????")}, sumAt(8192)); err != nil {
		t.Fatal(err)
	}
	var sum *block.ChecksumError
	if err := transfer(false, block.ClassScrub, 8192, make([]byte, 4096)); !errors.As(err, &sum) {
		t.Errorf("a scrub over damaged checksums: %v", err)
	}
	if _, err := m.f.Writev([][]byte{[]byte("????")}, 12288); err != nil {
		t.Fatal(err)
	}
	if err := transfer(false, block.ClassHost, 12288, make([]byte, 4096)); !errors.As(err, &sum) {
		t.Errorf("a read of damaged data: %v", err)
	}
	d.Wait(func(done func()) { s.RemoveMedium("m", func(error) { done() }) })
	if s.hotParts == 0 || len(s.cold) != s.hotParts || m.hot.count != 0 || s.hotMore != 0 {
		t.Errorf("of %d buffers %d came back, %d and %d are counted", s.hotParts, len(s.cold), m.hot.count, s.hotMore)
	}
}

// TestHotShares: an mdisk may have what others leave, up to hotParts, and hotOwn whatever they have.
func TestHotShares(t *testing.T) {
	s := &Files{}
	media := make([]fileMedium, 16)
	takes := func(i, want int) (bufs [][]byte) {
		t.Helper()
		media[i].s = s
		for b := media[i].coldPart(); b != nil; b = media[i].coldPart() {
			bufs = append(bufs, b)
		}
		if len(bufs) != want {
			t.Errorf("mdisk %d has %d parts, not %d", i, len(bufs), want)
		}
		return bufs
	}
	first := takes(0, hotParts)
	for i := range media[1:] {
		takes(i+1, hotOwn)
	}
	for _, b := range first {
		media[0].giveCold(b)
	}
	takes(1, hotMore)
	takes(0, hotOwn)
	if s.hotParts != hotAll || len(s.cold) != 0 {
		t.Errorf("%d buffers, %d of them cold", s.hotParts, len(s.cold))
	}
}

// TestLargeRangesAreCold: what lies in a range that is larger than all parts together is forgotten,
// wherever it lies.
func TestLargeRangesAreCold(t *testing.T) {
	for _, part := range []uint64{0, 1, hotParts - 1, hotParts, hotParts + 5, 3*hotParts + 7} {
		h := hotSums{parts: make([]hotPart, hotParts)}
		h.parts[part%hotParts] = hotPart{sums: make([]byte, hotBytes), part: part + 1}
		h.drop((part+1)*hotData, 10*hotParts*hotData)
		if h.find(part*hotData, 4096) == nil {
			t.Errorf("part %d is forgotten with those behind it", part)
		}
		h.drop(0, (part+1)*hotData)
		if h.find(part*hotData, 4096) != nil {
			t.Errorf("part %d is still there", part)
		}
	}
}

// TestWrongHotSums: checksums in memory that do not match are found out by whoever uses them, and do not
// stay, or each read of them would be done twice from then on.
func TestWrongHotSums(t *testing.T) {
	for name, c := range map[string]struct {
		waits, rings bool
		reads        int
	}{
		"one of the page cache":  {false, true, 1},
		"many of the page cache": {false, true, 2 * ringBatch},
		"the ring":               {true, true, 2 * ringBatch},
		"goroutines":             {true, false, 2 * ringBatch},
		"a goroutine":            {true, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := openOdd(t, &oddFS{})
			defer o.s.Close()
			for range 3 {
				o.reads(c.reads, nil)
			}
			o.exec.Lock()
			sums := o.m.hot.find(0, 4096)
			for i := range sums {
				sums[i] ^= 0x55
			}
			wrong := bytes.Clone(sums)
			o.m.waits, o.m.rings = c.waits, c.rings
			o.exec.Unlock()
			if wrong == nil {
				t.Fatal("they are not in memory")
			}
			o.reads(c.reads, nil)
			o.exec.Lock()
			if bytes.Equal(o.m.hot.find(0, 4096), wrong) {
				t.Error("wrong checksums stay in memory")
			}
			o.exec.Unlock()
		})
	}
}

// TestFailedReadsMoveNothing: a read that fails has nothing in the reader's buffer that others have read;
// one whose checksums do not match has what it found, from which its user may mend it.
func TestFailedReadsMoveNothing(t *testing.T) {
	o := openOdd(t, &oddFS{})
	defer o.s.Close()
	o.exec.Lock()
	o.m.waits, o.m.rings = true, false
	o.exec.Unlock()
	o.reads(100, nil) // their buffers are used again
	o.fs.fail = unix.EIO
	ios, ended := o.begin(20)
	for _, io := range ios {
		for _, b := range io.Vec {
			if len(bytes.Trim(b, "\x00")) > 0 {
				t.Fatal("it was read at once")
			}
		}
	}
	for range ios {
		io := o.wait(ended)
		if !errors.Is(io.Err, unix.EIO) {
			t.Errorf("a read ends with %v", io.Err)
		}
		for _, b := range io.Vec {
			if len(bytes.Trim(b, "\x00")) > 0 {
				t.Fatal("a read that failed moved what others have read")
			}
		}
	}
	o.fs.fail = nil
	if _, err := o.m.f.Writev([][]byte{bytes.Repeat([]byte("bad"), 2048)}, 0); err != nil {
		t.Fatal(err)
	}
	_, ended = o.begin(1)
	var sum *block.ChecksumError
	if io := o.wait(ended); !errors.As(io.Err, &sum) || !bytes.HasPrefix(io.Vec[0], []byte("badbad")) {
		t.Errorf("a damaged sector ends with %v, and %q", io.Err, io.Vec[0][:6])
	}
}
