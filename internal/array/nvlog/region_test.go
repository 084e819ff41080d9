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
	begun      func() // called when a flush begins; may be nil
	// clean is what units held that a flush has failed to write: the kernel takes them for written
	// until somebody writes to them, or the next flush is of everything.
	clean map[int][]byte
}

func newTestRegion(l Layout, rnd *rand.Rand, exec block.Executor) *testRegion {
	size := l.Region().Size()
	r := &testRegion{mem: make([]byte, size), disk: make([]byte, size), boot: 1, rnd: rnd, exec: exec, clean: map[int][]byte{}}
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
	r.begin()
	all := r.distrusted
	r.distrusted = r.fails > 0
	for at := 0; at < len(r.mem); at += unit {
		if r.distrusted {
			r.forget(at)
		} else {
			r.take(at, r.mem, all)
		}
	}
	if r.fails > 0 {
		r.fails--
		return errFlush
	}
	return nil
}

func (r *testRegion) begin() {
	if r.flushes++; r.begun != nil {
		r.begun()
	}
}

func (r *testRegion) unit(b []byte, at int) []byte { return b[at:min(at+unit, len(b))] }

// take has the medium take a unit of what was in NVRAM, unless the kernel thinks that it has it.
func (r *testRegion) take(at int, mem []byte, all bool) {
	if was, ok := r.clean[at]; ok && !all && slices.Equal(was, r.unit(r.mem, at)) {
		return
	}
	delete(r.clean, at)
	copy(r.unit(r.disk, at), mem[at:])
}

// forget has a flush fail to write a unit.
func (r *testRegion) forget(at int) {
	if !slices.Equal(r.unit(r.disk, at), r.unit(r.mem, at)) {
		r.clean[at] = slices.Clone(r.unit(r.mem, at))
	}
}

// die has a flush that is under way, and that is to fail, fail for the most part before anybody hears of it. It reports
// whether the kernel then drops some of what it takes for written, since this flush or one before: that is on the medium as
// it was before. It keeps the header, which everybody reads.
func (r *testRegion) die() (dropped bool) {
	fails := r.underWay > 0 && r.fails > 0
	drops := r.rnd.IntN(2) == 0
	for at := 0; at < len(r.mem); at += unit {
		switch was, clean := r.clean[at]; {
		case fails && r.rnd.IntN(4) != 0:
			r.forget(at)
		case !clean || !slices.Equal(was, r.unit(r.mem, at)):
			continue
		}
		if drops && at >= headerBytes && r.clean[at] != nil && r.rnd.IntN(2) == 0 {
			copy(r.unit(r.mem, at), r.disk[at:])
			delete(r.clean, at)
			dropped = true
		}
	}
	return dropped
}

// Flush takes a while. What is written meanwhile may become durable with it or not.
func (r *testRegion) Flush(done func(error)) {
	if r.exec == nil {
		done(r.FlushNow())
		return
	}
	r.begin()
	if r.underWay++; r.underWay > 1 {
		panic("two flushes are under way")
	}
	mem, disk, all := slices.Clone(r.mem), slices.Clone(r.disk), r.distrusted
	r.distrusted = false
	r.exec.At(r.exec.Now()+1+r.rnd.Int64N(100), func() {
		r.underWay--
		fails := r.fails > 0
		for at := 0; at < len(mem); at += unit {
			switch {
			case fails && r.rnd.IntN(2) == 0:
				r.forget(at)
			case r.rnd.IntN(2) == 0 || !slices.Equal(r.unit(r.disk, at), r.unit(disk, at)):
				r.take(at, r.mem, all)
			default:
				r.take(at, mem, all)
			}
		}
		if fails {
			r.distrusted = true
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
			r.take(at, r.mem, false)
		}
	}
}

// cut returns what a loss of power leaves: any subset of what was not flushed survives as well.
func (r *testRegion) cut() []byte {
	image, likely := slices.Clone(r.disk), r.rnd.IntN(5)
	for at := 0; at < len(r.mem); at += unit {
		if was, ok := r.clean[at]; r.rnd.IntN(4) < likely && !(ok && slices.Equal(was, r.unit(r.mem, at))) {
			copy(r.unit(image, at), r.mem[at:])
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
