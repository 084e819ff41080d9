package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// viewFS counts the calls for data and checksums of files that are mapped.
type viewFS struct {
	FS
	calls atomic.Int64
}

type viewFile struct {
	*osFile
	fs *viewFS
}

func (v *viewFS) OpenData(path string) (DataFile, error) {
	f, err := v.FS.OpenData(path)
	if err != nil {
		return nil, err
	}
	return viewFile{f.(*osFile), v}, nil
}

func (f viewFile) Readv(vec [][]byte, off int64) (int, error) {
	f.fs.calls.Add(1)
	return f.osFile.Readv(vec, off)
}

func (f viewFile) Writev(vec [][]byte, off int64) (int, error) {
	f.fs.calls.Add(1)
	return f.osFile.Writev(vec, off)
}

// viewed is a store on tmpfs whose mdisk is mapped.
type viewed struct {
	t    *testing.T
	exec *block.Live
	fs   *viewFS
	s    *Files
	m    *fileMedium
}

const viewedSize = 512 << 20

// openViewed opens the store in dir.
func openViewed(t *testing.T, dir string) *viewed {
	t.Helper()
	if was := alone; was {
		alone = false
		t.Cleanup(func() { alone = was })
	}
	v := &viewed{t: t, exec: block.NewLive(), fs: &viewFS{FS: OS}}
	t.Cleanup(v.exec.Stop)
	var err error
	if v.s, err = OpenFiles(v.exec, dir, FilesOptions{FS: v.fs}); err != nil {
		t.Fatal(err)
	}
	m, err := v.s.Medium("m", viewedSize)
	if err != nil {
		t.Fatal(err)
	}
	if v.m = m.(*fileMedium); v.m.view.data == nil {
		v.close()
		if testkit.InMemory(dir) {
			t.Fatalf("%s is a tmpfs, and the mdisk is not mapped", dir)
		}
		t.Skip(dir, "is no tmpfs")
	}
	return v
}

func (v *viewed) close() {
	v.t.Helper()
	if err := v.s.Close(); err != nil {
		v.t.Error(err)
	}
}

func (v *viewed) transfer(write bool, off uint64, b []byte) (err error) {
	live{v.exec}.Wait(func(done func()) {
		v.m.Submit([]*block.IO{{Write: write, Off: off, N: uint64(len(b)), Vec: [][]byte{b[:len(b)/1024*512], b[len(b)/1024*512:]},
			Done: func(io *block.IO) { err = io.Err; done() }}})
	})
	return err
}

// write writes n bytes, by so many calls.
func (v *viewed) write(what string, off uint64, n int, with byte, calls int) {
	v.t.Helper()
	before := v.fs.calls.Load()
	if err := v.transfer(true, off, bytes.Repeat([]byte{with}, n)); err != nil {
		v.t.Fatalf("%s: %v", what, err)
	}
	if now := v.fs.calls.Load() - before; now != int64(calls) {
		v.t.Errorf("%s: %d calls for a write, not %d", what, now, calls)
	}
}

// reads reads n bytes, a few times, by that many calls altogether.
func (v *viewed) reads(what string, off uint64, n int, with byte, most int) {
	v.t.Helper()
	before := v.fs.calls.Load()
	for range 5 {
		got := make([]byte, n)
		if err := v.transfer(false, off, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{with}, n)) {
			v.t.Fatalf("%s: it reads %x..., not %x: %v", what, got[0], with, err)
		}
	}
	if now := v.fs.calls.Load() - before; now > int64(most) {
		v.t.Errorf("%s: %d calls for five reads, more than %d", what, now, most)
	}
}

func (v *viewed) blocks() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(v.m.f.(viewFile).fd, &st); err != nil {
		v.t.Fatal(err)
	}
	return st.Blocks
}

// TestView: what an mdisk in memory holds is read and written without calls, whoever wrote it; holes stay holes, and what
// is damaged or gone is found.
func TestView(t *testing.T) {
	dir := folder(t, true)
	v := openViewed(t, dir)
	v.write("the first write", 8192, 8192, 1, 2)
	v.reads("what was written", 8192, 8192, 1, 0)
	v.write("a write over it", 8192, 4096, 2, 0)
	v.reads("its first half", 8192, 4096, 2, 0)
	v.reads("its second half", 12288, 4096, 1, 0)
	v.write("a sector", 12288+512, 512, 3, 0)
	v.reads("the sector", 12288+512, 512, 3, 0)
	v.reads("the sectors before it", 12288, 512, 1, 0)
	v.write("a sector in a hole", 1<<20+1024, 512, 4, 2)
	v.reads("the page around it", 1<<20+2048, 2048, 0, 0)
	v.write("more than is there", 8192, 16384, 5, 2)
	v.reads("all of it", 8192, 16384, 5, 0)
	v.write("a large write", 2<<20, 512<<10, 6, 2)
	v.write("a large write over it", 2<<20, 512<<10, 7, 0)
	v.reads("the large write", 2<<20, 512<<10, 7, 0)

	had := v.blocks()
	for off := uint64(16 << 20); off < 20<<20; off += 64 << 10 {
		v.reads("a hole", off, 64<<10, 0, 10)
	}
	if now := v.blocks(); now != had {
		t.Errorf("reads of holes took %d blocks", now-had)
	}
	live{v.exec}.Wait(func(done func()) { v.m.Discard(2<<20, 256<<10, func(error) { done() }) })
	had = v.blocks()
	v.reads("what was discarded", 2<<20, 256<<10, 0, 10)
	if now := v.blocks(); now != had {
		t.Errorf("reads of what was discarded took %d blocks", now-had)
	}
	v.reads("what is behind it", 2<<20+256<<10, 256<<10, 7, 0)
	v.write("a write where it was discarded", 2<<20, 4096, 8, 2)
	v.reads("that", 2<<20, 4096, 8, 0)
	v.close()

	v = openViewed(t, dir)
	v.reads("the first reads of a start", 8192, 16384, 5, 2)
	v.reads("further ones", 8192, 4096, 5, 0)
	v.write("a write after the reads", 8192, 4096, 9, 0)
	if _, err := v.m.f.Writev([][]byte{[]byte("????")}, 12288); err != nil {
		t.Fatal(err)
	}
	var sum *block.ChecksumError
	if err := v.transfer(false, 8192, make([]byte, 8192)); !errors.As(err, &sum) || sum.Sectors[0] != 12288/512 {
		t.Errorf("damaged data: %v", err)
	}
	v.write("a write over the damage", 12288, 4096, 9, 0)
	v.reads("what is mended", 8192, 8192, 9, 0)

	// Somebody cuts the file: a page behind its end is no error of the process.
	if err := v.m.f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if err := v.transfer(false, 8192, make([]byte, 4096)); err == nil {
		t.Error("a read behind the end of the file succeeds")
	}
	v.write("a write behind the end", 8192, 4096, 10, 2)
	v.reads("what that wrote", 8192, 4096, 10, 0)
	v.close()
}

