package array

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// BenchmarkParallel is what goroutines get done that submit at the same time, to pools of one I/O group
// or to one of a group each, over files in memory: batches of 8 requests, each submitted when the one
// before has ended. A second goroutine is worth what it adds to the bytes a second of the first. Those of
// a group write to as many bytes together as one does: with more of them, more would be destaged that one
// finds in the write cache.
func BenchmarkParallel(b *testing.B) {
	for _, op := range []struct {
		name  string
		op    block.Op
		bytes int
	}{{"write4k", block.OpWrite, 4 << 10}, {"read4k", block.OpRead, 4 << 10},
		{"write256k", block.OpWrite, 256 << 10}, {"read256k", block.OpRead, 256 << 10}} {
		for _, at := range []struct{ groups, pools, goroutines int }{{1, 1, 1}, {1, 1, 2}, {1, 2, 2}, {2, 1, 2}} {
			b.Run(fmt.Sprintf("%s/groups=%d/pools=%d/goroutines=%d", op.name, at.groups, at.pools, at.goroutines), func(b *testing.B) {
				benchmarkParallel(b, op.op, op.bytes, at.groups, at.pools, at.goroutines)
			})
		}
	}
}

const parallelBytes = 128 << 20 // of a volume, and of all that goroutines of a group use

// benchmarkParallel has a volume for each goroutine, in the pools of the groups in turns. A group has pools of its own.
func benchmarkParallel(b *testing.B, op block.Op, size, groups, pools, goroutines int) {
	used := uint64(parallelBytes * groups / goroutines)
	rigs, volumes := make([]*liveRig, goroutines), make([]*Volume, goroutines)
	for g := range groups {
		r, list := parallelRig(b, pools, goroutines/groups, 128<<20)
		defer r.close()
		for i, v := range list {
			rigs[g+i*groups], volumes[g+i*groups] = r, v
			for at := uint64(0); at < used; at += 1 << 20 { // all of it is there
				r.do(v, &block.Request{Op: block.OpWrite, Range: rng(at/512, 2048), Data: [][]byte{make([]byte, 1<<20)}})
			}
		}
	}
	var was, is syscall.Rusage
	b.SetBytes(int64(size))
	b.ReportAllocs()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &was)
	b.ResetTimer()
	var all sync.WaitGroup
	for i, v := range volumes {
		all.Go(func() { rigs[i].hammer(v, op, size, b.N/goroutines, used, uint64(i)) })
	}
	all.Wait()
	b.StopTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &is)
	b.ReportMetric(float64(is.Utime.Nano()+is.Stime.Nano()-was.Utime.Nano()-was.Stime.Nano())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(is.Nvcsw-was.Nvcsw)/float64(b.N), "switches/op")
}

// parallelRig opens an array over files in memory, with pools, and volumes that they have in turns.
func parallelRig(t testing.TB, pools, volumes int, cache int64) (*liveRig, []*Volume) {
	t.Helper()
	dir, err := testkit.MemoryDir(t)
	if err != nil {
		t.Skip("it needs files in memory: ", err)
	}
	r := openLive(t, dir, Options{CacheBytes: cache})
	list := make([]*Volume, volumes)
	for i := range pools {
		r.wait(func(done func()) {
			name := fmt.Sprint("p", i)
			r.a.CreatePool(PoolSpec{Name: name, Mdisks: []MdiskSpec{{Name: name, Size: 1 << 30}}}, func(_ *Pool, err error) {
				if err != nil {
					t.Error(err)
				}
				done()
			})
		})
	}
	for i := range list {
		r.wait(func(done func()) {
			r.a.CreateVolume(VolumeSpec{Name: fmt.Sprint("v", i), Pool: fmt.Sprint("p", i%pools), Sectors: parallelBytes / 512, Thin: true},
				func(v *Volume, err error) {
					if err != nil {
						t.Error(err)
					}
					list[i] = v
					done()
				})
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	return r, list
}

// hammer has requests at random places of the first bytes done, in batches.
func (r *liveRig) hammer(v *Volume, op block.Op, size, n int, used, seed uint64) {
	const batch = 8
	rnd := rand.New(rand.NewPCG(seed, 1))
	ended := make(chan struct{}, 1)
	reqs, left := make([]*block.Request, batch), 0
	for i := range reqs {
		reqs[i] = &block.Request{Op: op, Data: [][]byte{make([]byte, size)}, Done: func(*block.Request) {
			if left--; left == 0 {
				ended <- struct{}{}
			}
		}}
	}
	for ; n > 0; n -= batch {
		for _, q := range reqs {
			q.Range = rng(rnd.Uint64N(used/uint64(size))*uint64(size)/512, uint64(size)/512)
		}
		r.exec.Lock()
		left = batch
		v.Submit(reqs)
		r.exec.Unlock()
		<-ended
	}
}
