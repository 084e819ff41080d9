package nvlog

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var errFlush = errors.New("input/output error")

// testRegion is NVRAM of which a test knows what the death of the process and what a loss of power leaves.
type testRegion struct {
	block.LocalMemory
	watched *blocktest.Watched // this region, as its user has it
	mem     []byte             // what the process sees, and what its death leaves
	disk    []byte             // what survives a loss of power for sure
	boot    uint64
	rnd     *rand.Rand
	exec    block.Executor // nil: a flush ends within Flush
	// fails is how many flushes fail from now on.
	fails      int
	flushes    int
	underWay   int // flushes that have not ended
	distrusted bool
}

func newTestRegion(l Layout, rnd *rand.Rand, exec block.Executor) *testRegion {
	size := l.Region().Size()
	r := &testRegion{mem: make([]byte, size), disk: make([]byte, size), boot: 1, rnd: rnd, exec: exec}
	return r.lay(l)
}

// lay lays the parts out.
func (r *testRegion) lay(l Layout) *testRegion {
	r.LocalMemory = block.NewLocalMemory(r.mem, l.Region())
	r.watched = blocktest.Watch(r, l.Region(), r.mem)
	return r
}

func (r *testRegion) Boot() uint64 { return r.boot }
func (r *testRegion) Distrust()    { r.distrusted = true }

// ring returns the bytes of the log.
func (r *testRegion) ring(l Layout) []byte {
	_, log := l.Region().Cut(r.mem)
	return log
}

const unit = 512 // bytes of which a loss of power keeps all or nothing

func (r *testRegion) FlushNow() error {
	r.flushes++
	if r.fails > 0 {
		r.fails--
		return errFlush
	}
	copy(r.disk, r.mem)
	return nil
}

// Flush takes a while. What is written meanwhile may become durable with it or not.
func (r *testRegion) Flush(done func(error)) {
	r.flushes++
	if r.exec == nil {
		r.flushes--
		done(r.FlushNow())
		return
	}
	if r.underWay++; r.underWay > 1 {
		panic("two flushes are under way")
	}
	mem, disk := slices.Clone(r.mem), slices.Clone(r.disk)
	r.exec.At(r.exec.Now()+1+r.rnd.Int64N(100), func() {
		r.underWay--
		fails := r.fails > 0
		for at := 0; at < len(mem); at += unit {
			end := min(at+unit, len(mem))
			switch {
			case fails && r.rnd.IntN(2) == 0:
			case r.rnd.IntN(2) == 0 || !slices.Equal(r.disk[at:end], disk[at:end]):
				copy(r.disk[at:end], r.mem[at:end])
			default:
				copy(r.disk[at:end], mem[at:end])
			}
		}
		if fails {
			r.fails--
			done(errFlush)
			return
		}
		done(nil)
	})
}

// writeBack makes some of what was written durable, as the kernel does at any time.
func (r *testRegion) writeBack() {
	for at := 0; at < len(r.mem); at += unit {
		if r.rnd.IntN(8) == 0 {
			copy(r.disk[at:min(at+unit, len(r.mem))], r.mem[at:])
		}
	}
}

// cut returns what a loss of power leaves: any subset of what was not flushed survives as well.
func (r *testRegion) cut() []byte {
	image, likely := slices.Clone(r.disk), r.rnd.IntN(5)
	for at := 0; at < len(r.mem); at += unit {
		if r.rnd.IntN(4) < likely {
			copy(image[at:min(at+unit, len(r.mem))], r.mem[at:])
		}
	}
	return image
}

// testStore hands out one region.
type testStore struct {
	block.Store
	region block.Region
	size   int
	fresh  bool
}

func (s testStore) Region(_ string, l block.RegionLayout) (block.Region, bool, error) {
	if l.Size() != s.size {
		return nil, false, block.ErrSize
	}
	return s.region, s.fresh, nil
}
