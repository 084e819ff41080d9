package extent

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// testCheckpoint writes what a Checkpoint yields to a store, in batches that are durable one after
// the other.
type testCheckpoint struct {
	store   map[string][]byte
	mark    int // edits of the log before the position that the store has
	next    int // of the checkpoint that runs
	running bool
	sealed  bool
	batch   []block.KV
	count   int  // checkpoints that were sealed
	sure    bool // the store has the account
	over    bool // it has one with references that no page has
	lacks   bool // it lacks entries of pages
}

func (c *testCheckpoint) put(key, value []byte) {
	c.batch = append(c.batch, block.KV{Key: key, Value: value})
}

// commit makes a batch durable.
func (c *testCheckpoint) commit() {
	for _, e := range c.batch {
		if e.Value == nil {
			delete(c.store, string(e.Key))
		} else {
			c.store[string(e.Key)] = e.Value
		}
	}
	c.batch = nil
}

// step goes on with a checkpoint, or begins one: it looks at so many nodes, and makes batches
// durable that have so many entries.
func (r *rig) step(nodes, limit int) {
	c, ck := &r.ckpt, r.arena.Checkpoint()
	if !c.running {
		c.running, c.sealed, c.batch, c.next = true, false, nil, len(r.edits)
		ck.Begin(c.put)
	}
	for ; nodes > 0 && !c.sealed; nodes-- {
		if len(c.batch) >= limit {
			ck.Account().EndBatch(c.put)
			c.commit()
			ck.Durable()
			r.checkStore()
		} else if !ck.Next() {
			ck.Seal()
			c.sealed = true
			r.removals(limit)
			c.mark = c.next
			c.count++
			r.checkStore()
			return
		}
	}
	if c.sealed {
		r.removals(limit)
	}
}

// removals makes a batch of what there is and of removals durable.
func (r *rig) removals(limit int) {
	c, ck := &r.ckpt, r.arena.Checkpoint()
	for len(c.batch) < limit {
		key := ck.NextRemoval()
		if key == nil {
			break
		}
		c.put(key, nil)
		if node.IsPage(key) {
			c.put(node.EntryKey(key), nil)
		}
	}
	ck.Account().EndBatch(c.put)
	c.commit()
	ck.Durable()
	c.running = ck.MoreRemovals()
	r.checkBook()
}

// finish brings the checkpoint that runs, or a new one, to its end.
func (r *rig) finish() {
	for n := r.ckpt.count; r.ckpt.count == n || r.ckpt.running; {
		r.step(1000, 1000)
	}
}

// checkBook verifies that the book has the references of all leaves that the store has, and no others unless the store says so,
// or that it is not known to be right.
func (r *rig) checkBook() {
	r.t.Helper()
	mark := account.MarkOf(r.ckpt.store[account.Prefix])
	r.ckpt.over = !r.arena.acct.Derived && mark == account.TooMuch
	if r.ckpt.sure = !r.arena.acct.Derived && mark == account.Right; !r.arena.acct.Derived {
		r.ckpt.lacks = false
	}
	if r.next == 0 {
		return
	}
	if !r.arena.acct.Derived {
		r.checkEntries()
	}
	if mark == account.NotKnown {
		return
	}
	want := r.space.NewCounts()
	for key, page := range r.ckpt.store {
		k := node.KeyOf([]byte(key + "               "))
		if key[:1] != KeyNode || k.Level > 0 || !r.arena.acct.Known(k.Vol) {
			continue
		}
		var s node.Slab
		var nd node.Node
		if err := s.Decode(&nd, page); err != nil {
			r.fatalf("leaf %+v: %v", k, err)
		}
		for _, slot := range nd.Slots {
			s.Windows.EachGrain(slot, want.Add)
		}
	}
	for g := range uint64(r.space.Grains()) {
		if got, want := r.arena.acct.Refs(r.known(), g), want.Of(g); got != want && !(r.ckpt.over && got > want) {
			r.fatalf("grain %d: the leaves in the store have %d references, the book %d", g, want, got)
		}
	}
}

