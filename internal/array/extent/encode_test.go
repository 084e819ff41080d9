package extent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

func newRigOf(t *testing.T) *rig { return newTestRig(t, rand.New(rand.NewPCG(1, 2)), t.Name(), 2) }

// TestFormat: what maps look like in the store is what older and newer versions read.
func TestFormat(t *testing.T) {
	r := newRigOf(t)
	v := r.add(70000, false)
	r.do(v, 0, layout.WindowSectors, sector{state: block.Zero})
	g, _ := v.m.Allocate(1)
	r.do(v, layout.WindowSectors, layout.WindowSectors, sector{block.Data, g << layout.WindowShift})
	h, _ := v.m.Allocate(2)
	r.do(v, 2*layout.WindowSectors+3, 70, sector{block.Data, h<<layout.WindowShift + 3})
	r.do(v, 2*layout.WindowSectors+1, 1, sector{state: block.Zero})
	r.do(v, 2*layout.WindowSectors+127, 1, sector{state: block.Anchored})
	r.finish()
	root := append(binary.LittleEndian.AppendUint64(nil, 5), 2)
	if got := r.ckpt.store["r\x00\x00\x00\x00"]; !bytes.Equal(got, root) {
		t.Errorf("the root is %x, not %x", got, root)
	}
	words := func(list ...uint64) (b []byte) {
		for _, w := range list {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	leaf := make([]byte, node.Fanout*8)
	copy(leaf, words(1, g<<layout.WindowShift<<3|3, 4))
	leaf = append(leaf, 1)
	leaf = append(leaf, words(2, 0, 0, 1<<63, h<<layout.WindowShift, 1<<64-8, 1<<9-1)...)
	if got := r.ckpt.store["n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"]; !bytes.Equal(got, leaf) {
		t.Errorf("the leaf is\n%x, not\n%x", got, leaf)
	}
	top := make([]byte, node.Fanout*8)
	top[0] = 5
	if got := r.ckpt.store["n\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"]; !bytes.Equal(got, top) {
		t.Errorf("the page above it is\n%x, not\n%x", got, top)
	}
	entry := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(leaf, crc32.MakeTable(crc32.Castagnoli)))
	entry = append(append(entry, words(1<<51|198<<35|1<<19|129<<3|7)...), 0, 0) // promised, data, anchored, zero; absent; the pool
	if got := r.ckpt.store["l\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"]; !bytes.Equal(got, entry) {
		t.Errorf("the entry of the leaf is %x, not %x", got, entry)
	}
	entry = binary.LittleEndian.AppendUint32(nil, crc32.Checksum(top, crc32.MakeTable(crc32.Castagnoli)))
	if got := r.ckpt.store["l\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"]; !bytes.Equal(got, entry) {
		t.Errorf("the entry of the page above it is %x, not %x", got, entry)
	}
	extent := append(append([]byte{0}, words(1<<g|1<<h)...), 0, 0, 0, 0)
	if got := r.ckpt.store["a\x00\x00\x00\x00\x00\x00"]; !bytes.Equal(got, extent) {
		t.Errorf("the entry of the first extent is %x, not %x", got, extent)
	}
	if len(r.ckpt.store) != 6 {
		t.Errorf("the store has %d entries", len(r.ckpt.store))
	}
}

// load opens a map of 70000 sectors from entries.
func load(store map[string][]byte) (*Map, error) {
	r := rig{extents: []int{1}}
	r.open()
	m := r.arena.NewMap(Config{Space: r.space, Sectors: 70000, Drop: func(uint64, layout.Mask) {}})
	r.arena.StartLoading()
	err := loadAll(r.arena, store, false)
	m.Grow(70000)
	if err == nil {
		err = r.arena.EndLoading()
	}
	return m, err
}

// TestDamagedEntries: damage is named, and what lies behind the space is seen.
func TestDamagedEntries(t *testing.T) {
	leaf := func(slot uint64, rest ...byte) []byte {
		b := append(make([]byte, node.Fanout*8), rest...)
		binary.LittleEndian.PutUint64(b, slot)
		return b
	}
	root := func(slot uint64, levels byte) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, slot), levels)
	}
	const page = "n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, row := range []struct {
		key   string
		value []byte
		root  []byte
		want  string
	}{
		{page, leaf(0), root(5, 1), ""},
		{page, leaf(0), root(3, 1), node.ErrRoot.Error()},
		{page, leaf(0), root(5|1<<8, 1), node.ErrRoot.Error()},
		{page, leaf(0), root(5, 0), node.ErrRoot.Error()},
		{page, leaf(0), root(5, 5), node.ErrRoot.Error()},
		{page, leaf(0), []byte{1}, "the root of a map is damaged"},
		{"n", leaf(0), root(5, 1), "a map page has a damaged key"},
		{page, leaf(0)[:100], root(5, 1), "100 bytes long"},
		{page, leaf(6), root(5, 1), "an entry 0x6 that means nothing"},
		{page, leaf(8 + 1), root(5, 1), "an entry 0x9 that means nothing"},
		{page, leaf(5), root(5, 1), "an entry 0x5 that means nothing"},
		{page, leaf(4), root(5, 1), "is cut off"},
		{page, leaf(4, append([]byte{2}, make([]byte, 32+24)...)...), root(5, 1), "is cut off"},
	} {
		_, err := load(map[string][]byte{row.key: row.value, "r\x00\x00\x00\x00": row.root})
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("entry %x, root %x: %v, not %q", row.key, row.root, err, row.want)
		}
	}
	upper := "n\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"
	if _, err := load(map[string][]byte{upper: leaf(8<<3 | 3), "r\x00\x00\x00\x00": root(5, 2)}); err == nil || errors.Is(err, node.ErrRoot) {
		t.Errorf("data in a page above the leaves: %v", err)
	}
	_, err := load(map[string][]byte{page: leaf(64<<layout.WindowShift<<3 | 3), "r\x00\x00\x00\x00": root(5, 1)})
	if !errors.As(err, &account.Behind{}) {
		t.Errorf("data behind the end of the space: %v", err)
	}
}

