package tier

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestOrdersOfOneBlock: writes, with FUA and without, flushes, damage, destages and deaths meet in one block in random orders and
// at random times. After each death, with the flash's power or without, and after the next one, every sector has
// what was acknowledged or flushed, or something newer, or is damaged.
func TestOrdersOfOneBlock(t *testing.T) {
	from := firstSeed(t, *seeds)
	for i := range *seeds {
		seed := from + uint64(i)
		o := newOrders(t, seed)
		for range 3 {
			o.begin()
			o.live()
			o.die()
			o.check()
			o.l.crash()
			o.start()
			o.check()
		}
	}
}

// orders is the block and what may be read of it. A version is the number of the write that made it.
type orders struct {
	l     *lab
	t     *testing.T
	r     *rand.Rand
	seed  uint64
	last  uint64    // version that was submitted
	acked [8]uint64 // by sector
	kept  [8]uint64 // survives a loss of power
	at    uint64    // the first of the block's sectors
	bad   [8]bool   // may be damaged
	worst [8]bool   // may be damaged after a loss of power
	blows [8]int    // how often it was
}

func newOrders(t *testing.T, seed uint64) *orders {
	o := &orders{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 21))}
	o.l = newLab(t, func(w *world) {
		w.seed, w.r = seed, o.r
		w.a.rand, w.cards[0].rand = o.r, o.r
		w.opt.PowerSafe = o.r.IntN(3) == 0
		if o.r.IntN(3) > 0 {
			withoutDestager(w)
		}
		w.cards[0].volatile = true
	})
	return o
}

// begin goes to a block that holds nothing.
func (o *orders) begin() {
	*o = orders{l: o.l, t: o.t, r: o.r, seed: o.seed, last: o.last, at: o.at + 8}
}

// live sends some requests.
func (o *orders) live() {
	l := o.l
	for range 2 + o.r.IntN(10) {
		switch n := o.r.IntN(10); {
		case n < 6:
			o.write()
		case n < 9:
			o.flush()
		default:
			o.damage()
			o.write()
		}
		if o.r.IntN(2) == 0 {
			l.v.RunUntil(l.v.Now() + o.r.Int64N(1+o.r.Int64N(4_000_000)))
		}
	}
	l.v.RunUntil(l.v.Now() + o.r.Int64N(1+o.r.Int64N(2_000_000)))
}

func (o *orders) write() {
	first, n := uint64(0), uint64(8)
	if o.r.IntN(3) == 0 {
		first = o.r.Uint64N(8)
		n = 1 + o.r.Uint64N(8-first)
	}
	g := block.Range{Start: first, Count: n}
	o.last++
	v := o.last
	r := &block.Request{Op: block.OpWrite, Range: block.Range{Start: o.at + first, Count: g.Count}, Data: [][]byte{pattern(v, g.Count)}}
	if o.r.IntN(5) == 0 {
		r.Flags = block.FUA
	}
	life := o.l.life
	r.Done = func(r *block.Request) {
		if o.l.life != life {
			return
		}
		if r.Status != block.OK {
			o.t.Fatalf("seed %d: write: %v", o.seed, r.Status)
		}
		for s := g.Start; s < g.End(); s++ {
			o.acked[s], o.bad[s] = max(o.acked[s], v), false
			if o.l.opt.PowerSafe || r.Flags&block.FUA != 0 {
				o.kept[s], o.worst[s] = max(o.kept[s], v), false
			}
		}
	}
	o.l.d.Submit([]*block.Request{r})
}

func (o *orders) flush() {
	acked, bad, blows, life := o.acked, o.bad, o.blows, o.l.life
	o.l.d.Submit([]*block.Request{{Op: block.OpFlush, Done: func(r *block.Request) {
		if o.l.life != life {
			return
		}
		if r.Status != block.OK {
			o.t.Fatalf("seed %d: flush: %v", o.seed, r.Status)
		}
		for s := range acked {
			o.kept[s] = max(o.kept[s], acked[s])
			if !bad[s] && blows[s] == o.blows[s] {
				o.worst[s] = false
			}
		}
	}}})
}

// damage has the cache give up a sector.
func (o *orders) damage() {
	s := o.r.Uint64N(8)
	o.bad[s], o.worst[s] = true, true
	o.blows[s]++
	o.l.d.giveUpSectors(block.Range{Start: o.at + s, Count: 1})
	o.l.d.pump()
}

// die ends the process, or the machine's power, and starts again.
func (o *orders) die() {
	o.l.crash()
	if o.r.IntN(2) == 0 {
		o.l.cards[0].powerCut()
		o.acked, o.bad = o.kept, o.worst
		o.l.bootID++
	}
	o.start()
}

func (o *orders) start() {
	if err := o.l.try(0, nil); err != nil {
		o.t.Fatalf("seed %d: %v", o.seed, err)
	}
}

// check reads the block; what was read must stay.
func (o *orders) check() {
	if n := o.l.d.Recovery().Damaged; n > 0 && !slices.Contains(o.bad[:], true) {
		o.t.Fatalf("seed %d: %d sectors are damaged, and none was", o.seed, n)
	}
	for s := range o.acked {
		buf := make([]byte, block.SectorSize)
		st := o.l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: o.at + uint64(s), Count: 1}, Data: [][]byte{buf}})
		v, whole := valueOf(buf)
		switch {
		case st == block.MediumRead && o.bad[s]:
			continue
		case st != block.OK || !whole || v < o.acked[s] || v > o.last:
			o.t.Fatalf("seed %d: sector %d: %v, version %d (whole %v); acknowledged %d, flushed %d, of %d, may be damaged %v", o.seed, s, st, v, whole, o.acked[s], o.kept[s], o.last, o.bad[s])
		}
		o.acked[s] = v
	}
}
