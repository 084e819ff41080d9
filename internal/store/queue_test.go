package store

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// slowFS has operations that take a random time, so that what comes later would often end earlier.
type slowFS struct{ FS }

type slowFile struct{ DataFile }

func (f slowFS) OpenData(path string) (DataFile, error) {
	file, err := f.FS.OpenData(path)
	return slowFile{file}, err
}

func (f slowFS) Instant(string) bool { return false }

func (f slowFile) wait() { time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond) }

func (f slowFile) ReadNow(vec [][]byte, off int64) (int, error) {
	if rand.IntN(2) == 0 {
		return 0, nil
	}
	return f.DataFile.ReadNow(vec, off)
}

func (f slowFile) Readv(vec [][]byte, off int64) (int, error) {
	f.wait()
	return f.DataFile.Readv(vec, off)
}

func (f slowFile) Writev(vec [][]byte, off int64) (int, error) {
	f.wait()
	return f.DataFile.Writev(vec, off)
}

// TestOrderOfTransfers: of transfers that touch the same sectors the later one comes behind the
// earlier one, however many are under way, in one batch or in several: each read has what was
// written before it, and nothing of what was written after it.
func TestOrderOfTransfers(t *testing.T) {
	seed := testkit.Seed(t)
	slow, tmpfs := FilesOptions{FS: slowFS{OS}}, FilesOptions{}
	for name, opt := range map[string]FilesOptions{"ring": {}, "direct": {Direct: true}, "goroutines": {NoRing: true}, "slow": slow, "tmpfs": tmpfs} {
		t.Run(name, func(t *testing.T) {
			exec := block.NewLive()
			defer exec.Stop()
			s, err := OpenFiles(exec, folder(t, name == "tmpfs"), opt)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if name == "ring" {
				needRing(t, s)
			}
			orderOfTransfers(t, rand.New(rand.NewPCG(uint64(seed), 1)), exec, s)
		})
	}
}

func orderOfTransfers(t *testing.T, rnd *rand.Rand, exec *block.Live, s *Files) {
	const size = 512 << 10 // small: most transfers meet others
	m, err := s.Medium("m", size)
	if err != nil {
		t.Fatal(err)
	}
	model := make([]byte, size)
	type read struct {
		io        *block.IO
		want, got []byte
	}
	var reads []read
	ended, all := make(chan struct{}, 1), 0
	done := func(io *block.IO) {
		if io.Err != nil {
			t.Errorf("write %v of %d bytes at %d: %v", io.Write, io.N, io.Off, io.Err)
		}
		if all--; all == 0 {
			ended <- struct{}{}
		}
	}
	exec.Lock()
	all++ // until all are submitted
	for range 60 {
		var batch []*block.IO
		for range rnd.IntN(40) {
			n := uint64(1+rnd.IntN(16)) * block.SectorSize
			if rnd.IntN(20) == 0 {
				n = uint64(rnd.IntN(size/4)+1) &^ 511
			}
			n = max(n, 512)
			io := &block.IO{Write: rnd.IntN(3) == 0, N: n, Off: uint64(rnd.IntN(size-int(n)+1)) &^ 511, Done: done}
			buf := make([]byte, n)
			cut := rnd.IntN(int(n))
			io.Vec = [][]byte{buf[:cut], buf[cut:]}
			if cut == 0 {
				io.Vec = io.Vec[1:]
			}
			if io.Write {
				b := byte(rnd.IntN(256))
				for i := range buf {
					buf[i] = b + byte(i>>9)
				}
				copy(model[io.Off:], buf)
			} else {
				reads = append(reads, read{io, bytes.Clone(model[io.Off : io.Off+n]), buf})
			}
			batch = append(batch, io)
		}
		all += len(batch)
		m.Submit(batch)
		if rnd.IntN(4) == 0 { // let some of it end
			exec.Unlock()
			time.Sleep(time.Duration(rnd.IntN(1000)) * time.Microsecond)
			exec.Lock()
		}
	}
	if all--; all == 0 {
		ended <- struct{}{}
	}
	exec.Unlock()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("some never ended")
	}
	for i, r := range reads {
		if !bytes.Equal(r.want, r.got) {
			t.Fatalf("read %d of %d, of %d bytes at %d, does not have what was written before it", i, len(reads), r.io.N, r.io.Off)
		}
	}
	emptyQueue(t, &m.(*fileMedium).queue)
}

