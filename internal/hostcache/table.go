package hostcache

import "math/bits"

// table finds slots by key: open addressing with linear probing.
//
//	entry   [ bits of the hash | distance | slot ]    0 is empty: slot 0 is a list head
//
// The bits of the hash spare most look-ups the keys that do not match. The distance is how far an entry
// lies behind its home, so that a removal that closes its gap need not fetch the keys of the entries
// behind it: each would be a miss of the processor's caches. It counts from 1; an entry that is too far
// for its bits has all of them set, and its key tells.
type table struct {
	entries  []uint32
	slotMask uint32
	step     uint32 // a distance of 1
	most     uint32 // the greatest distance: so far, or farther
	far      uint32 // that in an entry: all bits of the distance
	hashMask uint32
	used     int64
}

// maxDistanceBits are enough: of entries as many as tableNum and tableDen allow, hardly one in a hundred
// is 14 places or more behind its home.
const maxDistanceBits = 4

// A table is filled to tableNum/tableDen at most: 6.7 bytes a slot.
const tableNum, tableDen = 3, 5

func (t *table) init(slots int64) {
	t.entries = make([]uint32, slots*tableDen/tableNum+2)
	t.used = 0
	t.split(bits.Len32(uint32(slots + numLists)))
}

// split shares the bits of an entry out, so many to the slot. Of the others the distance has a third: a
// hash of a few bits lets look-ups fetch keys in vain, which costs more than what a removal saves.
func (t *table) split(slotBits int) {
	distanceBits := max(1, min((32-slotBits)/3, maxDistanceBits))
	t.slotMask = 1<<slotBits - 1
	t.step = 1 << slotBits
	t.most = 1<<distanceBits - 1
	t.far = t.most * t.step
	t.hashMask = ^(t.slotMask | t.far)
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
	i, mask := t.home(h), t.hashMask
	tag := uint32(h) & mask
	for {
		v := e[i]
		if v == 0 {
			return 0
		}
		if v&mask == tag {
			if s := v & t.slotMask; ix.nodes[s].key == k {
				return s
			}
		}
		if i++; i == len(e) {
			i = 0
		}
	}
}

// distance returns how many places behind its home an entry at i is.
func (ix *Index) distance(v uint32, i int) int {
	t := &ix.table
	if d := v & t.far; d != t.far {
		return int(d/t.step) - 1
	}
	d := i - t.home(mix(ix.nodes[v&t.slotMask].key))
	if d < 0 {
		d += len(t.entries)
	}
	return d
}

// at returns an entry with another distance from its home.
func (t *table) at(v uint32, distance int) uint32 {
	return v&^t.far | min(uint32(distance)+1, t.most)*t.step
}

// put adds a key that is not in the table, by its hash.
func (ix *Index) put(h uint64, s uint32) {
	t := &ix.table
	if ix.cfg.Sized && (t.used*tableDen >= int64(len(t.entries)-2)*tableNum || s&^t.slotMask != 0) {
		ix.rehash(max(2*t.used, 64))
	}
	t.used++
	ix.table.place(h, s)
}

func (t *table) place(h uint64, s uint32) {
	e := t.entries
	i, d := t.home(h), 0
	for e[i] != 0 {
		if i++; i == len(e) {
			i = 0
		}
		d++
	}
	e[i] = t.at(uint32(h)&t.hashMask|s, d)
}

// rehash makes a larger table; the slots in use are those of the old one.
func (ix *Index) rehash(slots int64) {
	old, used := ix.table, ix.table.used
	ix.table.init(slots)
	for _, v := range old.entries {
		if v != 0 {
			s := v & old.slotMask
			ix.table.place(mix(ix.nodes[s].key), s)
		}
	}
	ix.table.used = used
}

// where returns the entry of a slot that is in the table.
func (ix *Index) where(s uint32) int {
	t := &ix.table
	i := t.home(mix(ix.nodes[s].key))
	for t.entries[i]&t.slotMask != s {
		if i++; i == len(t.entries) {
			i = 0
		}
	}
	return i
}

// reput moves a key's entry from slot s to slot g.
func (ix *Index) reput(s, g uint32) {
	i := ix.where(s)
	ix.table.entries[i] = ix.table.entries[i]&^ix.table.slotMask | g
}

// unput removes the entry of a slot and closes the gap, so that no tombstone
// remains and look-ups stay short for ever.
func (ix *Index) unput(s uint32) {
	t := &ix.table
	e := t.entries
	gap, back := ix.where(s), uint32(0) // back is how many places j is behind the gap
	for j := gap; ; {
		back++
		if j++; j == len(e) {
			j = 0
		}
		v := e[j]
		if v == 0 {
			break
		}
		if v&t.far == t.far || back >= t.most { // it may be too far for its bits
			if d := ix.distance(v, j); d >= int(back) {
				e[gap] = t.at(v, d-int(back))
				gap, back = j, 0
			}
			continue
		}
		// An entry moves that lies at least as far behind its home as behind the gap. Nobody can foresee
		// which do, the processor neither: hence without a branch. moves is all ones or 0.
		nearer := back * t.step
		_, moves := bits.Sub32(nearer, v&t.far, 0)
		moves = -moves
		e[gap] = (v - nearer) & moves
		gap ^= (gap ^ j) & int(int32(moves))
		back &^= moves
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
