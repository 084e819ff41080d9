package hostcache

import "github.com/tidwall/btree"

// dirtySet orders the blocks that have dirty sectors by disk and address: about
// 12 bytes each.
type dirtySet struct {
	keys    btree.Set[Key]
	sectors int64
	disks   map[uint16]int64 // dirty sectors
}

func (d *dirtySet) add(k Key, sectors int64) {
	d.sectors += sectors
	if d.disks == nil {
		d.disks = make(map[uint16]int64)
	}
	d.disks[k.Disk()] += sectors
}

// SetDirty says that sectors of a block were written and are not below yet: they
// are valid and dirty, and pin the block. It reports false, and changes nothing,
// if the block is not pinned and too many others are: the caller then writes through.
func (ix *Index) SetDirty(s Slot, first, n int) bool {
	at := ix.bits(s, first, n)
	t := ix.slot(s)
	if n == 0 {
		return true
	}
	was := ix.meta[t]&pinDirty != 0
	if !was && !ix.pin(t, pinDirty) {
		return false
	}
	k := ix.nodes[t].key
	if !was {
		ix.dirty.keys.Insert(k)
	}
	ix.dirty.add(k, int64(n-countBits(ix.bitmaps.dirty, at, n)))
	setBits(ix.bitmaps.dirty, at, n, true)
	setBits(ix.bitmaps.valid, at, n, true)
	return true
}

// ClearDirty says that sectors of a block are below now, or superseded. A block
// without dirty sectors may be evicted again, unless it is pinned.
func (ix *Index) ClearDirty(s Slot, first, n int) {
	at := ix.bits(s, first, n)
	t := ix.slot(s)
	if ix.meta[t]&pinDirty == 0 {
		return
	}
	k := ix.nodes[t].key
	ix.dirty.add(k, -int64(countBits(ix.bitmaps.dirty, at, n)))
	setBits(ix.bitmaps.dirty, at, n, false)
	if per := ix.bitmaps.per; noBits(ix.bitmaps.dirty, int(s)*per, per) {
		ix.dirty.keys.Delete(k)
		ix.unpin(t, pinDirty)
	}
}

// Dirty tells whether any of the sectors is dirty.
func (ix *Index) Dirty(s Slot, first, n int) bool {
	return ix.bitmaps.dirty != nil && !noBits(ix.bitmaps.dirty, ix.bits(s, first, n), n)
}

// DirtyRun returns the first run of dirty sectors from sector first on; a length
// of 0 is none. A destage writes runs.
func (ix *Index) DirtyRun(s Slot, first int) (start, length int) {
	n := ix.bitmaps.per - first
	start, length = run(ix.bitmaps.dirty, ix.bits(s, first, n), n)
	return first + start, length
}

// DirtyBlocks returns the number of blocks with dirty sectors.
func (ix *Index) DirtyBlocks() int64 { return int64(ix.dirty.keys.Len()) }

// DirtySectors returns the number of dirty sectors of all disks.
func (ix *Index) DirtySectors() int64 { return ix.dirty.sectors }

// DirtySectorsOf returns the number of dirty sectors of a disk.
func (ix *Index) DirtySectorsOf(disk uint16) int64 { return ix.dirty.disks[disk] }

// EachDirty calls fn with the dirty blocks from a key on in the order of their
// disks and addresses, until it returns false. fn must not make blocks dirty or
// clean; a destager collects a batch and goes on behind its last key, which is
// an elevator.
func (ix *Index) EachDirty(from Key, fn func(Slot, Key) bool) {
	ix.dirty.keys.Ascend(from, func(k Key) bool { return fn(ix.Lookup(k), k) })
}

// dropDirty forgets the dirty sectors of a block that leaves the index.
func (ix *Index) dropDirty(s uint32) {
	at, per := int(s-numLists)*ix.bitmaps.per, ix.bitmaps.per
	k := ix.nodes[s].key
	ix.dirty.keys.Delete(k)
	ix.dirty.add(k, -int64(countBits(ix.bitmaps.dirty, at, per)))
}
