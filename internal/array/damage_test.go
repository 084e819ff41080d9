package array

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestDamagedImagesNeverPanic flips bytes of NVRAM and of the meta store of an array
// that was killed, and starts it: it either refuses in one sentence, or runs, and then
// every read ends.
func TestDamagedImagesNeverPanic(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 3))
	r := newRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v, w := r.volume("v", "p", 20<<20, true), r.volume("w", "p", 20<<20, false)
	for range 150 {
		x, y := v, w
		if rnd.IntN(2) == 0 {
			x, y = w, v
		}
		at := rnd.Uint64N(40000)
		mustOK(t, r.do(x, write(at, 1+rnd.Uint64N(300))))
		if rnd.IntN(4) == 0 {
			h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(at, 500)}}
			r.do(x, h)
			r.do(y, &block.Request{Op: block.OpPlace, Range: rng(at+3, 500), Ref: h.Ref})
			h.Ref.Release()
		}
		if rnd.IntN(20) == 0 {
			r.a.checkpoint(true)
			r.clock.RunUntil(r.clock.Now() + 1e8)
		}
	}
	refused, ran := 0, 0
	for range 400 {
		clock := &block.Virtual{}
		st := r.store.Clone(clock)
		damage(rnd, st)
		opt := r.opt
		opt.Exec, opt.Store = clock, st
		a, err := Open(opt)
		if err != nil {
			refused++
			continue
		}
		ran++
		for _, v := range a.Volumes() {
			ended := 0
			buf := make([]byte, 1<<20)
			for s := uint64(0); s+2048 <= v.Spec.Sectors && s < 1<<16; s += 2048 {
				v.Submit([]*block.Request{{Op: block.OpRead, Range: rng(s, 2048), Data: [][]byte{buf}, Done: func(*block.Request) { ended++ }}})
				v.Submit([]*block.Request{{Op: block.OpWrite, Range: rng(s, 8), Data: [][]byte{buf[:4096]}, Done: func(*block.Request) { ended++ }}})
			}
			want := 2 * int(min(v.Spec.Sectors, 1<<16)/2048)
			clock.RunUntil(clock.Now() + 60e9)
			if ended != want {
				t.Fatalf("%d of %d commands ended", ended, want)
			}
		}
		a.Check(true)
	}
	t.Logf("%d damaged images were refused, %d ran", refused, ran)
	if refused == 0 || ran == 0 {
		t.Error("the damage is all of one kind")
	}
}

// damage flips a few bytes somewhere.
func damage(rnd *rand.Rand, st *store.Memory) {
	region := st.NVRAM()
	meta, _ := st.Meta()
	var keys [][]byte
	var values [][]byte
	meta.Load(nil, func(k, v []byte) error {
		keys = append(keys, append([]byte(nil), k...))
		values = append(values, append([]byte(nil), v...))
		return nil
	})
	flip := func(b []byte) {
		if len(b) > 0 {
			b[rnd.IntN(len(b))] ^= byte(1 << rnd.IntN(8))
		}
	}
	for range 1 + rnd.IntN(3) {
		switch i := rnd.IntN(len(keys)); rnd.IntN(6) {
		case 0:
			flip(region)
		case 1:
			flip(region[nvlog.Layout{Rows: rigRows}.Region().Size():][:200*64])
		case 2:
			flip(region[:nvlog.Layout{Rows: 40}.Region().Size()])
		case 3:
			meta.CommitNow([]block.KV{{Key: keys[i]}})
		case 4:
			values[i] = values[i][:rnd.IntN(len(values[i])+1)]
			meta.CommitNow([]block.KV{{Key: keys[i], Value: values[i]}})
		default:
			flip(values[i])
			meta.CommitNow([]block.KV{{Key: keys[i], Value: values[i]}})
		}
	}
}

// TestDeathWhileAPageIsFilled: a descriptor that was half written when the process died
// is not damage; the same bytes in a page that counts are.
func TestDeathWhileAPageIsFilled(t *testing.T) {
	for name, row := range map[string]struct {
		tear func(a *Array, d nvlog.Descriptor)
		bad  int
	}{
		"checksums of the sectors": {func(_ *Array, d nvlog.Descriptor) { d.SetSum(0, 1); d.SetSum(3, 2) }, 0},
		"a new sequence number":    {func(a *Array, d nvlog.Descriptor) { le.PutUint64(d, a.log.Seq()+1); d.SetSum(0, 1) }, 0},
		"all but the last word":    {func(a *Array, d nvlog.Descriptor) { d.Seal(a.log.Seq()+1, 7, 1, 3, 0); d[60] ^= 0xFF }, 0},
		"a page that counts":       {func(_ *Array, d nvlog.Descriptor) { d[21] = 0; d.SetSum(0, 1); d.SetSum(3, 2) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{}, false)
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 16<<20, true)
			mustOK(t, r.do(v, write(0, 64)))
			r.a.Drain(func() {})
			r.clock.Run()
			mustOK(t, r.do(v, write(64, 8)))
			free := -1
			for i := range r.a.cache.Pages() {
				if d := r.a.cache.NV.Descriptor(uint32(i)); d.Seq() != 0 && d.Retired() {
					free = i
				}
			}
			if free < 0 {
				t.Fatal("no page was retired")
			}
			row.tear(r.a, r.a.cache.NV.Descriptor(uint32(free)))
			r.crash()
			if got := r.a.recovery.BadPages; got != row.bad {
				t.Errorf("%d descriptors count as damaged, want %d", got, row.bad)
			}
		})
	}
}

// TestFlippedNumberOfADirtyPage: a flipped bit in the number of a descriptor's record is repaired, also where it makes the
// number one that no record has had.
func TestFlippedNumberOfADirtyPage(t *testing.T) {
	for bit := range 64 {
		r := newRig(t, Options{}, false)
		r.pool("p", PoolSpec{}, 64<<20)
		v := r.volume("v", "p", 16<<20, true)
		data := bytes.Repeat([]byte{0xab}, 4096)
		mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(0, 8), Data: [][]byte{data}}))
		i := r.a.cache.Lookup(layout.KeyOf(0, physOf(t, v, 0)))
		r.a.cache.NV.Descriptor(i)[bit/8] ^= 1 << (bit % 8)
		r.crash()
		got := make([]byte, 4096)
		mustOK(t, r.do(r.a.Volume("v"), &block.Request{Op: block.OpRead, Range: rng(0, 8), Data: [][]byte{got}}))
		if !bytes.Equal(got, data) {
			t.Errorf("bit %d: what was acknowledged is lost: it reads %x...", bit, got[:4])
		}
	}
}

// What a deleted pool has left in NVRAM is no damage.
func TestPagesOfDeletedPool(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("keep", PoolSpec{}, 64<<20)
	p := r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	for i := range uint64(20) {
		mustOK(t, r.do(v, write(i*8, 8)))
	}
	failed := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	r.a.Drain(func() {})
	r.clock.Run()
	r.a.DeleteVolume(v, failed)
	r.clock.Run()
	r.a.DeletePool(p, failed)
	r.clock.Run()
	if r.a.Pool("p") != nil {
		t.Fatal("the pool is still there")
	}
	r.crash()
	if n := r.a.recovery.BadPages; n != 0 {
		t.Errorf("%d pages count as damaged", n)
	}
	r.check()
}
