package array

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// killer kills the process inside an update of NVRAM: the n-th from now on. Of that a part is there, to the byte, and
// of what the program wrote before and after, all and nothing.
type killer struct {
	r    *powerRig
	left int
	w    *blocktest.Watched
	part block.Part
	at   []byte // where the update is that has begun
	old  []byte // what was there before; nil: none has begun
	// exact: only updates of descriptors are counted, and of that one so many words are there; else what is there is drawn.
	exact bool
	words int
}

// killable is a store of which a killer hears what is written to NVRAM.
type killable struct {
	block.Store
	k *killer
}

func (s killable) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	r, fresh, err := s.Store.Region(name, l)
	if err != nil {
		return nil, false, err
	}
	w := blocktest.Watch(r, l, s.k.r.disk.Mapped("/data/nvram"))
	s.k.old, w.On = nil, func(part block.Part, b []byte) { s.k.writing(w, part, b) }
	return w, fresh, nil
}

func (k *killer) writing(w *blocktest.Watched, part block.Part, b []byte) {
	k.ended()
	if k.exact && part != block.PartDescriptors {
		return
	}
	if k.left--; k.left == 0 && k.r.disk.Image() == nil {
		k.w, k.part, k.at, k.old = w, part, b, slices.Clone(b)
	}
}

// ended makes the image, if the update that was chosen has ended.
func (k *killer) ended() {
	if k.old == nil {
		return
	}
	at := k.at
	now := slices.Clone(at)
	from, to := 0, k.r.rnd.IntN(len(at)+1)
	// A descriptor's words are written one after the other, each as a whole: no processor tears an aligned word, and
	// the first has 8 bytes. Data, and what a checksum covers, may stop at any byte in any order.
	if k.part == block.PartDescriptors {
		if k.exact {
			to = 4 * k.words
		}
		if to &^= 3; to < 8 {
			to = 0
		}
	} else {
		switch k.r.rnd.IntN(3) {
		case 0:
			from, to = to, len(at)
		case 1:
			from = k.r.rnd.IntN(to + 1)
		}
	}
	copy(at, k.old)
	copy(at[from:to], now[from:to])
	k.w.Retell()
	k.r.disk.KillNow()
	copy(at, now)
	k.old = nil
}

// arm chooses the next death: inside an update of NVRAM or of a file.
func (k *killer) arm(most int) {
	k.left, k.old = 0, nil
	if k.r.rnd.IntN(4) == 0 {
		k.r.disk.KillAtWrite(1 + k.r.rnd.IntN(most/4))
		return
	}
	k.r.disk.KillAtWrite(1 << 40)
	k.left = 1 + k.r.rnd.IntN(most)
}

// restartKilled recovers from a death of the process, perhaps dying again meanwhile, and verifies: nothing that was
// acknowledged is lost.
func (r *powerRig) restartKilled(k *killer, what string) {
	r.calm = true
	for {
		r.disk = r.disk.Image()
		r.files.Close()
		k.arm(200)
		again := r.rnd.IntN(3) == 0
		if !again {
			k.left = 0
			r.disk.KillAtWrite(1 << 40)
		}
		r.clock = &block.Virtual{}
		var err error
		if r.a, r.files, err = r.openAgain(); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		k.ended()
		if !r.isCut() {
			break
		}
	}
	k.left = 0
	r.disk.KillAtWrite(1 << 40)
	r.flushed = r.acks
	r.findPool()
	r.find()
	r.sized(what)
	for _, p := range r.a.Check(true).Problems {
		r.t.Errorf("%s: check: %s", what, p)
	}
	if rec := r.a.Recovery(); rec.BadPages+rec.BadSectors > 0 || rec.PowerLost {
		r.t.Errorf("%s: recovery: %+v", what, rec)
	}
	r.verify(what)
	r.verifyStore(what)
	r.busy, r.cut, r.calm = nil, false, false
}

// losePowerToo has the power go behind the death of the process, perhaps behind starts that died, too, and before one that
// serves anything, and verifies: what was flushed is there.
func (r *powerRig) losePowerToo(k *killer, what string) {
	for r.rnd.IntN(2) == 0 {
		r.disk = r.disk.Image()
		r.files.Close()
		k.arm(200)
		var err error
		if _, r.files, err = openOn(r.disk, &block.Virtual{}, r.rnd, r.opt, r.wrap...); err != nil {
			r.t.Fatalf("%s, a start before the cut: %v", what, err)
		}
		k.ended()
		r.disk.KillNow()
	}
	r.disk = r.disk.Image()
	k.left, k.old, r.killed = 0, nil, false
	r.disk.Cut()
	r.restart(what)
}

// TestKills kills the process inside updates of NVRAM and of files: what was acknowledged is there, nothing is half done, and the
// array starts.
func TestKills(t *testing.T) { killInside(t, "TestKills", (*powerRig).restartKilled) }

// TestKillsBeforePowerLoss is TestKills where the power goes before a start, or behind one that died: what was flushed is there.
func TestKillsBeforePowerLoss(t *testing.T) {
	killInside(t, "TestKillsBeforePowerLoss", (*powerRig).losePowerToo)
}

// killInside kills arrays inside updates; restart starts them again and verifies.
func killInside(t *testing.T, name string, restart func(r *powerRig, k *killer, what string)) {
	const chain = 10 // kills of one array
	kills := 300
	if testing.Short() || underRace {
		kills = 20
	}
	if *cutsFlag > 0 {
		kills = *cutsFlag
	}
	base := testkit.Seed(t)
	tell := progress(t, kills, "kills")
	for s := base; s < base+uint64(kills/chain); s++ {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			k := &killer{}
			r := newPowerRigWith(t, s, s%2 == 0, func(r *powerRig) {
				k.r, r.comes = r, true
				r.hangs, r.hangOnce = s%4 == 1, 300
				r.wrap = []func(block.Store) block.Store{func(s block.Store) block.Store { return killable{s, k} }}
			})
			r.rnd = rand.New(rand.NewPCG(s, 8))
			for n := range chain {
				r.over = false
				k.arm(2000)
				r.steps(100_000)
				k.ended()
				if !r.isCut() {
					r.disk.KillNow()
				}
				restart(r, k, fmt.Sprintf("-run %s -seed %d -cuts %d, kill %d", name, s, chain, n))
				if t.Failed() {
					t.FailNow()
				}
			}
			r.files.Close()
			tell(chain)
		})
	}
}
