package hostcache

import (
	"slices"
	"strings"
	"testing"
)

func TestConfigErrors(t *testing.T) {
	for _, row := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no capacity", Config{Policy: "lru"}, "a capacity of 0 is not possible"},
		{"unknown policy", Config{Policy: "mru", Capacity: 1}, `no policy is named "mru"; choose from lru, fifo, clock, sieve, 2q, arc, s3-fifo, lirs, w-tinylfu, lfu, auto`},
		{"block below a page", Config{Policy: "lru", Capacity: 1, BlockSectors: 4}, "4KiB to 1MiB"},
		{"block that is no power of two", Config{Policy: "lru", Capacity: 1, BlockSectors: 24}, "power of two"},
		{"block too large", Config{Policy: "lru", Capacity: 1, BlockSectors: 4096}, "4KiB to 1MiB"},
		{"dirty without sectors", Config{Policy: "lru", Capacity: 1, Dirty: true}, "need a block size"},
		{"objects with sectors", Config{Policy: "lru", Capacity: 1, Sized: true, BlockSectors: 8}, "no sector bitmaps"},
		{"too many", Config{Policy: "lru", Capacity: 1 << 40}, "use larger blocks"},
	} {
		if _, err := New(row.cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		}
	}
}

// device does with an index what a caching device does, at random, beside a
// model that knows every sector.
type device struct {
	t      *testing.T
	ix     *Index
	per    int
	blocks map[Key]*sectors
}

type sectors struct {
	slot         Slot
	busy         bool
	valid, dirty []bool
}

func (d *device) evicted(s Slot, k Key) {
	b := d.blocks[k]
	if b == nil || b.slot != s || b.busy || slices.Contains(b.dirty, true) {
		d.t.Fatalf("%s: slot %d with %x was evicted, the model has %+v", d.ix.Policy(), s, uint64(k), b)
	}
	delete(d.blocks, k)
}

func (d *device) check() {
	d.t.Helper()
	verify(d.t, d.ix)
	if int64(len(d.blocks)) != d.ix.Len() {
		d.t.Fatalf("%s: %d blocks, the model has %d", d.ix.Policy(), d.ix.Len(), len(d.blocks))
	}
	dirty, frames := []Key(nil), map[Slot]bool{}
	for k, b := range d.blocks {
		if got := d.ix.Lookup(k); got != b.slot || d.ix.Key(got) != k || int64(got) >= d.ix.Capacity() || frames[got] {
			d.t.Fatalf("%s: %x is in slot %d, want %d", d.ix.Policy(), uint64(k), got, b.slot)
		}
		frames[b.slot] = true
		for i := range d.per {
			if d.ix.Valid(b.slot, i, 1) != b.valid[i] || d.ix.Dirty(b.slot, i, 1) != b.dirty[i] {
				d.t.Fatalf("%s: sector %d of %x is wrong", d.ix.Policy(), i, uint64(k))
			}
		}
		if slices.Contains(b.dirty, true) {
			dirty = append(dirty, k)
			first := slices.Index(b.dirty, true)
			n := 0
			for first+n < d.per && b.dirty[first+n] {
				n++
			}
			if s, l := d.ix.DirtyRun(b.slot, 0); s != first || l != n {
				d.t.Fatalf("dirty run of %x is %d+%d, want %d+%d", uint64(k), s, l, first, n)
			}
		}
	}
	slices.Sort(dirty)
	i := 0
	d.ix.EachDirty(0, func(s Slot, k Key) bool {
		if i >= len(dirty) || k != dirty[i] || d.blocks[k].slot != s {
			d.t.Fatalf("dirty block %d is %x in slot %d", i, uint64(k), s)
		}
		i++
		return true
	})
	if i != len(dirty) || int64(i) != d.ix.DirtyBlocks() {
		d.t.Fatalf("%d dirty blocks, want %d", i, len(dirty))
	}
}

func TestDeviceOperations(t *testing.T) {
	for _, policy := range Policies() {
		for _, per := range []int{8, 64, 2048} {
			t.Run(policy+"/"+map[int]string{8: "4KiB", 64: "32KiB", 2048: "1MiB"}[per], func(t *testing.T) {
				r := random(t)
				d := &device{t: t, per: per, blocks: map[Key]*sectors{}}
				capacity := int64(1 + r.IntN(60))
				d.ix = mustNew(Config{Policy: policy, Capacity: capacity, BlockSectors: per, Dirty: true, OnEvict: d.evicted})
				for step := range 1500 {
					k := MakeKey(uint16(r.IntN(3)), uint64(float64(100)*r.Float64()*r.Float64()))
					b := d.blocks[k]
					first := r.IntN(per)
					n := 1 + r.IntN(per-first)
					switch op := r.IntN(20); {
					case b == nil:
						s := d.ix.Insert(k)
						if s == None {
							break
						}
						d.blocks[k] = &sectors{slot: s, valid: make([]bool, per), dirty: make([]bool, per)}
					case op < 6: // reference
						d.ix.Touch(b.slot)
					case op < 9:
						d.ix.SetValid(b.slot, first, n)
						fill(b.valid[first:first+n], true)
					case op < 12:
						if d.ix.SetDirty(b.slot, first, n) {
							fill(b.valid[first:first+n], true)
							fill(b.dirty[first:first+n], true)
						} else if slices.Contains(b.dirty, true) || b.busy {
							t.Fatal("a pinned block could not be made dirty")
						}
					case op < 14:
						d.ix.ClearDirty(b.slot, first, n)
						fill(b.dirty[first:first+n], false)
					case op < 15:
						d.ix.ClearValid(b.slot, first, n)
						fill(b.valid[first:first+n], false)
						fill(b.dirty[first:first+n], false)
					case op < 16:
						b.busy = d.ix.Pin(b.slot) || b.busy
					case op < 18:
						d.ix.Unpin(b.slot)
						b.busy = false
					case op == 18:
						d.ix.Drop(b.slot)
						delete(d.blocks, k)
					case r.IntN(10) == 0:
						capacity = int64(1 + r.IntN(80))
						if d.ix.Resize(capacity, func(_, _ Slot) {}) == nil {
							for k, b := range d.blocks {
								b.slot = d.ix.Lookup(k)
							}
						}
					case r.IntN(30) == 0:
						d.ix.DropDisk(k.Disk())
						for k2 := range d.blocks {
							if k2.Disk() == k.Disk() {
								delete(d.blocks, k2)
							}
						}
					}
					if step%50 == 0 {
						d.check()
					}
				}
				d.check()
			})
		}
	}
}

