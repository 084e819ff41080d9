package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestCompileWorkload is the document on a build server: preparation writes 32 KiB at a time, the
// compiler 128 to 256 KiB, and both read what is hot. IOPS are high first and throughput is high later,
// latency follows the size; and the array sees a larger share of writes than the
// host, because flash answers the reads.
//
// The flash moves 500 MB/s a channel and takes 0.1 ms besides, the array 100 MB/s a lane and 2 ms:
// what a SATA SSD and spindles do.
func TestCompileWorkload(t *testing.T) {
	v := &block.Virtual{}
	below, flash := newLane(v, 64, 2_000_000, 8<<30), newLane(v, 4, 100_000, 2<<30)
	below.perByte, flash.perByte = 10, 2
	var d *Disk
	Open(Options{Exec: v, Below: laneDevice{below}, Flash: laneMedium{flash}, Format: true, Eviction: "lru", Policy: Policy{Mode: WriteBack}}, func(x *Disk, err error) {
		if err != nil {
			t.Fatal(err)
		}
		d = x
	})
	for d == nil || !d.accepting {
		v.Step()
	}
	seed := uint64(7)
	rnd := func(n uint64) uint64 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed % n
	}
	// One writer and two readers, each with one I/O outstanding and some work in between.
	var size func() uint64
	var work int64
	buf := make([]byte, 256<<10)
	var write, read func(*block.Request)
	write = func(*block.Request) {
		n := size()
		v.Call(v.Now()+work, func() {
			d.Submit([]*block.Request{{Op: block.OpWrite, Range: block.Range{Start: rnd(4096) * 512, Count: n >> 9}, Data: [][]byte{buf[:n]}, Done: write}})
		})
	}
	read = func(*block.Request) {
		v.Call(v.Now()+work, func() {
			d.Submit([]*block.Request{{Op: block.OpRead, Range: block.Range{Start: 1<<23 + rnd(2048)*64, Count: 64}, Data: [][]byte{buf[:32<<10]}, Done: read}})
		})
	}
	phase := func(s func() uint64, pause int64) Views {
		size, work = s, pause
		v.RunUntil(v.Now() + 2e9)
		d.ResetStats()
		v.RunUntil(v.Now() + 4e9)
		return d.Views()
	}
	size, work = func() uint64 { return 32 << 10 }, 500_000
	write(nil)
	read(nil)
	read(nil)
	svn := phase(size, work)
	compiler := phase(func() uint64 { return 128<<10 + rnd(2)*128<<10 }, 2_000_000)
	row := func(name string, w Views) {
		e := w.Effective
		t.Logf("%-9s write %5d IOPS %6.1f MB/s %.3f ms; read %5d IOPS; array: %d reads, %d writes", name, e.Write.IOs/4, float64(e.Write.Bytes)/4e6, float64(e.Write.Mean())/1e6, e.Read.IOs/4, w.Datastore.Read.IOs, w.Datastore.Write.IOs)
	}
	row("svn", svn)
	row("compiler", compiler)
	a, b := svn.Effective.Write, compiler.Effective.Write
	if a.IOs <= b.IOs || a.Bytes >= b.Bytes || a.Mean() >= b.Mean() || a.Mean() >= 1_000_000 {
		t.Errorf("preparation: %d writes, %d bytes, %d ns; compiler: %d, %d, %d: want more writes, fewer bytes, less latency, below 1 ms", a.IOs, a.Bytes, a.Mean(), b.IOs, b.Bytes, b.Mean())
	}
	share := func(read, write Flow) float64 { return float64(write.Bytes) / float64(read.Bytes+write.Bytes) }
	for _, w := range []Views{svn, compiler} {
		host, array := share(w.Effective.Read, w.Effective.Write), share(w.Datastore.Read, w.Datastore.Write)
		t.Logf("share of writes in bytes: host %.2f, array %.2f", host, array)
		if array <= host {
			t.Errorf("the array's share of writes is %.2f, the host's %.2f; it should be larger", array, host)
		}
	}
}
