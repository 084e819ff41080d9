package hostcache

import "math/bits"

// table finds slots by key: open addressing with linear probing. An entry is a
// slot number with a tag of the key's hash in the bits above, which spares most
// look-ups of keys that do not match; 0 is an empty entry (slot 0 is a list head).
type table struct {
	entries []uint32
	tagMask uint32
	used    int64
}

// A table is filled to tableNum/tableDen at most: 6.7 bytes a slot.
const tableNum, tableDen = 3, 5

func (t *table) init(slots int64) {
	t.entries = make([]uint32, slots*tableDen/tableNum+2)
	t.used = 0
	t.tagMask = ^uint32(0) << bits.Len32(uint32(slots+numLists))
}

// mix spreads a key's bits over a word. It is a bijection, so different keys
// never share a hash.
func mix(k Key) uint64 {
	h := uint64(k)
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return h
}

// home returns where the entry of a hash would best be.
func (t *table) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(t.entries)))
	return int(hi)
}

// find returns the slot of a key, resident or ghost, or 0.
func (ix *Index) find(k Key) uint32 { return ix.findHash(k, mix(k)) }

func (ix *Index) findHash(k Key, h uint64) uint32 {
	t := &ix.table
	e := t.entries
	i, mask := t.home(h), t.tagMask
	tag := uint32(h) & mask
	for {
		v := e[i]
		if v == 0 {
			return 0
		}
		if v&mask == tag {
			if s := v &^ mask; ix.keys[s] == k {
				return s
			}
		}
		if i++; i == len(e) {
			i = 0
		}
	}
}

// put adds a key that is not in the table, by its hash.
func (ix *Index) put(h uint64, s uint32) {
	t := &ix.table
	if ix.cfg.Sized && (t.used*tableDen >= int64(len(t.entries)-2)*tableNum || s&t.tagMask != 0) {
		ix.rehash(max(2*t.used, 64))
	}
	t.used++
	t.place(h, s)
}

func (t *table) place(h uint64, s uint32) {
	e := t.entries
	i := t.home(h)
	for e[i] != 0 {
		if i++; i == len(e) {
			i = 0
		}
	}
	e[i] = uint32(h)&t.tagMask | s
}

// rehash makes a larger table; the slots in use are those of the old one.
func (ix *Index) rehash(slots int64) {
	old, used := ix.table, ix.table.used
	ix.table.init(slots)
	for _, v := range old.entries {
		if v != 0 {
			s := v &^ old.tagMask
			ix.table.place(mix(ix.keys[s]), s)
		}
	}
	ix.table.used = used
}

// where returns the entry of a slot that is in the table.
func (ix *Index) where(s uint32) int {
	t := &ix.table
	i := t.home(mix(ix.keys[s]))
	for t.entries[i]&^t.tagMask != s {
		if i++; i == len(t.entries) {
			i = 0
		}
	}
	return i
}

// reput moves a key's entry from slot s to slot g.
func (ix *Index) reput(s, g uint32) {
	i := ix.where(s)
	ix.table.entries[i] = ix.table.entries[i]&ix.table.tagMask | g
}

// unput removes the entry of a slot and closes the gap, so that no tombstone
// remains and look-ups stay short for ever.
func (ix *Index) unput(s uint32) {
	t := &ix.table
	e, n := t.entries, len(t.entries)
	gap := ix.where(s)
	for j := gap; ; {
		if j++; j == n {
			j = 0
		}
		v := e[j]
		if v == 0 {
			break
		}
		if !between(gap, t.home(mix(ix.keys[v&^t.tagMask])), j) {
			e[gap] = v
			gap = j
		}
	}
	e[gap] = 0
	t.used--
}

// between tells whether an entry whose home is home and that is at j must stay
// behind the gap: going round from the gap, its home comes first.
func between(gap, home, j int) bool {
	if gap < j {
		return gap < home && home <= j
	}
	return gap < home || home <= j
}
