package array

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// bench is an array in virtual time with what a test needs around it.
type rig struct {
	t     testing.TB
	clock *block.Virtual
	store *store.Memory
	opt   Options
	a     *Array
}

// rigRows are the counters that a rig has room for, 256 KiB: NVRAM is copied, compared and scanned with each start.
const rigRows = 4096

func newRig(t testing.TB, opt Options, discard bool) *rig {
	r := &rig{t: t, clock: &block.Virtual{}, opt: opt}
	r.store = store.NewMemory(r.clock, store.MemoryOptions{Discard: discard})
	r.open()
	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.opt.Exec, r.opt.Store = r.clock, r.store
	if r.opt.CacheBytes == 0 {
		r.opt.CacheBytes = 4 << 20
	}
	if r.opt.CounterRows == 0 {
		r.opt.CounterRows = rigRows
	}
	a, err := Open(r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.a = a
}

// crash replaces the array by one that recovers from what its store has, as after
// the death of the process.
func (r *rig) crash() {
	r.t.Helper()
	r.clock = &block.Virtual{}
	r.store = r.store.Reopen(r.clock)
	r.open()
}

func (r *rig) pool(name string, spec PoolSpec, size uint64) *Pool {
	r.t.Helper()
	spec.Name = name
	if spec.Mdisks == nil {
		spec.Mdisks = []MdiskSpec{{Name: "d0", Size: size / 2}, {Name: "d1", Size: size / 2}}
	}
	var pool *Pool
	r.a.CreatePool(spec, func(p *Pool, err error) {
		if err != nil {
			r.t.Fatal(err)
		}
		pool = p
	})
	r.clock.Run()
	return pool
}

func (r *rig) volume(name, pool string, bytes uint64, thin bool) *Volume {
	r.t.Helper()
	var vol *Volume
	r.a.CreateVolume(VolumeSpec{Name: name, Pool: pool, Sectors: bytes / 512, Thin: thin}, func(v *Volume, err error) {
		if err != nil {
			r.t.Fatal(err)
		}
		vol = v
	})
	r.clock.Run()
	return vol
}

// do runs one request to its end.
func (r *rig) do(v *Volume, q *block.Request) block.Status {
	r.t.Helper()
	done := false
	q.Done = func(*block.Request) { done = true }
	v.Submit([]*block.Request{q})
	for !done {
		if !r.clock.Step() {
			r.t.Fatalf("%s %v never ended", q.Op, q.Range)
		}
	}
	return q.Status
}

func (r *rig) check() {
	r.t.Helper()
	for _, p := range r.a.Check(true).Problems {
		r.t.Errorf("check: %s", p)
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
}

func rng(start, count uint64) block.Range { return block.Range{Start: start, Count: count} }

func TestWriteReadZeroCopy(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	w := r.volume("w", "p", 16<<20, true)
	data := bytes.Repeat([]byte("0123456789abcdef"), 512*100/16)
	if s := r.do(v, &block.Request{Op: block.OpWrite, Range: rng(3, 100), Data: [][]byte{data}}); s != block.OK {
		t.Fatal(s)
	}
	got := make([]byte, 512*110)
	r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 110), Data: [][]byte{got}})
	want := append(append(make([]byte, 3*512), data...), make([]byte, 7*512)...)
	if !bytes.Equal(got, want) {
		t.Fatal("read back differs")
	}
	h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, 110)}}
	r.do(v, h)
	r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 16<<20/512)})
	if n := entriesOf(v); n != 1 {
		t.Errorf("a zeroed volume has %d entries", n)
	}
	r.do(w, &block.Request{Op: block.OpPlace, Range: rng(7, 110), Ref: h.Ref, Origin: block.OriginXCopy})
	h.Ref.Release()
	r.do(w, &block.Request{Op: block.OpRead, Range: rng(7, 110), Data: [][]byte{got}})
	if !bytes.Equal(got, want) {
		t.Fatal("the copy differs")
	}
	r.check()
	r.clock.Run()
	r.check()
	if d := r.a.Dirty(); d != 0 {
		t.Errorf("%d bytes are dirty after a rest", d)
	}
	r.do(w, &block.Request{Op: block.OpRead, Range: rng(7, 110), Data: [][]byte{got}})
	if !bytes.Equal(got, want) {
		t.Fatal("the copy differs after destage")
	}
	r.crash()
	r.check()
	w = r.a.Volume("w")
	r.do(w, &block.Request{Op: block.OpRead, Range: rng(7, 110), Data: [][]byte{got}})
	if !bytes.Equal(got, want) {
		t.Fatal("the copy differs after a restart")
	}
}

