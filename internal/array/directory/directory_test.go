package directory

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// flaky is a meta store whose commits take a while, and may fail, with what they had in the store
// or without it.
type flaky struct {
	block.MetaStore
	clock *block.Virtual
	rnd   *rand.Rand
	fails bool
	lost  int // batches that have failed since one was durable
}

var errFlaky = errors.New("input/output error")

func (f *flaky) Commit(batch []block.KV, done func(error)) {
	f.clock.At(f.clock.Now()+f.rnd.Int64N(100), func() {
		fails := f.fails && f.rnd.IntN(3) == 0
		if !fails || f.rnd.IntN(2) == 0 {
			if err := f.CommitNow(batch); err != nil {
				panic(err)
			}
		}
		if fails {
			f.lost++
			done(errFlaky)
			return
		}
		f.lost = 0
		done(nil)
	})
}

// changes is a directory under random changes, and what those that were durable have made of it.
type changes struct {
	testing.TB
	meta *flaky
	d    *Directory
	rnd  *rand.Rand
	want Objects
	saw  map[string]int
}

// heard is the done of a change: one that is durable counts, another one is taken back. Where that
// fails, too, somebody else may have taken the doubt away before.
func (c *changes) heard(what string, does func(), fails ...func()) func(error) {
	return func(err error) {
		if err == nil {
			c.saw[what]++
			does()
			return
		}
		c.saw["failed"]++
		for _, fn := range fails {
			fn()
		}
		c.d.MustTakeBack(func(again error) {
			if lost := c.meta.lost; (again != nil) != (lost > 1) {
				c.Errorf("%d batches were lost in a row, and it is taken back with %v", lost, again)
			} else if lost == 1 {
				c.saw["settled by another"]++
			}
			if again != nil {
				c.saw["not taken back"]++
				if !errors.Is(Doubtful(err, again), errFlaky) {
					c.Errorf("%v and %v are %v", err, again, Doubtful(err, again))
				}
			}
		})
	}
}

// stray says whether the mdisks of a pool are stray.
func (c *changes) stray(s PoolSpec, is bool) {
	w := &c.want
	if w.Stray = slices.DeleteFunc(w.Stray, func(name string) bool { return slices.Contains(s.Media(), name) }); is {
		w.Stray = append(w.Stray, s.Media()...)
	}
}

func (c *changes) change() {
	d, w, n := c.d, &c.want, c.rnd.IntN(100)
	switch {
	case n < 10:
		s := PoolSpec{Name: fmt.Sprint("p", d.NextPool), Mdisks: []MdiskSpec{{Name: "m", Size: layout.ExtentBytes}}}
		used := d.NumberPool(&s)
		used()
		stray := func() { c.stray(s, true) }
		d.Announce(s, c.heard("pool announced", stray))
		if c.rnd.IntN(4) > 0 {
			d.AddPool(s, c.heard("pool made", func() {
				w.Pools = append(w.Pools, s)
				c.stray(s, false)
			}, stray))
		}
	case n < 12 && len(w.Stray) > 0:
		name := w.Stray[c.rnd.IntN(len(w.Stray))]
		if slices.ContainsFunc(d.Pools, func(s PoolSpec) bool { return s.Media()[0] == name }) { // its deletion is on its way
			break
		}
		c.saw["mdisk gone"]++
		d.Forget([]string{name})
		w.Stray = slices.DeleteFunc(w.Stray, func(s string) bool { return s == name })
	case n < 15 && len(w.Pools) > 0:
		id := w.Pools[c.rnd.IntN(len(w.Pools))].ID
		d.RemovePool(id, c.heard("pool removed", func() {
			for _, s := range w.Pools {
				if s.ID == id {
					c.stray(s, true)
				}
			}
			w.Pools = slices.DeleteFunc(w.Pools, func(s PoolSpec) bool { return s.ID == id })
		}))
	case n < 40:
		s := VolumeSpec{Name: fmt.Sprint("v", d.NextVolume), Sectors: 8, BlockSize: 512}
		d.NumberVolume(&s)
		d.AddVolume(s, c.heard("volume made", func() { w.Volumes = append(w.Volumes, s) }))
	case n < 50 && len(w.Volumes) > 0:
		id := w.Volumes[c.rnd.IntN(len(w.Volumes))].ID
		d.RemoveVolume(id, c.heard("volume removed", func() {
			w.Volumes = slices.DeleteFunc(w.Volumes, func(s VolumeSpec) bool { return s.ID == id })
		}))
	case n < 70 && len(w.Volumes) > 0:
		s := w.Volumes[c.rnd.IntN(len(w.Volumes))]
		s.Sectors = 8 + c.rnd.Uint64N(1000)
		d.SetVolume(s, c.heard("volume resized", func() {
			if i := slices.IndexFunc(w.Volumes, func(x VolumeSpec) bool { return x.ID == s.ID }); i >= 0 {
				w.Volumes[i] = s
			}
		}))
	case n < 80:
		name, value := fmt.Sprint("b", c.rnd.IntN(3)), []byte{byte(c.rnd.IntN(200))}
		if c.rnd.IntN(4) == 0 {
			value = nil
		}
		d.SetBlob(name, value, func(err error) {
			if err != nil {
				c.saw["failed"]++
				return
			}
			c.saw["value set"]++
			if delete(w.Blobs, name); value != nil {
				w.Blobs[name] = value
			}
		})
		if got := d.Blob(name); string(got) != string(value) {
			c.Errorf("%s is %v while it is being set to %v", name, got, value)
		}
	}
}