// checkEntries verifies that each page has its entry, and no other key has one, and that the account in the store is the
// book.
func (r *rig) checkEntries() {
	r.t.Helper()
	pages, entries := 0, 0
	space := alloc.New(r.extents, alloc.Events{})
	var got account.Account
	got.Open(0, 0, space)
	for key, value := range r.ckpt.store {
		switch key[:1] {
		case KeyNode:
			pages++
		case account.Prefix:
			if key == account.Prefix {
				continue
			}
			if known, err := got.Load([]byte(key), value); err != nil || !known {
				r.fatalf("entry %x of the account: %v", key, err)
			}
		case node.EntryPrefix:
			entries++
			page := r.ckpt.store[KeyNode+key[1:]]
			e, ok := node.DecodeEntry([]byte(key), value)
			if !ok || page == nil {
				r.fatalf("entry %x of a page is %x; the page has %d bytes", key, value, len(page))
			}
			var s node.Slab
			var nd node.Node
			if nd.Level = e.Key.Level; s.Decode(&nd, page) != nil || binary.LittleEndian.Uint32(value) != crc32.Checksum(page, crc32.MakeTable(crc32.Castagnoli)) {
				r.fatalf("page %+v is not as its entry says", e.Key)
			}
			var sums Sums
			for i := 0; nd.Level == 0 && i < node.Fanout; i++ {
				sums.Add(s.Sums(nd.Slots[i], 0))
			}
			if nd.Level == 0 && e.Pool != node.NoPool && window.Absent(sums) != e.Leaf {
				r.fatalf("leaf %+v has %+v, its entry says another thing", e.Key, sums)
			}
		}
	}
	if pages != entries {
		r.fatalf("%d pages have %d entries", pages, entries)
	}
	if !r.ckpt.sure {
		return
	}
	for g := range uint64(space.Grains()) {
		if a, b := got.Refs(0, g), r.arena.acct.Refs(r.known(), g); a != b || space.MapRefs(g) != a {
			r.fatalf("grain %d: the account in the store says %d references, and the space that it makes %d, the book %d", g, a, space.MapRefs(g), b)
		}
	}
}

// known returns a volume that the book knows, be it gone.
func (r *rig) known() (vol uint32) {
	for !r.arena.acct.Known(vol) {
		vol++
	}
	return vol
}

// checkStore verifies that no node leads to one that the store does not have, from the roots of the
// volumes down, and the book.
func (r *rig) checkStore() {
	r.t.Helper()
	r.checkBook()
	for _, v := range r.vols {
		root := r.ckpt.store[string(node.RootKey(v.id))]
		if root == nil {
			continue
		}
		var follow func(s window.Slot, height uint8, index uint64)
		follow = func(s window.Slot, height uint8, index uint64) {
			if s.Kind() != window.KindChild {
				return
			}
			k := node.KeyAt(v.id, height-1, index)
			b := r.ckpt.store[string(k.Bytes())]
			if b == nil {
				r.fatalf("volume %d: the store lacks page %d of level %d, which another one leads to", v.id, index, height-1)
			}
			if height > 1 {
				for i := range node.Fanout {
					follow(window.Slot(binary.LittleEndian.Uint64(b[i*8:])), height-1, index<<node.FanoutBits|uint64(i))
				}
			}
		}
		follow(window.Slot(binary.LittleEndian.Uint64(root)), root[8], 0)
	}
}

