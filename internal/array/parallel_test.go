package array

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestParallel: goroutines write and read parts of volumes that are theirs alone, by transfers short and
// long, of any alignment, so that data is copied, and files are written and read, beside the core; others
// write over one part all at once. What is read is what was written last, and the array is whole.
func TestParallel(t *testing.T) {
	seed := testkit.Seed(t)
	const workers, part, steps = 4, 4 << 20, 300
	r, volumes := parallelRig(t, 2, 2, 2<<20)
	defer r.close()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			w := &parallelWorker{r: r, v: volumes[i%2], base: uint64(i/2+1) * part, rnd: rand.New(rand.NewPCG(seed, uint64(i))),
				want: make([]byte, part), buf: make([]byte, 1<<20)}
			for range steps {
				if !w.step() {
					return
				}
			}
		})
	}
	all.Wait()
	r.exec.Lock()
	rep := r.a.Check(true)
	r.exec.Unlock()
	for _, p := range rep.Problems {
		t.Error(p)
	}
}

type parallelWorker struct {
	r         *liveRig
	v         *Volume
	base      uint64 // of its part, in bytes
	rnd       *rand.Rand
	want, buf []byte
	stamp     uint64
}

// step writes or reads a batch; nothing of it overlaps but what goes to the part that all share.
func (w *parallelWorker) step() bool {
	const most = 600 << 10
	batch := 1 + w.rnd.IntN(4)
	slot := len(w.want) / batch &^ 511
	var reqs []*block.Request
	var all sync.WaitGroup
	for i := range batch {
		n := 512 * (1 + w.rnd.IntN(16))
		if w.rnd.IntN(2) == 0 {
			n = 512 * (1 + w.rnd.IntN(min(most, slot)/512))
		}
		at := i*slot + 512*w.rnd.IntN((slot-n)/512+1)
		q := &block.Request{Op: block.OpRead, Range: rng((w.base+uint64(at))/512, uint64(n)/512), Data: [][]byte{make([]byte, n)}}
		switch w.rnd.IntN(5) {
		case 0, 1:
			q.Op = block.OpWrite
			w.fill(q.Data[0])
			copy(w.want[at:], q.Data[0])
		case 2: // of all, or of all others
			q.Op = block.OpWrite
			w.fill(q.Data[0])
			q.Range.Start = uint64(at) / 512
		}
		if len(q.Data[0]) > 4096 && w.rnd.IntN(2) == 0 { // a list
			cut := 1 + w.rnd.IntN(n-1)
			q.Data = [][]byte{q.Data[0][:cut:cut], q.Data[0][cut:]}
		}
		q.Done = func(*block.Request) { all.Done() }
		reqs = append(reqs, q)
	}
	all.Add(len(reqs))
	w.r.exec.Lock()
	w.v.Submit(reqs)
	w.r.exec.Unlock()
	all.Wait()
	for _, q := range reqs {
		if q.Status != block.OK {
			w.r.t.Errorf("%v of %v ends with %v", q.Op, q.Range, q.Status)
			return false
		}
		at := q.Range.Start*512 - w.base
		if q.Op == block.OpRead && !bytes.Equal(bytes.Join(q.Data, nil), w.want[at:at+q.Range.Bytes()]) {
			w.r.t.Errorf("a read of %v is not what was written", q.Range)
			return false
		}
	}
	return true
}

// fill makes bytes that no other write has.
func (w *parallelWorker) fill(b []byte) {
	for len(b) >= 8 {
		w.stamp++
		binary.LittleEndian.PutUint64(b, w.stamp<<8|w.base>>22)
		b = b[8:]
	}
}
