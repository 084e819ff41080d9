package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// processor returns the time that the process has spent in itself and in the kernel.
func processor(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// forgetFiles has the kernel drop what it has of the files of mdisk m.
func forgetFiles(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"m.img", "m.sum"} {
		f, err := os.OpenFile(filepath.Join(dir, "mdisk", name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

const (
	depthSize = 512 << 20 // of the mdisk
	depthIO   = 4096
)

// depthBench is an mdisk with one driver that keeps a number of transfers under way. What has ended
// is sent again, in batches as they end, as a front end does.
type depthBench struct {
	b     *testing.B
	exec  *block.Live
	m     block.Medium
	next  []uint32 // pages, in the order in which they are used
	used  int
	ready []*block.IO
	done  chan struct{}
	left  int // that have not ended
	warm  bool
}

func openDepth(b *testing.B, dir string, opt FilesOptions) (*depthBench, string) {
	b.Helper()
	d := &depthBench{b: b, exec: block.NewLive(), done: make(chan struct{})}
	b.Cleanup(d.exec.Stop)
	s, err := OpenFiles(d.exec, dir, opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	needRing(b, s)
	if d.m, err = s.Medium("m", depthSize); err != nil {
		b.Fatal(err)
	}
	l, chunk := live{d.exec}, make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i >> 3)
	}
	for off := uint64(0); off < depthSize; off += 1 << 20 {
		l.Wait(func(done func()) {
			d.m.Submit([]*block.IO{{Write: true, Off: off, N: 1 << 20, Vec: [][]byte{chunk}, Done: func(*block.IO) { done() }}})
		})
	}
	d.next = make([]uint32, depthSize/depthIO)
	for i, p := range rand.New(rand.NewPCG(1, 2)).Perm(len(d.next)) {
		d.next[i] = uint32(p)
	}
	return d, dir
}

// send sends what has ended again. Preconditions: the executor is held.
func (d *depthBench) send() {
	for len(d.ready) > 0 && d.used < len(d.next) && d.left > 0 {
		n := min(len(d.ready), d.left, len(d.next)-d.used)
		batch := append([]*block.IO(nil), d.ready[:n]...)
		d.ready = d.ready[n:]
		for _, io := range batch {
			io.Off = uint64(d.next[d.used]) * depthIO
			d.used++
		}
		d.left -= n
		d.m.Submit(batch)
	}
}

// run has n transfers done at a depth; each page of the mdisk is used once.
func (d *depthBench) run(write bool, n, depth int) {
	d.used, d.left = 0, n
	ended, posted := 0, false
	d.exec.Lock()
	d.ready = nil
	for range depth {
		io := &block.IO{Write: write, N: depthIO, Vec: [][]byte{make([]byte, depthIO)}}
		if write {
			io.Sums = make([]uint32, depthIO/block.SectorSize)
		}
		io.Done = func(io *block.IO) {
			if io.Err != nil {
				d.b.Error(io.Err)
			}
			if ended++; ended == n {
				close(d.done)
			}
			d.ready = append(d.ready, io)
			if !posted {
				posted = true
				d.exec.Post(func() { posted = false; d.send() })
			}
		}
		d.ready = append(d.ready, io)
	}
	d.send()
	d.exec.Unlock()
	<-d.done
	d.done = make(chan struct{})
}

// depth does b.N transfers, and reports their processor time.
func (d *depthBench) depth(dir string, write bool, depth int) {
	d.b.ResetTimer()
	spent := time.Duration(0)
	for left := d.b.N; left > 0; {
		d.b.StopTimer()
		if !d.warm {
			forgetFiles(d.b, dir)
		}
		n := min(left, len(d.next)/2)
		d.b.StartTimer()
		before := processor(d.b)
		d.run(write, n, depth)
		spent += processor(d.b) - before
		left -= n
	}
	d.b.ReportMetric(float64(spent.Nanoseconds())/float64(d.b.N), "cpu-ns/op")
}

// BenchmarkDepth has 4 KiB transfers at random places of a file on a disk, none of which the page
// cache has, by either engine. Compare processor time; for system calls, the difference of
// strace -c -f with -benchtime 2000x and 22000x.
func BenchmarkDepth(b *testing.B) {
	for _, write := range []bool{false, true} {
		for _, depth := range []int{1, 32} {
			for _, engine := range []string{"ring", "goroutines"} {
				name := fmt.Sprintf("read/QD%d/%s", depth, engine)
				if write {
					name = fmt.Sprintf("write/QD%d/%s", depth, engine)
				}
				b.Run(name, func(b *testing.B) {
					d, dir := openDepth(b, b.TempDir(), engines[engine])
					d.depth(dir, write, depth)
				})
			}
		}
	}
}

// BenchmarkHits has 4 KiB reads at random places of 64 MiB that are in memory.
func BenchmarkHits(b *testing.B) {
	for _, where := range []string{"ring", "goroutines", "tmpfs"} {
		for _, depth := range []int{1, 32} {
			b.Run(fmt.Sprintf("QD%d/%s", depth, where), func(b *testing.B) {
				d, dir := openDepth(b, folder(b, where == "tmpfs"), engines[where])
				for i := range d.next {
					d.next[i] %= 64 << 20 / depthIO
				}
				d.warm = true
				d.depth(dir, false, depth)
			})
		}
	}
}