// TestDestageAtOnce: a batch of writes of pages that are there is done before Submit returns, and one of pages that
// are not, or of more, is not all done there: others may wait for the executor.
func TestDestageAtOnce(t *testing.T) {
	v := openViewed(t, folder(t, true))
	defer v.close()
	// batch writes n times so many bytes, and returns how many of these writes ended at once.
	batch := func(n int, bytes uint64) (atOnce int) {
		t.Helper()
		var ios []*block.IO
		ended := make(chan error, n)
		for i := range n {
			ios = append(ios, &block.IO{Write: true, Off: uint64(i) * bytes, N: bytes, Vec: [][]byte{make([]byte, bytes)}, Done: func(io *block.IO) { ended <- io.Err }})
		}
		v.exec.Lock()
		for v.exec.Crowded() { // by those who have ended the batch before, and then nothing is done here
			v.exec.Unlock()
			v.exec.Lock()
		}
		v.m.Submit(ios)
		atOnce = len(ended)
		v.exec.Unlock()
		for range n {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		return atOnce
	}
	if n := batch(256, 4096); n != smallBatch/4096 {
		t.Errorf("%d of 256 writes into holes were done at once", n)
	}
	if n := batch(256, 4096); n != 256 {
		t.Errorf("%d of 256 writes of pages that are there were done at once", n)
	}
	if n := batch(512, 4096); n != 256 {
		t.Errorf("%d of 512 writes were done at once, 256 of them into holes", n)
	}
	batch(8, 256<<10)
	if n := batch(8, 256<<10); n != 0 {
		t.Errorf("%d of 8 large writes were done at once", n)
	}
}

// TestViewBeside: goroutines read and write an mdisk in memory at the same time, each its own pages and all of them one
// part, beside the executor and at it.
func TestViewBeside(t *testing.T) {
	v := openViewed(t, folder(t, true))
	defer v.close()
	seed := testkit.Seed(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			model := map[uint64]byte{}
			for i := range 600 {
				page := uint64(r.IntN(64)*4 + g)
				b := bytes.Repeat([]byte{byte(i)}, 4096)
				write := r.IntN(2) == 0
				ended := make(chan error, 1)
				v.exec.Lock()
				if r.IntN(50) == 0 {
					v.m.Discard(page*4096, 4096, func(err error) { ended <- err })
					write, b = true, make([]byte, 4096)
				} else {
					v.m.Submit([]*block.IO{{Write: write, Off: page * 4096, N: 4096, Vec: [][]byte{b}, Done: func(io *block.IO) { ended <- io.Err }}})
				}
				v.exec.Unlock()
				if err := <-ended; err != nil {
					t.Errorf("page %d: %v", page, err)
					return
				}
				if write {
					model[page] = b[0]
				} else if !bytes.Equal(b, bytes.Repeat([]byte{model[page]}, 4096)) {
					t.Errorf("page %d reads %x, not %x", page, b[0], model[page])
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestPageBits compares the set with a map.
func TestPageBits(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	const pages = 2*partPages + 1000
	p := makePageBits(pages * viewPage)
	model := make([]bool, pages)
	for range 2000 {
		first := uint64(r.IntN(pages))
		last := min(first+uint64(r.IntN(1<<r.IntN(17))), pages-1)
		what := r.IntN(3)
		switch what {
		case 0:
			p.set(first, last)
		case 1:
			p.clear(first, last)
		}
		all := true
		for page := first; page <= last; page++ {
			if what < 2 {
				model[page] = what == 0
			}
			all = all && model[page]
		}
		if got := p.all(first, last); got != all {
			t.Fatalf("pages %d to %d: %v, not %v", first, last, got, all)
		}
		if page := uint64(r.IntN(pages)); p.all(page, page) != model[page] {
			t.Fatalf("page %d is not %v", page, model[page])
		}
	}
}
