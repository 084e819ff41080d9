package rados_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

const (
	discardChunk  = 128 // sectors that the model knows as one
	discardChunks = 128 // of each volume
)

// discardRun is a random program over an array in a simulated cluster, whose owners die at any moment while space that was
// freed is discarded.
type discardRun struct {
	arrayRig
	rnd  *rand.Rand
	what string
	// may is what each chunk of the volumes v and w may hold.
	may    map[string][][]byte
	stamp  byte
	out    []*block.Request // operations under way
	copies int
}

// start starts the array, and makes what is in it if it is fresh.
func (r *discardRun) start(fresh bool) {
	r.x = &block.Virtual{}
	r.s = open(r.t, r.c, r.x, rados.Options{})
	var err error
	if r.a, err = array.Open(array.Options{Exec: r.x, Store: r.s, CacheBytes: 2 << 20, LogBytes: 256 << 10, CounterRows: 256, UUID: 1,
		Discard: true, DiscardDelay: []int64{1, 1, 1e6, 20e6}[r.rnd.IntN(4)]}); err != nil {
		r.t.Fatalf("%s: %v", r.what, err)
	}
	if !fresh {
		return
	}
	must := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.a.CreatePool(array.PoolSpec{Name: "p", Mdisks: []array.MdiskSpec{{Name: "d", Size: 32 << 20}}}, func(_ *array.Pool, err error) { must(err) })
	r.x.Run()
	for _, name := range []string{"v", "w"} {
		r.a.CreateVolume(array.VolumeSpec{Name: name, Pool: "p", Sectors: discardChunk * discardChunks, Thin: true}, func(_ *array.Volume, err error) { must(err) })
	}
	r.x.Run()
	r.may = map[string][][]byte{}
	for _, name := range []string{"v", "w"} {
		for range discardChunks {
			r.may[name] = append(r.may[name], []byte{0})
		}
	}
}

// submit starts an operation that makes chunks of a volume what to says.
func (r *discardRun) submit(volume string, q *block.Request, at int, to []byte) {
	may := r.may[volume][at : at+len(to)]
	for i, b := range to {
		may[i] = append(slices.Clone(may[i]), b)
	}
	a := r.a
	r.out = append(r.out, q)
	q.Done = func(q *block.Request) {
		if a != r.a {
			return
		}
		if q.Ref != nil {
			q.Ref.Release()
		}
		if q.Status != block.OK {
			r.t.Errorf("%s: %s ended %v", r.what, q.Op, q.Status)
		}
		for i, b := range to {
			may[i] = []byte{b}
		}
		r.out = slices.DeleteFunc(r.out, func(o *block.Request) bool { return o == q })
	}
	a.Volume(volume).Submit([]*block.Request{q})
}

// op starts a random operation. One is under way at a time.
func (r *discardRun) op() {
	volume := []string{"v", "w"}[r.rnd.IntN(2)]
	n := 1 + r.rnd.IntN([]int{4, 24, discardChunks}[r.rnd.IntN(3)])
	at := r.rnd.IntN(discardChunks - n + 1)
	g := block.Range{Start: uint64(at) * discardChunk, Count: uint64(n) * discardChunk}
	to := make([]byte, n)
	switch k := r.rnd.IntN(10); {
	case k < 4:
		r.stamp = r.stamp%200 + 1
		r.submit(volume, &block.Request{Op: block.OpWrite, Range: g, Data: [][]byte{filled(int(g.Bytes()), r.stamp)}}, at, slices.Repeat([]byte{r.stamp}, n))
	case k < 7:
		r.submit(volume, &block.Request{Op: block.OpUnmap, Range: g, Ranges: []block.Range{g}}, at, to)
	default:
		from := []string{"v", "w"}[r.rnd.IntN(2)]
		src := r.rnd.IntN(discardChunks - n + 1)
		if from == volume {
			return
		}
		for i := range to {
			to[i] = r.may[from][src+i][0]
		}
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: uint64(src) * discardChunk, Count: g.Count}}, Done: func(*block.Request) {}}
		r.a.Volume(from).Submit([]*block.Request{h})
		r.copies++
		r.submit(volume, &block.Request{Op: block.OpPlace, Range: g, Ref: h.Ref, Origin: block.OriginXCopy}, at, to)
	}
}

