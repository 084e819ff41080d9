package hostcache

import (
	"encoding/binary"
	"math/bits"
)

// table finds slots by key: buckets of a cache line each, which are searched by all their tags at once,
// as in Facebook's F14. A key whose home is full goes to the next
// bucket that has room, and the full ones on its way count it, by its class: a look-up ends at the first
// bucket that counts nothing of its class. Nearly all end at their home, and no branch depends on where
// in it a key lies.
type table struct {
	buckets []bucket
	used    int64
}

// bucketPlaces is how many slots fit in a line beside their tags.
const bucketPlaces = 12

// bucketBytes is the size of a bucket.
const bucketBytes = 64

// bucket is a line of the processor's cache.
type bucket struct {
	tags  [bucketPlaces]uint8  // 8 bits of a slot's hash, never 0; 0 is an empty place
	over  [classes]uint8       // slots that are behind this bucket because it was full, by class; see overMax
	slots [bucketPlaces]uint32 // 0 if empty: slot 0 is a list head
}

// classes are those of hashes: with as many, few look-ups go on behind a bucket in vain.
const classes = 4

// overMax is a count that stays, since there may be more: look-ups go on, and find no less.
const overMax = 1<<8 - 1

// A table is filled to tableNum/tableDen at most: 6.9 bytes a slot. Emptier ones are faster, since more
// keys are at home, which the processor cannot foresee.
const tableNum, tableDen = 10, 13

func (t *table) init(slots int64) {
	t.buckets = make([]bucket, slots*tableDen/(tableNum*bucketPlaces)+1)
	t.used = 0
}

// hash spreads a key's bits over a word: both halves of a product (wyhash's step). Keys may share a hash.
func hash(k Key) uint64 {
	hi, lo := bits.Mul64(uint64(k)^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// tag returns the bits of a hash that a bucket keeps.
func tag(h uint64) uint8 { return uint8(uint32(h)&0xffff*255>>16) + 1 }

// class returns which count of a bucket a hash is in.
func class(h uint64) int { return int(h >> 16 % classes) }

// home returns the bucket where a hash would best be.
func (t *table) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(t.buckets)))
	return int(hi)
}

// after returns the bucket behind one.
func (t *table) after(i int) int {
	if i++; i < len(t.buckets) {
		return i
	}
	return 0
}

// matches has a bit for every place of a tag, which place tells. Its lowest bit is such a place for
// certain; above that there may be others.
func (b *bucket) matches(tag uint8) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	all := uint64(tag) * ones
	x := binary.LittleEndian.Uint64(b.tags[:8]) ^ all
	y := binary.LittleEndian.Uint32(b.tags[8:]) ^ uint32(all)
	x = (x - ones) &^ x & tops // of a byte that is 0, the top bit
	y = (y - ones&0xffffffff) &^ y & (tops & 0xffffffff)
	return x>>7 | uint64(y)>>3
}

// place returns the place of the lowest bit of matches, which are not 0.
func place(matches uint64) int {
	n := bits.TrailingZeros64(matches)
	return n>>3 + n&4<<1
}

// lastPlace is the last place among matches.
const lastPlace = 1 << (8*3 + 4)

// find returns the slot of a key, resident or ghost, or 0.
func (ix *Index) find(k Key) uint32 { return ix.findHash(k, hash(k)) }

func (ix *Index) findHash(k Key, h uint64) uint32 {
	t := &ix.table
	for i, n := t.home(h), 0; n < len(t.buckets); i, n = t.after(i), n+1 {
		b := &t.buckets[i]
		for m := b.matches(tag(h)); m != 0; m &= m - 1 {
			if s := b.slots[place(m)]; ix.nodes[s].key == k {
				return s
			}
		}
		if b.over[class(h)] == 0 {
			return 0
		}
	}
	return 0
}

// put adds a key that is not in the table, by its hash.
func (ix *Index) put(h uint64, s uint32) {
	t := &ix.table
	if ix.cfg.Sized && t.used*tableDen >= int64(len(t.buckets))*bucketPlaces*tableNum {
		ix.rehash(max(2*t.used, 64))
	}
	t.used++
	t.place(h, s)
}

func (t *table) place(h uint64, s uint32) {
	for i := t.home(h); ; i = t.after(i) {
		b := &t.buckets[i]
		if m := b.matches(0); m != 0 {
			n := place(m)
			b.tags[n], b.slots[n] = tag(h), s
			return
		}
		if over := &b.over[class(h)]; *over < overMax {
			*over++
		}
	}
}

// rehash makes a larger table; the slots in use are those of the old one.
func (ix *Index) rehash(slots int64) {
	old, used := ix.table.buckets, ix.table.used
	ix.table.init(slots)
	for i := range old {
		for n, s := range old[i].slots {
			if old[i].tags[n] != 0 {
				ix.table.place(hash(ix.nodes[s].key), s)
			}
		}
	}
	ix.table.used = used
}

// where returns the bucket of a slot that is in the table and whose hash is h, and the place in it.
func (ix *Index) where(s uint32, h uint64) (i, n int) {
	t := &ix.table
	for i = t.home(h); ; i = t.after(i) {
		b := &t.buckets[i]
		for m := b.matches(tag(h)); m != 0; m &= m - 1 {
			if n = place(m); b.slots[n] == s {
				return i, n
			}
		}
	}
}

// reput moves a key's entry from slot s to slot g.
func (ix *Index) reput(s, g uint32) {
	i, n := ix.where(s, hash(ix.nodes[s].key))
	ix.table.buckets[i].slots[n] = g
}

// unput removes the entry of a slot. No tombstone remains, so look-ups stay short for ever.
func (ix *Index) unput(s uint32) {
	t := &ix.table
	h := hash(ix.nodes[s].key)
	i, n := ix.where(s, h)
	b := &t.buckets[i]
	b.tags[n], b.slots[n] = 0, 0
	for at := t.home(h); at != i; at = t.after(at) {
		if over := &t.buckets[at].over[class(h)]; *over < overMax {
			*over--
		}
	}
	t.used--
}

// mix spreads a key's bits over a word, for samples and sketches. It is a bijection, so different keys
// never share a result.
func mix(k Key) uint64 {
	h := uint64(k)
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return h
}
