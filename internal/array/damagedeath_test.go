package array

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// heldSync is a store whose mdisks end no sync while they are held.
type heldSync struct {
	block.Store
	held    bool
	waiting []func()
}

type heldMedium struct {
	block.Medium
	s *heldSync
}

func (s *heldSync) Medium(name string, size uint64) (block.Medium, error) {
	m, err := s.Store.Medium(name, size)
	return heldMedium{m, s}, err
}

func (m heldMedium) Abandon(io *block.IO) { m.Medium.(block.Abandoner).Abandon(io) }

func (m heldMedium) Sync(done func(error)) {
	if m.s.held {
		m.s.waiting = append(m.s.waiting, func() { m.Medium.Sync(done) })
		return
	}
	m.Medium.Sync(done)
}

func (s *heldSync) release() {
	s.held = false
	for _, fn := range s.waiting {
		fn()
	}
	s.waiting = nil
}

// damageRig runs commands one after the other, so that it is known what each sector holds, and damages dirty data while
// nothing runs.
type damageRig struct {
	*powerRig
	k    *killer
	sync *heldSync
	want [2][]uint64 // by volume: stamps, 0: zeros
	bad  [2][]bool   // it may be a medium error
}

// damageSaw counts what all programs have met.
var damageSaw struct{ flips, bad, rewritten, deaths, cuts, many atomic.Int64 }

// set notes what a sector holds now.
func (r *damageRig) set(vol int, s, stamp uint64) {
	if r.bad[vol][s] {
		damageSaw.rewritten.Add(1)
	}
	r.want[vol][s], r.bad[vol][s] = stamp, false
}

// pick returns a range of a volume, now and then one that begins with a bad sector.
func (r *damageRig) pick(vol int) block.Range {
	size := uint64(len(r.want[vol]))
	n := 1 + r.rnd.Uint64N([]uint64{1, 8, 64, 300}[r.rnd.IntN(4)])
	at := r.rnd.Uint64N(size - n + 1)
	if r.rnd.IntN(2) == 0 {
		for i := range size {
			if s := (at + i) % size; r.bad[vol][s] {
				return rng(s, min(n, size-s))
			}
		}
	}
	return rng(at, n)
}

// write writes stamps to a range.
func (r *damageRig) write(vol int, g block.Range, flags block.Flags) {
	r.stamp++
	buf := make([]byte, g.Bytes())
	for s := range g.Count {
		fillStamp(buf[s*512:(s+1)*512], r.stamp<<20|s)
	}
	mustOK(r.t, r.wait(vol, &block.Request{Op: block.OpWrite, Flags: flags, Range: g, Data: [][]byte{buf}}))
	for s := range g.Count {
		r.set(vol, g.Start+s, r.stamp<<20|s)
	}
}

// command runs a random command to its end.
func (r *damageRig) command() {
	vol := r.rnd.IntN(2)
	switch k := r.rnd.IntN(100); {
	case k < 45:
		flags := block.Flags(0)
		if r.rnd.IntN(4) == 0 {
			flags = block.FUA
		}
		r.write(vol, r.pick(vol), flags)
	case k < 55:
		g := r.pick(vol)
		if r.rnd.IntN(2) == 0 { // whole windows
			g = rng(g.Start&^127, min((g.Count+127)&^127, uint64(len(r.want[vol]))-g.Start&^127))
		}
		mustOK(r.t, r.wait(vol, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{g}}))
		for s := range g.Count {
			r.set(vol, g.Start+s, 0)
		}
	case k < 65:
		r.place(vol, 1-vol)
	case k < 72:
		mustOK(r.t, r.wait(vol, &block.Request{Op: block.OpFlush}))
	case k < 76:
		r.a.checkpoint(true)
	case k < 82:
		r.sync.held = true
		s := r.sync
		r.clock.At(r.clock.Now()+r.rnd.Int64N(2e9), s.release)
	default:
		r.clock.RunUntil(r.clock.Now() + r.rnd.Int64N(2e9))
	}
}