// verify reads everything; what it finds is certain.
func (r *discardRun) verify() {
	r.t.Helper()
	buf := make([]byte, discardChunk*512)
	for _, volume := range []string{"v", "w"} {
		for i, may := range r.may[volume] {
			s := r.do(volume, &block.Request{Op: block.OpRead, Range: block.Range{Start: uint64(i) * discardChunk, Count: discardChunk}, Data: [][]byte{buf}})
			if s != block.OK || !slices.Contains(may, buf[0]) {
				r.t.Fatalf("%s: chunk %d of %s reads %v, %d, not one of %d", r.what, i, volume, s, buf[0], may)
			}
			for at, b := range buf {
				if b != buf[0] && !(len(may) > 1 && slices.Contains(may, b)) {
					r.t.Fatalf("%s: byte %d of chunk %d of %s is %d, not %d", r.what, at, i, volume, b, buf[0])
				}
			}
			if len(may) > 1 { // done in part, perhaps: write it anew
				r.stamp = r.stamp%200 + 1
				if s := r.do(volume, &block.Request{Op: block.OpWrite, Range: block.Range{Start: uint64(i) * discardChunk, Count: discardChunk}, Data: [][]byte{filled(len(buf), r.stamp)}}); s != block.OK {
					r.t.Fatalf("%s: a write ended %v", r.what, s)
				}
				r.may[volume][i] = []byte{r.stamp}
			}
		}
	}
	for _, p := range r.a.Check(true).Problems {
		r.t.Fatalf("%s: %s", r.what, p)
	}
}

// TestDiscardsAndDeaths: owners die while they discard, what they have sent arrives late or never, and the next one finds
// all that was acknowledged.
func TestDiscardsAndDeaths(t *testing.T) {
	seed := testkit.Seed(t)
	discarded, copies := uint64(0), 0
	few := func() bool { return discarded < 16<<20 || copies < 20 }
	for round := uint64(0); round < 6 || round < 24 && few(); round++ { // how many a round has is chance
		rnd := rand.New(rand.NewPCG(seed, round))
		c := simulated.New(simulated.Options{Latency: 1 + rnd.Int64N(3e6), Tail: rnd.IntN(300), OSDs: 1 + rnd.IntN(4)}, rnd)
		r := &discardRun{arrayRig: arrayRig{t: t, c: c}, rnd: rnd}
		r.what = fmt.Sprintf("-seed %d, round %d", seed, round)
		r.start(true)
		most := uint64(0)
		for life := range 5 {
			r.what = fmt.Sprintf("-seed %d, round %d, life %d", seed, round, life)
			space := r.a.Pool("p").Alloc
			for range 20 + rnd.IntN(60) {
				if space.Withheld() > 0 && rnd.IntN(3) == 0 {
					break
				}
				if len(r.out) == 0 {
					r.op()
				}
				switch rnd.IntN(20) {
				case 0:
					r.x.RunUntil(r.x.Now() + rnd.Int64N(3e9))
				case 1, 2:
					for len(r.out) > 0 && r.x.Step() {
					}
				default:
					for n := rnd.IntN(60); n > 0 && (space.Withheld() == 0 || rnd.IntN(8) > 0); n-- {
						r.x.Step()
					}
				}
			}
			_, n := r.a.Pool("p").Mdisks[0].Discarded()
			most = max(most, n)
			r.s.client.Kill()
			r.out = nil
			if rnd.IntN(2) == 0 {
				c.Settle()
			}
			r.start(false)
			r.verify()
			if t.Failed() {
				return
			}
		}
		discarded, copies = discarded+most, copies+r.copies
	}
	t.Logf("%d MiB were discarded, %d copies were made", discarded>>20, copies)
	if few() {
		t.Error("the test does not get there")
	}
}
