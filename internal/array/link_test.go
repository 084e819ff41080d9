package array

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// brokenLink is a partner's store whose link goes down for good: what is committed then does not
// get there.
type brokenLink struct {
	*blocktest.Remote
	clock *block.Virtual
	down  bool
}

type brokenRegion struct {
	block.Region
	s *brokenLink
}

var errLink = errors.New("the link is down")

func (s *brokenLink) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	r, fresh, err := s.Remote.Region(name, l)
	return brokenRegion{r, s}, fresh, err
}

func (g brokenRegion) Commit(done func(error)) { g.try(g.Region.Commit, done) }

func (g brokenRegion) Flush(done func(error)) { g.try(g.Region.Flush, done) }

// try fails behind all that was sent before.
func (g brokenRegion) try(send func(func(error)), done func(error)) {
	if g.s.down {
		g.s.clock.At(g.s.clock.Now()+20e6, func() { done(errLink) })
		return
	}
	send(done)
}

// linkRig is an array whose NVRAM a partner keeps, with what was read and acknowledged of each
// page.
type linkRig struct {
	*rig
	rnd     *rand.Rand
	partner *blocktest.Partner
	link    *brokenLink
	v       *Volume
	newest  [linkPages]uint64 // that was written
	busy    [linkPages]bool   // a change is under way
	heard   [linkPages]uint64 // that a host was told of
}

const linkPages = 24

func (r *linkRig) start() {
	r.link = &brokenLink{Remote: blocktest.NewRemote(r.store, r.clock, r.partner, 1e6, r.rnd), clock: r.clock}
	r.opt.Exec, r.opt.Store = r.clock, r.link
	a, err := Open(r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.a, r.busy = a, [linkPages]bool{}
}

// step submits a write or a read of a page, or lets time go.
func (r *linkRig) step() {
	at := r.rnd.IntN(linkPages)
	buf := make([]byte, 4096)
	q := &block.Request{Range: rng(uint64(at)*8, 8), Data: [][]byte{buf}}
	switch k := r.rnd.IntN(10); {
	case k < 3 && !r.busy[at]:
		r.newest[at]++
		n := r.newest[at]
		le.PutUint64(buf, n)
		q.Op, r.busy[at] = block.OpWrite, true
		q.Done = func(q *block.Request) {
			if r.busy[at] = false; q.Status == block.OK {
				r.heard[at] = max(r.heard[at], n)
			}
		}
	case k < 7:
		q.Op = block.OpRead
		q.Done = func(q *block.Request) {
			if q.Status == block.OK {
				r.heard[at] = max(r.heard[at], le.Uint64(buf))
			}
		}
	default:
		r.clock.RunUntil(r.clock.Now() + r.rnd.Int64N(2e6))
		return
	}
	r.v.Submit([]*block.Request{q})
}

// TestNobodyHeardOfWhatIsLost: the link to the partner breaks, and the process dies some time
// later. What a host was told, by an acknowledgement or by a read, a start finds, or something
// newer.
func TestNobodyHeardOfWhatIsLost(t *testing.T) {
	base, n, lost := testkit.Seed(t), uint64(12), 0
	if testing.Short() {
		n = 10
	}
	for seed := base; seed < base+n; seed++ {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := &linkRig{rig: newRig(t, Options{CacheBytes: 2 << 20, UUID: 1}, false), rnd: rnd, partner: blocktest.NewPartner()}
		r.start()
		r.pool("p", PoolSpec{}, 64<<20)
		r.volume("v", "p", 16<<20, true)
		for range 6 {
			r.v = r.a.Volume("v")
			for range 20 + rnd.IntN(60) {
				r.step()
			}
			r.link.down = rnd.IntN(4) != 0
			for range rnd.IntN(80) {
				r.step()
			}
			r.link.Kill()
			r.clock = &block.Virtual{}
			r.store = r.store.Clone(r.clock)
			r.start()
			for at := range r.newest {
				buf := make([]byte, 4096)
				mustOK(t, r.do(r.a.Volume("v"), &block.Request{Op: block.OpRead, Range: rng(uint64(at)*8, 8), Data: [][]byte{buf}}))
				got := le.Uint64(buf)
				if got < r.heard[at] || got > r.newest[at] {
					t.Fatalf("-seed %d: a start finds version %d of page %d; a host heard of %d, and %d was written last", seed, got, at, r.heard[at], r.newest[at])
				}
				if got < r.newest[at] {
					lost++
				}
				r.newest[at], r.heard[at] = got, got
			}
		}
	}
	if lost == 0 {
		t.Error("nothing was ever lost: the test shows nothing")
	}
}