// TestFlippedBits: no damage of a value makes it panic.
func TestFlippedBits(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := newTestRig(t, rnd, fmt.Sprintf("-seed %d", seed), 2)
	r.add(70000, false)
	for range 300 {
		v := r.vols[0]
		if g := r.where(v); rnd.IntN(4) > 0 {
			r.write(v, g.Start>>layout.WindowShift, g.Start%layout.WindowSectors, min(g.Count, layout.WindowSectors-g.Start%layout.WindowSectors))
		} else {
			r.do(v, g.Start, g.Count, sector{state: block.Zero})
		}
	}
	for _, at := range []uint64{0, node.Fanout << layout.WindowShift} { // both leaves are there
		r.do(r.vols[0], at, 1, sector{state: block.Zero})
		r.do(r.vols[0], at+1, 1, sector{state: block.Unmapped})
	}
	r.finish()
	if len(r.ckpt.store) < 4 {
		t.Fatalf("-seed %d: the store has %d entries", seed, len(r.ckpt.store))
	}
	for range 300 {
		damaged := map[string][]byte{}
		for _, k := range []string{string(node.RootKey(0)), string(node.KeyAt(0, 1, 0).Bytes()), string(node.LeafKey(0, 0).Bytes()), string(node.LeafKey(0, 1).Bytes())} {
			b := bytes.Clone(r.ckpt.store[k])
			for range rnd.IntN(4) {
				if len(b) > 0 {
					b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
				}
			}
			if rnd.IntN(10) == 0 {
				b = b[:rnd.IntN(len(b)+1)]
			}
			damaged[k] = b
		}
		if m, err := load(damaged); err == nil {
			m.FindHomes(nil)
			m.Entries(70000)
		}
	}
}