// model is the naive truth about a volume: a stamp and a state a sector.
type model struct {
	stamp []uint64
	state []block.State
}

// TestRandomAgainstModel runs random commands, with crashes, over every copy mode
// and tight caches, and compares contents and states with a naive model.
func TestRandomAgainstModel(t *testing.T) {
	for _, copyData := range []bool{false, true} {
		for _, cache := range []int64{1 << 20, 8 << 20} {
			t.Run(fmt.Sprintf("copyData=%v/cache=%dMiB", copyData, cache>>20), func(t *testing.T) {
				randomProgram(t, copyData, cache, testkit.Seed(t))
			})
		}
	}
}

func randomProgram(t *testing.T, copyData bool, cache int64, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t, Options{CacheBytes: cache, LogBytes: 64 << 10}, false)
	r.pool("a", PoolSpec{CopyData: copyData}, 64<<20)
	r.pool("b", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 32 << 20, Bandwidth: 50 << 20, IOPS: 5000}}}, 0)
	names := []string{"v0", "v1", "v2"}
	sectors := []uint64{20000, 9000, 12345}
	vols := []*Volume{r.volume("v0", "a", sectors[0]*512, true), r.volume("v1", "a", sectors[1]*512, false), r.volume("v2", "b", sectors[2]*512, true)}
	models := make([]*model, len(vols))
	for i := range models {
		models[i] = &model{make([]uint64, sectors[i]), make([]block.State, sectors[i])}
	}
	stamp := uint64(0)
	span := func(i int, limit uint64) block.Range {
		n := 1 + rnd.Uint64N(limit)
		if rnd.IntN(3) == 0 {
			n = (n + 127) &^ 127
		}
		n = min(n, sectors[i])
		s := rnd.Uint64N(sectors[i] - n + 1)
		if rnd.IntN(3) == 0 {
			s &^= 127
		}
		return rng(s, n)
	}
	for step := 0; step < 1500; step++ {
		i := rnd.IntN(len(vols))
		v, m := vols[i], models[i]
		switch k := rnd.IntN(100); {
		case k < 35:
			g := span(i, 600)
			stamp++
			buf := make([]byte, g.Bytes())
			for s := range g.Count {
				fillStamp(buf[s*512:(s+1)*512], stamp<<20|s)
				m.stamp[g.Start+s], m.state[g.Start+s] = stamp<<20|s, block.Data
			}
			cut := rnd.IntN(len(buf) + 1)
			mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: g, Data: [][]byte{buf[:cut], buf[cut:]}}))
		case k < 45:
			g := span(i, 4000)
			flags, st := block.Flags(0), block.Zero
			if rnd.IntN(2) == 0 {
				flags, st = block.Deallocate, v.DeallocState(false)
			}
			for s := range g.Count {
				m.stamp[g.Start+s], m.state[g.Start+s] = 0, st
			}
			mustOK(t, r.do(v, &block.Request{Op: block.OpWriteSame, Range: g, Flags: flags}))
		case k < 52:
			gs := []block.Range{span(i, 500), span(i, 300)}
			for _, g := range gs {
				for s := range g.Count {
					m.stamp[g.Start+s], m.state[g.Start+s] = 0, v.DeallocState(false)
				}
			}
			mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: gs}))
		case k < 72:
			j := rnd.IntN(len(vols))
			src := span(j, 3000)
			if src.Count > sectors[i] {
				src.Count = sectors[i]
			}
			to := rnd.Uint64N(sectors[i] - src.Count + 1)
			if rnd.IntN(2) == 0 {
				to = min(to&^127+src.Start&127, sectors[i]-src.Count)
			}
			h := &block.Request{Op: block.OpHold, Ranges: []block.Range{src}}
			mustOK(t, r.do(vols[j], h))
			st := append([]uint64(nil), models[j].stamp[src.Start:src.End()]...)
			ss := append([]block.State(nil), models[j].state[src.Start:src.End()]...)
			mustOK(t, r.do(v, &block.Request{Op: block.OpPlace, Range: rng(to, src.Count), Ref: h.Ref, Origin: block.OriginXCopy}))
			h.Ref.Release()
			copy(m.stamp[to:], st)
			for s := range ss {
				m.state[to+uint64(s)] = v.CopyState(ss[s])
			}
		case k < 76:
			g := span(i, 16)
			was, now := make([]byte, g.Bytes()), make([]byte, g.Bytes())
			stamp++
			for s := range g.Count {
				fillStamp(was[s*512:(s+1)*512], m.stamp[g.Start+s])
				fillStamp(now[s*512:(s+1)*512], stamp<<20|s)
			}
			miss := rnd.IntN(2) == 0
			if miss {
				was[g.Bytes()-1] ^= 1
			}
			q := &block.Request{Op: block.OpCompareWrite, Range: g, Compare: [][]byte{was}, Data: [][]byte{now}, Origin: block.OriginCAW}
			s := r.do(v, q)
			if miss {
				if s != block.Miscompare || q.Offset != g.Bytes()-1 {
					t.Fatalf("step %d: miscompare gave %v at %d", step, s, q.Offset)
				}
				continue
			}
			mustOK(t, s)
			for s := range g.Count {
				m.stamp[g.Start+s], m.state[g.Start+s] = stamp<<20|s, block.Data
			}
		case k < 88:
			g := span(i, 2000)
			buf := make([]byte, g.Bytes())
			fillStamp(buf, 0xcccccccccccccccc)
			mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: g, Data: [][]byte{buf}}))
			verify(t, step, m, g, buf)
		case k < 91:
			g := span(i, 1)
			q := &block.Request{Op: block.OpStatus, Range: rng(g.Start, 0), Extents: make([]block.Extent, 0, 20)}
			mustOK(t, r.do(v, q))
			at := g.Start
			for _, x := range q.Extents {
				if x.Start != at {
					t.Fatalf("step %d: an extent begins at %d, not %d", step, x.Start, at)
				}
				for s := x.Start; s < x.End(); s++ {
					if m.state[s] != x.State {
						t.Fatalf("step %d: sector %d of %s is %v, the model says %v", step, s, v.Name(), x.State, m.state[s])
					}
				}
				at = x.End()
			}
		case k < 94:
			r.clock.RunUntil(r.clock.Now() + int64(rnd.IntN(3e9)))
		case k < 96:
			r.crash()
			for n, name := range names {
				vols[n] = r.a.Volume(name)
			}
			r.check()
		default:
			r.check()
		}
	}
	r.clock.Run()
	r.check()
	for i, v := range vols {
		buf := make([]byte, sectors[i]*512)
		mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, sectors[i]), Data: [][]byte{buf}}))
		verify(t, -1, models[i], rng(0, sectors[i]), buf)
	}
}

func mustOK(t testing.TB, s block.Status) {
	t.Helper()
	if s != block.OK {
		t.Fatalf("status %v", s)
	}
}

func fillStamp(b []byte, stamp uint64) {
	le.PutUint64(b, stamp)
	for n := 8; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func verify(t *testing.T, step int, m *model, g block.Range, buf []byte) {
	t.Helper()
	want := make([]byte, 512)
	for s := range g.Count {
		fillStamp(want, m.stamp[g.Start+s])
		if got := buf[s*512 : (s+1)*512]; !bytes.Equal(got, want) {
			t.Fatalf("step %d: sector %d holds stamp %x, the model says %x (state %v)", step, g.Start+s, le.Uint64(got), m.stamp[g.Start+s], m.state[g.Start+s])
		}
	}
}