// TestDirectoryIsWhatWasDurable: of changes that come while others are under way, fail and are
// taken back, those count that were told to be durable, and no others; and that is what the next
// start finds.
func TestDirectoryIsWhatWasDurable(t *testing.T) {
	base, saw := testkit.Seed(t), map[string]int{}
	for seed := base; seed < base+40; seed++ {
		rnd, clock := rand.New(rand.NewPCG(seed, 0)), &block.Virtual{}
		under, err := store.NewMemory(clock, store.MemoryOptions{}).Meta()
		if err != nil {
			t.Fatal(err)
		}
		meta := &flaky{MetaStore: under, clock: clock, rnd: rnd}
		c := &changes{TB: t, meta: meta, rnd: rnd, want: Objects{Blobs: map[string][]byte{}}, saw: saw}
		ledger := metadata.New(meta, clock, metadata.Hooks{Durable: func(uint64) {}, Again: func(e block.KV) []block.KV { return c.d.Again(e) }})
		c.d = New(ledger, true, Hooks{Doubtful: func(string) { saw["doubtful"]++ }, Stepped: func() {}})
		if err := c.d.Load(7); err != nil {
			t.Fatal(err)
		}
		for range 120 {
			meta.fails = rnd.IntN(8) != 0
			c.change()
			clock.RunUntil(clock.Now() + rnd.Int64N(150))
		}
		meta.fails = false
		clock.Run()
		c.d.SetBlob("last", []byte{1}, func(err error) {
			if err != nil {
				t.Errorf("seed %d: the last change: %v", seed, err)
			}
		})
		clock.Run()
		c.want.Blobs["last"] = []byte{1}
		c.want.UUID, c.want.NextVolume, c.want.NextMdisk, c.want.NextPool = 7, c.d.NextVolume, c.d.NextMdisk, c.d.NextPool
		again := New(metadata.New(under, clock, metadata.Hooks{}), true, Hooks{})
		if err := again.Load(9); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := text(t, &c.want); text(t, &c.d.Objects) != want || text(t, &again.Objects) != want {
			t.Fatalf("seed %d: it is\n%s\na start finds\n%s\nwant\n%s", seed, text(t, &c.d.Objects), text(t, &again.Objects), want)
		}
	}
	for _, what := range []string{"pool announced", "pool made", "pool removed", "mdisk gone", "volume made", "volume removed", "volume resized", "value set", "failed", "not taken back", "settled by another", "doubtful"} {
		if saw[what] == 0 {
			t.Errorf("%s: that never came up", what)
		}
	}
}

// text is a document as it is kept, with lists that have nothing as such that are not there.
func text(t *testing.T, o *Objects) string {
	c := *o
	if len(c.Pools) == 0 {
		c.Pools = nil
	}
	if len(c.Volumes) == 0 {
		c.Volumes = nil
	}
	c.Stray = slices.Sorted(slices.Values(c.Stray))
	b, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
