package array

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestRandomFullStore: whatever is written to a store that has no room now and then, while syncs are lost, mdisks are away and the
// process dies, nothing that was acknowledged is gone, and when there is room all of it gets to its place.
func TestRandomFullStore(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const sectors, rounds = 16 << 11, 6
	seed := testkit.Seed(t)
	short, lost := 0, 0
	for round := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, round))
		r, s := discardRig(t, Options{CacheBytes: 4 << 20, LeafBytes: 1 + rnd.Uint64N(2)*5000})
		r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 32 << 20}, {Name: "n", Size: 32 << 20}}}, 0)
		names := []string{"v", "w"}
		// What a sector may be: what was acknowledged last, or one that ended with an error behind it.
		model := map[string][][]byte{}
		for i, name := range names {
			r.volume(name, "p", sectors*block.SectorSize, i == 0 || rnd.IntN(2) == 0)
			model[name] = make([][]byte, sectors)
			for at := range model[name] {
				model[name][at] = []byte{0}
			}
		}
		limit := limitPages(s)
		// An mdisk fails as long as there is something that it has no room for.
		watch := func() {
			p := r.a.Pool("p")
			r.a.afterStep = func() {
				for i, d := range p.Mdisks {
					if since, _ := d.Failing(); since == 0 && p.Part.AnyRefused(i) {
						t.Fatalf("-seed %d, round %d: mdisk %s has no room for something, and is said to work", seed, round, d.Name())
					}
				}
			}
		}
		watch()
		for step := range 250 {
			name := names[rnd.IntN(2)]
			v := r.a.Volume(name)
			n := 1 + rnd.Uint64N(8<<rnd.IntN(8))
			at := rnd.Uint64N(sectors - n)
			if rnd.IntN(2) == 0 {
				at &^= layout.PageSectors - 1
			}
			value := byte(1 + rnd.IntN(255))
			q := written(at, n, value)
			switch rnd.IntN(20) {
			case 0, 1:
				q, value = unmap(0, rng(at, n)), 0
			case 2:
				limit.full()
				continue
			case 3:
				limit.limit += 1 + rnd.IntN(500)
				continue
			case 4:
				s.lost = errors.New("the sync is lost")
				continue
			case 5:
				if rnd.IntN(4) == 0 {
					s.crash(r)
					limit.install()
					watch()
				}
				continue
			case 6:
				p := r.a.Pool("p")
				if err := p.SetMdiskOffline("n", !p.Mdisks[1].Offline()); err != nil {
					t.Fatal(err)
				}
				continue
			case 7, 8:
				r.clock.RunUntil(r.clock.Now() + rnd.Int64N(20e9)<<(4*rnd.IntN(2)))
				continue
			}
			lost += min(1, v.Pool().Part.Refused())
			status := r.do(v, q)
			for i := at; i < at+n; i++ {
				m := &model[name][i]
				if status == block.OK {
					*m = (*m)[:0]
				}
				*m = append(*m, value)
			}
			switch status {
			case block.OK:
			case block.NoSpace, block.MediumWrite, block.Offline, block.Resources:
				short++
			default:
				t.Fatalf("-seed %d, round %d, step %d: a write ends with %v", seed, round, step, status)
			}
		}
		limit.limit = 1 << 60
		if p := r.a.Pool("p"); p.Mdisks[1].Offline() {
			if err := p.SetMdiskOffline("n", false); err != nil {
				t.Fatal(err)
			}
		}
		r.clock.RunUntil(r.clock.Now() + 300e9)
		if n, p := r.a.Dirty(), r.a.Pool("p").Part; n != 0 || p.Refused()+p.Pinned() != 0 {
			t.Errorf("-seed %d, round %d: there is room, and %d bytes are dirty, %d pages refused, %d pinned", seed, round, n, p.Refused(), p.Pinned())
		}
		for _, name := range names {
			got := make([]byte, sectors*block.SectorSize)
			mustOK(t, r.do(r.a.Volume(name), &block.Request{Op: block.OpRead, Range: rng(0, sectors), Data: [][]byte{got}}))
			for i, may := range model[name] {
				if x := got[i*block.SectorSize : (i+1)*block.SectorSize]; !bytes.Contains(may, x[:1]) || !bytes.Equal(x, bytes.Repeat(x[:1], block.SectorSize)) {
					t.Fatalf("-seed %d, round %d: sector %d of %s has %d, and not one of %d", seed, round, i, name, x[0], may)
				}
			}
		}
		r.check()
	}
	if short < 10*rounds || lost < 10*rounds {
		t.Errorf("%d writes found no room, %d came while others had none: the test shows too little", short, lost)
	}
}
