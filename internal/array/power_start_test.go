package array

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// BenchmarkStart opens an array of files with 1,000 volumes and 10 million map entries, as
// it was stopped, with all leaves packed that can be, with none, and with 8 MiB of leaves in memory, and checks it.
func BenchmarkStart(b *testing.B) {
	const volumes, windows = 1000, 5000
	dir, err := testkit.MemoryDir(b)
	if err != nil {
		b.Skip(err)
	}
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
		entries += entriesOf(v)
	}
	r.exec.Unlock()
	r.close()
	for _, row := range []struct {
		name            string
		loose, resident uint64
	}{{"packed", 1, 1 << 50}, {"loose", 1 << 50, 1 << 50}, {"absent", 1, 8 << 20}} {
		b.Run(row.name, func(b *testing.B) {
			opt.LeafBytes, opt.MapBytes = row.loose, row.resident
			for range 2 { // what finalizers hold goes with the second
				runtime.GC()
			}
			before := heapObjects()
			for b.Loop() {
				start, cpu, peak := time.Now(), processorTime(), heapPeak()
				r := openLive(b, dir, opt)
				b.ReportMetric(time.Since(start).Seconds(), "s-start")
				b.ReportMetric((processorTime() - cpu).Seconds(), "cpu-s-start")
				b.ReportMetric(float64(peak()-before)/float64(entries), "B/entry-peak")
				took := r.a.Recovery().Took
				b.ReportMetric(float64(r.a.Recovery().MapPages), "pages")
				b.ReportMetric(float64(r.a.Recovery().PagesRead), "pages-read")
				b.ReportMetric(float64(took.Maps)/1e9, "s-maps")
				b.ReportMetric(float64(took.Counts)/1e9, "s-counts")
				b.ReportMetric(float64(entries), "entries")
				b.StopTimer()
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapInuse)/float64(entries), "B/entry")
				b.ReportMetric(r.longestCheck().Seconds()*1000, "ms-check-step")
				r.close()
				runtime.GC()
				b.StartTimer()
			}
		})
	}
}

// longestCheck checks the array and returns for how long a step of that has held the executor at most.
func (r *liveRig) longestCheck() (most time.Duration) {
	r.exec.Lock()
	v := r.a.NewVerify(false)
	r.exec.Unlock()
	for end, more := make(chan bool, 1), true; more; more = <-end {
		r.exec.Lock()
		begin := time.Now()
		v.Step(func(m bool) { end <- m })
		most = max(most, time.Since(begin))
		r.exec.Unlock()
	}
	return most
}

// processorTime returns what the process has had of processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heapObjects returns the bytes of the objects of the heap, what is garbage included.
func heapObjects() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// heapPeak begins to watch the heap, and returns what ends that and says what it had at the most.
func heapPeak() (end func() uint64) {
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		for peak := heapObjects(); ; peak = max(peak, heapObjects()) {
			select {
			case <-stop:
				most <- max(peak, heapObjects())
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(stop); return <-most }
}