// place copies a range from a volume to another: by reference, so that what is bad there is bad here, or not at all if that
// would be an error.
func (r *damageRig) place(from, to int) {
	src := r.pick(from)
	src.Count = min(src.Count, 300, uint64(len(r.want[to])))
	at := r.rnd.Uint64N(uint64(len(r.want[to])) - src.Count + 1)
	for s := range src.Count {
		if r.vols[from].Pool().CopyData && r.bad[from][src.Start+s] {
			return
		}
	}
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{src}}
	mustOK(r.t, r.wait(from, h))
	mustOK(r.t, r.wait(to, &block.Request{Op: block.OpPlace, Range: rng(at, src.Count), Ref: h.Ref, Origin: block.OriginXCopy}))
	h.Ref.Release()
	for s := range src.Count {
		r.set(to, at+s, r.want[from][src.Start+s])
		r.bad[to][at+s] = r.bad[from][src.Start+s]
	}
}

// halves has two pages count at each of so many addresses that they do not all find a free page to be joined in.
func (r *damageRig) halves() {
	r.sync.release()
	r.clock.RunUntil(r.clock.Now() + 5e9)
	r.sync.held = true
	pages := uint64(len(r.want[0])) / 8
	for p := uint64(0); p+16 <= pages; p += 16 {
		r.write(0, rng(p*8, 128), 0)
	}
	mustOK(r.t, r.wait(0, &block.Request{Op: block.OpFlush}))
	r.clock.RunUntil(r.clock.Now() + 2e9)
	for p := range pages &^ 15 {
		r.write(0, rng(p*8+r.rnd.Uint64N(8), 1), 0)
	}
	damageSaw.many.Add(1)
}

// flip damages a sector of a page on the disk of a dead process, and notes who has it. The page is of a record up to a number: if
// the power goes, damage of what the very last flush has written looks like a page that was torn.
func (r *damageRig) flip(upTo uint64) {
	c := r.a.cache
	for range 100 {
		i := uint32(r.rnd.IntN(c.Pages()))
		mask := c.Sealed(i)
		if s := c.State(i); s == wcache.Free || s == wcache.Tombstoned || mask == 0 || c.NV.Descriptor(i).Seq() > upTo {
			continue
		}
		s := r.rnd.IntN(8)
		if mask>>s&1 == 0 {
			continue
		}
		region := r.opt
		region.fill()
		at := region.region(true).Region().Offset(block.PartPages) + int(i)*layout.PageBytes + s*512 + r.rnd.IntN(512)
		r.disk.FlipAt("/data/nvram", int64(at), r.rnd.IntN(8))
		damageSaw.flips.Add(1)
		for vol, v := range r.vols[:2] {
			v.Map.Walk(rng(0, uint64(len(r.want[vol]))), func(x extent.Run) bool {
				phys := c.Key(i).Phys() + uint64(s)
				if x.State == block.Data && phys >= x.Phys && phys < x.Phys+x.Count {
					r.bad[vol][x.Start+phys-x.Phys] = true
				}
				return true
			})
		}
		return
	}
}

// die kills the process, and damages some of what it leaves. It reports whether a loss of power takes nothing of that.
func (r *damageRig) die() (durable bool) {
	upTo := uint64(1<<64 - 1)
	if durable = r.rnd.IntN(2) == 0; durable {
		mustOK(r.t, r.wait(0, &block.Request{Op: block.OpFlush}))
		upTo = r.a.log.Seq()
		r.write(1, rng(0, 1), block.FUA) // with this flush it is durable that the first has ended
	}
	r.disk.KillNow()
	r.files.Close()
	r.disk = r.disk.Image()
	for range r.rnd.IntN(3) {
		r.flip(upTo)
	}
	return durable
}

// start starts the array, which dies meanwhile a few times, and verifies it.
func (r *damageRig) start(what string, durable bool) {
	for n := 0; ; n++ {
		most := []int{20, 200, 3000, 15_000}[r.rnd.IntN(4)]
		if r.k.arm(most); n == 4 || r.rnd.IntN(3) == 0 {
			r.k.left = 0
			r.disk.KillAtWrite(1 << 40)
		}
		r.clock = &block.Virtual{Late: lateness(r.rnd)}
		var err error
		if r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt, r.wrap...); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		if r.k.ended(); !r.isCut() {
			break
		}
		damageSaw.deaths.Add(1)
		r.files.Close()
		r.disk = r.disk.Image()
		if durable && r.rnd.IntN(2) == 0 {
			damageSaw.cuts.Add(1)
			r.disk = r.disk.Cut()
		}
	}
	r.k.left = 0
	r.disk.KillAtWrite(1 << 40)
	r.find()
	if rec := r.a.Recovery(); rec.BadPages > 0 {
		r.t.Errorf("%s: recovery: %+v", what, rec)
	}
	if rep := r.a.Check(true); len(rep.Problems) > min(rep.BadSectors, 21) {
		r.t.Errorf("%s: check: %q", what, rep.Problems)
	}
	for vol := range r.want {
		size := uint64(len(r.want[vol]))
		for s := uint64(0); s < size; s += 100 {
			if g := rng(s, min(100, size-s)); !r.holdsStamps(what, vol, g) {
				for s := range g.Count {
					r.holdsStamps(what, vol, rng(g.Start+s, 1))
				}
			}
		}
	}
}

