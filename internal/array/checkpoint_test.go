package array

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// boundedStore has a meta store that panics at a batch that is too large, as Pebble does at 4 GiB, and dies before a
// batch that is chosen: what comes then is never durable.
type boundedStore struct {
	block.Store
	limit   int
	silent  bool // it does not name its limit
	batches int
	largest int
	dies    int // before this batch, counted from 1; 0: never
	died    func()
}

type boundedMeta struct {
	block.MetaStore
	s *boundedStore
}

func (s *boundedStore) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return boundedMeta{m, s}, err
}

// Limit is what it panics above, where it says so.
func (m boundedMeta) Limit() int {
	if m.s.silent {
		return m.MetaStore.Limit()
	}
	return m.s.limit
}

func (m boundedMeta) take(batch []block.KV) {
	n := 0
	for _, e := range batch {
		n += len(e.Key) + len(e.Value)
	}
	m.s.largest = max(m.s.largest, n)
	if n > m.s.limit {
		panic(fmt.Sprintf("a batch of %d bytes", n))
	}
	if m.s.batches++; m.s.batches == m.s.dies {
		m.s.died()
	}
}

func (m boundedMeta) Commit(batch []block.KV, done func(error)) {
	m.take(batch)
	m.MetaStore.Commit(batch, done)
}

func (m boundedMeta) CommitNow(batch []block.KV) error {
	m.take(batch)
	return m.MetaStore.CommitNow(batch)
}

// TestLargeCheckpoints writes at random over a volume of 4 GiB and more, unmaps parts of it, and makes checkpoints that are many
// times what the meta store takes in one batch, while writing goes on. The process dies before any of the batches, those of a start
// included: all that was acknowledged is there.
func TestLargeCheckpoints(t *testing.T) {
	const limit, sectors = 64 << 10, 9_000_000
	seed := testkit.Seed(t)
	most := 0
	for round := range 30 {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		s := &boundedStore{limit: limit, silent: round%2 == 0}
		opt := Options{}
		if s.silent {
			opt.CheckpointBytes = limit / 2
		}
		r := newRig(t, opt, false)
		reopen := func() {
			t.Helper()
			s.Store, r.opt.Exec, r.opt.Store = r.store, r.clock, s
			var err error
			if r.a, err = Open(r.opt); err != nil {
				t.Fatalf("-seed %d, round %d: %v", seed, round, err)
			}
		}
		reopen()
		r.pool("p", PoolSpec{}, 256<<20)
		v := r.volume("v", "p", sectors*512, true)
		want := map[uint64]uint64{} // stamps
		states := make([]block.State, sectors/windowSectors)
		stamp := uint64(0)
		change := func() {
			switch at := rnd.Uint64N(sectors/windowSectors) * windowSectors; {
			case rnd.IntN(10) > 0:
				stamp++
				buf := make([]byte, 512)
				fillStamp(buf, stamp)
				mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(at, 1), Data: [][]byte{buf}}))
				want[at], states[at/windowSectors] = stamp, block.Data
			default:
				n := uint64(windowSectors) << rnd.IntN(15)
				if rnd.IntN(2) == 0 {
					at &^= n - 1
				}
				n = min(uint64(len(states))*windowSectors-at, n)
				op, state := &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(at, n)}}, block.Unmapped
				if rnd.IntN(2) == 0 {
					op, state = &block.Request{Op: block.OpWriteSame, Range: rng(at, n)}, block.Zero
				}
				mustOK(t, r.do(v, op))
				for w := at / windowSectors; w < (at+n)/windowSectors; w++ {
					states[w] = state
				}
				for s := range want {
					if s >= at && s < at+n {
						delete(want, s)
					}
				}
			}
		}
		for range 400 {
			change()
		}
		var image func()
		s.batches, s.largest = 0, 0
		s.dies = 1 + rnd.IntN(30)
		s.died = func() {
			st, w := r.store.Clone(&block.Virtual{}), map[uint64]uint64{}
			for k, v := range want {
				w[k] = v
			}
			of := slices.Clone(states)
			image = func() { r.store, want, states = st, w, of }
		}
		for range 300 {
			r.a.checkpoint(true)
			change()
		}
		r.clock.Run()
		most = max(most, s.batches)
		if image != nil {
			image()
		}
		again := false
		s.batches, s.dies = 0, 1+rnd.IntN(20)
		s.died = func() {
			st := r.store.Clone(&block.Virtual{})
			again, image = true, func() { r.store = st }
		}
		for range 2 {
			r.clock = &block.Virtual{}
			r.store = r.store.Clone(r.clock)
			reopen()
			if !again {
				break
			}
			image()
			again, s.dies = false, 0
		}
		r.check()
		v = r.a.Volume("v")
		got, b := make([]byte, 512), make([]byte, 512)
		for w, state := range states {
			at := uint64(w) * windowSectors
			if got := stateAt(v, at); got != state {
				t.Fatalf("-seed %d, round %d: sector %d is %v, not %v", seed, round, at, got, state)
			}
			if state != block.Data {
				continue
			}
			mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(at, 1), Data: [][]byte{got}}))
			if fillStamp(b, want[at]); string(got) != string(b) {
				t.Fatalf("-seed %d, round %d: sector %d holds %x, not %x", seed, round, at, le.Uint64(got), want[at])
			}
		}
		r.check()
	}
	if most < 10 {
		t.Errorf("no checkpoint had more than %d batches", most)
	}
}

// stateAt returns the state of a sector.
func stateAt(v *Volume, at uint64) (s block.State) {
	v.Map.Walk(rng(at, 1), func(x extent.Run) bool { s = x.State; return true })
	return s
}

// A key can come to life again, and be persisted, before the garbage collector reaches its old node: the
// removal of dead keys spares it.
func TestCheckpointSparesRevivedKeys(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 8 << 20}, false)
	r.pool("p", PoolSpec{}, 256<<20)
	v := r.volume("v", "p", 4<<30, true)
	w := r.volume("w", "p", 4<<30, true)
	for i := range uint64(200) {
		mustOK(t, r.do(v, write(i*windowSectors*256, 8)))
	}
	r.a.checkpoint(true)
	r.clock.Run()
	submit := func(q *block.Request) *block.Request {
		q.Status = block.Gone
		q.Done = func(*block.Request) {}
		v.Submit([]*block.Request{q})
		return q
	}
	data := bytes.Repeat([]byte{7}, 4096)
	u := submit(&block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 4<<30/512)}})
	q := submit(&block.Request{Op: block.OpWrite, Range: rng(0, 8), Data: [][]byte{data}})
	n := r.a.ckpt.Count()
	r.a.checkpoint(true)
	for r.a.ckpt.Count() == n && r.clock.Step() {
	}
	mustOK(t, u.Status)
	mustOK(t, q.Status)
	if !r.a.arena.HasGarbage() {
		t.Fatal("nothing of the old map is left to collect: the test shows nothing")
	}
	r.clock.Run()
	mustOK(t, r.do(w, write(0, 8)))
	r.a.checkpoint(true)
	r.clock.Run()
	r.crash()
	got := make([]byte, 4096)
	mustOK(t, r.do(r.a.Volume("v"), &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{got}}))
	if !bytes.Equal(got, data) {
		t.Errorf("what was written is lost: the sector is %v", stateAt(r.a.Volume("v"), 0))
	}
}
