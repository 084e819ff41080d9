package hostcache

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/testkit"
)

// cpuTime is what the thread has used: references a second and core come out the
// same on a machine that others use, too.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// paceSlice is the number of references between two laps of a Pace: 5 to 20 ms.
const paceSlice = 100000

// BenchmarkAccess prints millions of references a second of processor time, thousands a lap of a Pace, and
// bytes of the index a slot, for every policy: with a cache that hits nine times in ten and one
// that misses nine times in ten, the dear case.
func BenchmarkAccess(b *testing.B) {
	const blocks = 1 << 18
	r := rand.New(rand.NewPCG(1, 2))
	skewed, flat := make([]Key, 1<<21), make([]Key, 1<<21)
	for i := range skewed {
		skewed[i] = Key(math.Exp(r.Float64()*math.Log(blocks))) * 7919 % blocks
		flat[i] = Key(r.Uint64N(blocks))
	}
	for _, load := range []struct {
		name     string
		refs     []Key
		capacity int64
	}{{"hits", skewed, blocks / 5}, {"misses", flat, blocks / 10}} {
		for _, policy := range Policies() {
			b.Run(load.name+"/"+policy, func(b *testing.B) {
				ix := mustNew(Config{Policy: policy, Capacity: load.capacity})
				for _, k := range load.refs {
					ix.Access(k, 0)
				}
				before := ix.Stats()
				pace := testkit.NewPace()
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; {
					pace.Begin()
					for end := min(i+paceSlice, b.N); i < end; i++ {
						ix.Access(load.refs[i&(len(load.refs)-1)], 0)
					}
					pace.End()
					b.StopTimer()
					pace.Lap()
					b.StartTimer()
				}
				m, s := ix.Memory(), ix.Stats()
				b.ReportMetric(float64(b.N)/pace.Seconds()/1e6, "Mref/s")
				b.ReportMetric(float64(b.N)/pace.Laps()/1e3, "kref/lap")
				b.ReportMetric(float64(pace.LapTime().Microseconds()), "lap-us")
				b.ReportMetric(float64(m.SlotBytes)/float64(m.Slots), "B/slot")
				b.ReportMetric(100*float64(s.Hits-before.Hits)/float64(b.N), "%hits")
			})
		}
	}
}

// ahead keeps what Ahead returns, so that the compiler leaves the call where it is.
var ahead uint32

// BenchmarkAhead prints millions of hits a second of an index that is larger than the processor's caches,
// 48 MB, with and without Ahead.
func BenchmarkAhead(b *testing.B) {
	const blocks = 1 << 21
	r := rand.New(rand.NewPCG(1, 2))
	refs := make([]Key, blocks)
	for i := range refs {
		refs[i] = Key(r.Uint64N(10 * blocks))
	}
	ix := mustNew(Config{Policy: "lru", Capacity: blocks})
	for _, k := range refs {
		ix.Access(k, 0)
	}
	for _, name := range []string{"one", "ahead"} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start := cpuTime(b)
			for n := 0; n < b.N; n += AheadMax {
				batch := refs[n&(blocks-1):][:AheadMax]
				if name == "ahead" {
					ahead += ix.Ahead(batch)
				}
				for _, k := range batch {
					ix.Access(k, 0)
				}
			}
			took := cpuTime(b) - start
			b.ReportMetric(float64(b.N)/max(took.Seconds(), 1e-6)/1e6, "Mref/s")
		})
	}
}