// emptyQueue expects that nothing is left of what a queue had.
func emptyQueue(t *testing.T, q *queue) {
	t.Helper()
	for _, w := range []*way{&q.reading, &q.writing} {
		if len(w.begun) != 0 || w.bytes != 0 || w.ready != nil {
			t.Errorf("%d are still begun, %d bytes; one is ready: %v", len(w.begun), w.bytes, w.ready != nil)
		}
	}
	if q.held != 0 || len(q.index.pages) != 0 {
		t.Errorf("%d are still held, at %d pages", q.held, len(q.index.pages))
	}
}

// TestDepthIsBounded: of many transfers of a disk that does not answer some wait without a buffer,
// whether they are small or large, and all end when it answers.
func TestDepthIsBounded(t *testing.T) {
	g := newGate()
	exec, s := openFolder(t, t.TempDir(), FilesOptions{FS: g})
	g.set(func(op, _ string) bool { return op == "read" })
	const n, large = 500, 1 << 20
	ended := make(chan error, 2*n)
	for name, size := range map[string]int{"small": 4096, "large": large} {
		m, err := s.Medium(name, n*large)
		if err == nil {
			buf := make([]byte, size) // all read zeros
			exec.Lock()
			for i := range n {
				m.Submit([]*block.IO{{Off: uint64(i * size), N: uint64(size), Vec: [][]byte{buf}, Done: func(io *block.IO) { ended <- io.Err }}})
			}
			q := m.(*fileMedium).queue
			exec.Unlock()
			if w := q.reading; len(w.begun) > depth || w.bytes >= depthBytes+large || len(w.begun)+q.held != n {
				t.Errorf("%s: %d have begun, with %d bytes, and %d are held", name, len(w.begun), w.bytes, q.held)
			}
		} else {
			t.Error(err)
		}
	}
	close(g.opened)
	for range 2 * n {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// TestRegions: whoever meets a transfer that has begun is told so, whatever regions both touch, and however many
// have come and gone; most pages that meet none look at none.
func TestRegions(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	var q queue
	w := &q.reading
	var met, looked, spared int
	for i := range 20000 {
		off, n := rnd.Uint64N(1<<30), []uint64{0, 512, 4096, regionBytes, 256 << 10}[rnd.IntN(5)]
		off -= off % block.SectorSize
		switch {
		case rnd.IntN(4) == 0:
			off -= off % regionBytes
		case i%1000 == 0:
			n = 2 * regionSlots * regionBytes
		}
		s := span{off: off, end: off + n, x: &xfer{io: &block.IO{Off: off, N: n}}}
		want := false
		for _, b := range w.begun {
			want = want || b.off < s.end && s.off < b.end
		}
		if got := w.clashes(s); got != want {
			t.Fatalf("%d to %d meets one of %d: %v", s.off, s.end, len(w.begun), got)
		}
		switch {
		case want:
			met++
		case n > 4096: // it touches several
		case len(w.near(s)) > 0:
			looked++
		default:
			spared++
		}
		w.begin(s)
		for len(w.begun) > rnd.IntN(depth) {
			q.remove(w.begun[rnd.IntN(len(w.begun))].x)
		}
	}
	if met == 0 || spared < looked {
		t.Errorf("%d meet one, %d look in vain, %d do not look", met, looked, spared)
	}
	for len(w.begun) > 0 {
		q.remove(w.begun[0].x)
	}
	if w.where != (regions{}) || w.bytes != 0 {
		t.Error("an empty queue has transfers of regions")
	}
}

// BenchmarkBegun has writes of a page begin and end while as many as may are under way, none of which meet.
func BenchmarkBegun(b *testing.B) {
	var q queue
	xfers, page := make([]xfer, depth), uint64(0)
	enter := func(x *xfer) {
		page += 7919
		x.io.Off = page % (1 << 20) * 4096
		if !q.enter(x) {
			b.Fatal("it is held")
		}
	}
	for i := range xfers {
		xfers[i].io = &block.IO{Write: true, N: 4096}
		enter(&xfers[i])
	}
	b.ResetTimer()
	for i := range b.N {
		q.remove(&xfers[i%depth])
		enter(&xfers[i%depth])
	}
}