// holdsStamps verifies what sectors hold; false says that one of several is a medium error.
func (r *damageRig) holdsStamps(what string, vol int, g block.Range) bool {
	got, want := make([]byte, g.Bytes()), make([]byte, 512)
	switch s := r.wait(vol, &block.Request{Op: block.OpRead, Range: g, Data: [][]byte{got}}); {
	case s == block.MediumRead && g.Count > 1:
		return false
	case s == block.MediumRead && r.bad[vol][g.Start]:
		damageSaw.bad.Add(1)
		return true
	case s != block.OK:
		r.t.Fatalf("%s: reading %v of volume %d ended %v", what, g, vol, s)
	}
	for i := range g.Count {
		b := got[i*512 : (i+1)*512]
		if fillStamp(want, r.want[vol][g.Start+i]); !bytes.Equal(b, want) {
			r.t.Fatalf("%s: sector %d of volume %d holds %x, not %x; bad: %t", what, g.Start+i, vol, le.Uint64(b), r.want[vol][g.Start+i], r.bad[vol][g.Start+i])
		}
		r.bad[vol][g.Start+i] = false
	}
	return true
}

// TestDamageAndDeaths runs random commands, kills the process, damages dirty sectors, and has starts die, and the power go behind
// that. A sector that was damaged and not written since is what it was or a medium error, and never older; all others are as they
// were acknowledged.
func TestDamageAndDeaths(t *testing.T) {
	const chain = 10 // lives of one array
	lives := 400
	if testing.Short() || underRace {
		lives = 40
	}
	if *cutsFlag > 0 {
		lives = *cutsFlag
	}
	t.Cleanup(func() {
		s := &damageSaw
		n := [...]int64{s.flips.Load(), s.bad.Load(), s.rewritten.Load(), s.deaths.Load(), s.cuts.Load(), s.many.Load()}
		t.Logf("flips, medium errors, bad sectors written again, deaths of starts, cuts behind these, lives with many pages to join: %d", n)
		if lives >= 400 && min(n[0], n[1], n[2], n[3], n[4], n[5]) == 0 {
			t.Error("the programs have not met all of that")
		}
	})
	base := testkit.Seed(t)
	for s := base; s < base+uint64(lives/chain); s++ {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			r := &damageRig{k: &killer{}}
			large := s%8 == 0
			r.powerRig = newPowerRigWith(t, s, s%4 == 1, func(p *powerRig) {
				p.opt.MapBytes = 0 // what an array knew of its maps is looked at when it is dead
				if r.powerRig, r.k.r = p, p; large {
					p.opt.CacheBytes, p.opt.CapPercent = 8<<20, []int{100}
				}
				p.wrap = []func(block.Store) block.Store{
					func(s block.Store) block.Store { r.sync = &heldSync{Store: s}; return r.sync },
					func(s block.Store) block.Store { return killable{s, r.k} },
				}
			})
			r.rnd = rand.New(rand.NewPCG(s, 9))
			sizes := [2]int{700, 600}
			if large {
				sizes[0] = 7200
			}
			for vol, n := range sizes {
				r.want[vol], r.bad[vol] = make([]uint64, n), make([]bool, n)
			}
			for n := range chain {
				what := fmt.Sprintf("-run TestDamageAndDeaths -seed %d -cuts %d, life %d", s, chain, n)
				for range r.rnd.IntN(60) {
					r.command()
				}
				if large && r.rnd.IntN(2) == 0 {
					r.halves()
				}
				r.start(what, r.die())
				if t.Failed() {
					t.FailNow()
				}
			}
			r.files.Close()
		})
	}
}
