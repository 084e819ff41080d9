package array

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// BenchmarkStart opens an array of files with 1,000 volumes and 10 million map entries, as
// it was stopped.
func BenchmarkStart(b *testing.B) {
	const volumes, windows = 1000, 5000
	dir, err := os.MkdirTemp("/dev/shm", "arraysim-bench-")
	if err != nil {
		b.Skip(err)
	}
	defer os.RemoveAll(dir)
	opt := Options{CacheBytes: 256 << 20}
	r := openLive(b, dir, opt)
	var vols []*Volume
	r.wait(func(done func()) {
		r.a.CreatePool(PoolSpec{Name: "p", Mdisks: []MdiskSpec{{Name: "a", Size: 1 << 40}}}, func(*Pool, error) { done() })
	})
	for i := range volumes {
		r.wait(func(done func()) {
			r.a.CreateVolume(VolumeSpec{Name: fmt.Sprintf("v%d", i), Pool: "p", Sectors: windows * windowSectors, Thin: true}, func(v *Volume, err error) {
				if err != nil {
					b.Error(err)
				}
				vols = append(vols, v)
				done()
			})
		})
	}
	buf := make([]byte, 4096)
	for w := range uint64(windows) {
		r.do(vols[0], &block.Request{Op: block.OpWrite, Range: rng(w*windowSectors, 8), Data: [][]byte{buf}})
	}
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, windows*windowSectors)}}
	r.do(vols[0], h)
	for _, v := range vols[1:] {
		if s := r.do(v, &block.Request{Op: block.OpPlace, Range: rng(0, windows*windowSectors), Ref: h.Ref}); s != block.OK {
			b.Fatal(s)
		}
	}
	r.exec.Lock()
	h.Ref.Release()
	entries := 0
	for _, v := range vols {
		entries += v.Map.Entries(v.Spec.Sectors)
	}
	r.exec.Unlock()
	r.close()
	for b.Loop() {
		start := time.Now()
		r := openLive(b, dir, opt)
		b.ReportMetric(time.Since(start).Seconds(), "s-start")
		b.ReportMetric(float64(entries), "entries")
		b.StopTimer()
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapInuse)/float64(entries), "B/entry")
		r.close()
		b.StartTimer()
	}
}