func fill(b []bool, v bool) {
	for i := range b {
		b[i] = v
	}
}

// TestResizeMovesFrames checks that a device which copies data as told finds it
// again, and that what need not move stays.
func TestResizeMovesFrames(t *testing.T) {
	for _, policy := range Policies() {
		r := random(t)
		frames := make([]Key, 100)
		ix := mustNew(Config{Policy: policy, Capacity: 100, BlockSectors: 8})
		for range 1000 {
			k := Key(r.IntN(300))
			if s := ix.Lookup(k); s != None {
				ix.Touch(s)
			} else {
				frames[ix.Insert(k)] = k
			}
		}
		for _, capacity := range []int64{100, 40, 7, 90, 1} {
			was := ix.Len()
			busy := map[Slot]bool{}
			if err := ix.Resize(capacity, func(from, to Slot) {
				if int64(from) < capacity || int64(to) >= capacity || busy[to] {
					t.Fatalf("%s to %d: block moves from %d to %d", policy, capacity, from, to)
				}
				busy[to] = true
				frames[to] = frames[from]
			}); err != nil {
				t.Fatal(err)
			}
			verify(t, ix)
			if got := ix.Len(); got != min(was, capacity) {
				t.Errorf("%s to %d: %d blocks, had %d", policy, capacity, got, was)
			}
			for s := uint32(numLists); s < ix.frames.end; s++ {
				if ix.meta[s]&stateMask != stateFree && frames[s-numLists] != ix.nodes[s].key {
					t.Fatalf("%s to %d: slot %d should hold %d, holds %d", policy, capacity, s-numLists, ix.nodes[s].key, frames[s-numLists])
				}
			}
		}
		if err := ix.Resize(10, nil); err != nil {
			t.Fatal(err)
		}
		for k := range Key(5) {
			if s := ix.Insert(2000 + k); s != None && !ix.Pin(s) {
				t.Fatalf("%s: block %d of 10 cannot be pinned", policy, k)
			}
		}
		if err := ix.Resize(3, nil); err == nil || !strings.Contains(err.Error(), "destage first") {
			t.Errorf("%s: shrinking below what is pinned: %v", policy, err)
		}
		verify(t, ix)
	}
}

func TestPinsAreBounded(t *testing.T) {
	for _, policy := range Policies() {
		ix := mustNew(Config{Policy: policy, Capacity: 16, BlockSectors: 8, Dirty: true})
		refused := 0
		for k := range Key(100) {
			s := ix.Insert(k)
			if s == None {
				t.Fatalf("%s: no room for block %d with %d of 16 pinned", policy, k, ix.Pinned())
			}
			if !ix.SetDirty(s, 0, 8) {
				refused++
			}
		}
		if ix.Pinned() != 14 || refused != 86 {
			t.Errorf("%s: %d pinned, %d refused; want 14 and 86", policy, ix.Pinned(), refused)
		}
		ix = mustNew(Config{Policy: policy, Capacity: 4, MaxPinned: 4})
		for k := range Key(4) {
			ix.Pin(ix.Insert(k))
		}
		if s := ix.Insert(9); s != None || ix.Stats().Refused != 1 {
			t.Errorf("%s: a block was inserted where all are pinned", policy)
		}
		ix.Unpin(ix.Lookup(2))
		if s := ix.Insert(9); s == None || ix.Lookup(2) != None {
			t.Errorf("%s: the only block that was not pinned did not leave", policy)
		}
		verify(t, ix)
	}
}

// TestNothingIsAllocated: what a device does for every command.
func TestNothingIsAllocated(t *testing.T) {
	for _, policy := range Policies() {
		ix := mustNew(Config{Policy: policy, Capacity: 1000, BlockSectors: 8})
		r := random(t)
		refs := workload(r, 50000, 5000)
		for _, k := range refs {
			ix.Access(k, 0)
		}
		i := 0
		if n := testing.AllocsPerRun(20000, func() { ix.Access(refs[i], 0); i++ }); n != 0 {
			t.Errorf("%s: %g allocations a reference", policy, n)
		}
	}
}

func TestMemoryASlot(t *testing.T) {
	for _, policy := range Policies() {
		ix := mustNew(Config{Policy: policy, Capacity: 100_000, BlockSectors: 8, Dirty: true})
		m := ix.Memory()
		if per := float64(m.SlotBytes) / float64(m.Slots); per > 24 {
			t.Errorf("%s: %.2f bytes a slot, at most 24", policy, per)
		}
		if m.BitmapBytes != 200_000 {
			t.Errorf("%s: bitmaps of %d bytes, want two bits a sector", policy, m.BitmapBytes)
		}
		t.Logf("%-9s %.2f bytes a slot, %.2f slots a block, bitmaps %d and policy %.2f bytes a block", policy, float64(m.SlotBytes)/float64(m.Slots),
			float64(m.Slots)/1e5, m.BitmapBytes/100_000, float64(m.PolicyBytes)/1e5)
	}
}