// pages implements Pages.
func (c *testCheckpoint) pages(prefix []byte, fn func(key, value []byte) error) error {
	for _, k := range slices.Sorted(maps.Keys(c.store)) {
		if strings.HasPrefix(k, string(prefix)) {
			if err := fn([]byte(k), c.store[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadSure loads the maps of an arena from a store that has the account, as a start does.
func (r *rig) loadSure() error {
	l, a := r.arena.NewLoader(), r.arena.Account()
	a.OpenPool(0, r.space)
	keys := slices.Sorted(maps.Keys(r.ckpt.store))
	for _, k := range keys {
		var err error
		switch k[:1] {
		case account.Prefix:
			if k != account.Prefix {
				_, err = a.Load([]byte(k), r.ckpt.store[k])
			}
		case KeyRoot:
			err = l.AddRoot([]byte(k), r.ckpt.store[k])
		}
		if err != nil {
			return err
		}
	}
	for _, v := range r.vols {
		if err := v.m.TakeRoot(l); err != nil {
			return err
		}
	}
	for _, k := range keys {
		if k[:1] != KeyNode {
			continue
		}
		add, key := l.AddNode, k
		if node.KeyOf([]byte(k)).Level == 0 {
			add, key = l.AddEntry, node.EntryPrefix+k[1:]
		}
		if err := add([]byte(key), r.ckpt.store[key]); err != nil {
			return err
		}
	}
	l.End()
	return nil
}

// loadAll loads the maps of an arena from a store, as a start does that reads all pages.
func loadAll(a *Arena, store map[string][]byte, lacks bool) error {
	l := a.NewLoader()
	l.Derive(lacks, false)
	keys := slices.Sorted(maps.Keys(store))
	for _, k := range keys {
		switch {
		case k[:1] == node.EntryPrefix && lacks:
			l.Missing().Leftover([]byte(k))
		case k[:1] == account.Prefix && k != account.Prefix && !a.acct.Leftover([]byte(k)):
			l.Missing().Remove([]byte(k))
		}
		if k[:1] == KeyRoot {
			if err := l.AddRoot([]byte(k), store[k]); err != nil {
				return err
			}
		}
	}
	for _, m := range a.maps {
		if m == nil {
			continue
		}
		if err := m.TakeRoot(l); err != nil {
			return err
		}
	}
	for _, k := range keys {
		if k[:1] == KeyNode {
			if err := l.AddNode([]byte(k), store[k]); err != nil {
				return err
			}
		}
	}
	l.End()
	return nil
}

// crash forgets everything but the model, the store and the log, and starts from these.
func (r *rig) crash() {
	r.t.Helper()
	r.open()
	r.refs, r.gone = nil, nil
	c := &r.ckpt
	c.running, c.batch = false, nil
	r.arena.StartLoading()
	byID := map[uint32]*volume{}
	for _, v := range r.vols {
		byID[v.id] = v
		r.attach(v)
	}
	load := func() error { return loadAll(r.arena, c.store, c.lacks) }
	if r.mapBytes > 0 && c.sure && r.rnd.IntN(4) > 0 {
		load = r.loadSure
		r.sure++
	}
	if c.over && r.faults && r.rnd.IntN(2) == 0 { // as where a page cannot be read
		load = r.loadSure
		r.arena.acct.Over()
		r.over++
	}
	if err := load(); err != nil {
		r.fatalf("%v", err)
	}
	for _, v := range r.vols {
		v.m.Grow(uint64(len(v.sectors)))
	}
	for _, e := range r.edits[c.mark:] {
		if v := byID[e.vol]; v != nil {
			v.apply(e)
		}
	}
	for r.arena.Collectable() {
		r.arena.Collect(1 << 20)
	}
	if err := r.arena.EndLoading(); err != nil {
		r.fatalf("%v", err)
	}
	for _, v := range r.vols {
		r.count(v.sectors, 1)
	}
	for _, v := range r.vols {
		r.account(v)
	}
	for r.space.Reserved() > 0 && r.arena.CollectNow(r.space) {
	}
	for _, v := range r.vols {
		if err := v.m.FindHomes(c.pages); err != nil {
			r.fatalf("volume %d: %v", v.id, err)
		}
	}
}
