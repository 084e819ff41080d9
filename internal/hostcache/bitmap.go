package hostcache

import "math/bits"

// bitmaps hold, for every frame, a bit a sector for validity and dirtiness.
type bitmaps struct {
	per          int // sectors a block; 0 is no bitmaps
	valid, dirty []uint64
}

func (b *bitmaps) layOut(cfg *Config, blocks int64) {
	b.per = cfg.BlockSectors
	if b.per == 0 {
		return
	}
	words := (blocks*int64(b.per) + 63) / 64
	b.valid = make([]uint64, words)
	if cfg.Dirty {
		b.dirty = make([]uint64, words)
	}
}

// clear makes no sector of a frame valid or dirty.
func (b *bitmaps) clear(frame uint32) {
	if b.per == 0 {
		return
	}
	setBits(b.valid, int(frame)*b.per, b.per, false)
	if b.dirty != nil {
		setBits(b.dirty, int(frame)*b.per, b.per, false)
	}
}

// eachWord calls fn with every word that n bits from first touch and the mask of
// those bits, until it returns false; it tells whether it never did.
func eachWord(words []uint64, first, n int, fn func(w *uint64, mask uint64) bool) bool {
	for n > 0 {
		off := first & 63
		k := min(64-off, n)
		if !fn(&words[first>>6], ^uint64(0)>>(64-k)<<off) {
			return false
		}
		first += k
		n -= k
	}
	return true
}

func setBits(words []uint64, first, n int, on bool) {
	eachWord(words, first, n, func(w *uint64, mask uint64) bool {
		if on {
			*w |= mask
		} else {
			*w &^= mask
		}
		return true
	})
}

func allBits(words []uint64, first, n int) bool {
	return eachWord(words, first, n, func(w *uint64, mask uint64) bool { return *w&mask == mask })
}

func noBits(words []uint64, first, n int) bool {
	return eachWord(words, first, n, func(w *uint64, mask uint64) bool { return *w&mask == 0 })
}

func countBits(words []uint64, first, n int) int {
	sum := 0
	eachWord(words, first, n, func(w *uint64, mask uint64) bool {
		sum += bits.OnesCount64(*w & mask)
		return true
	})
	return sum
}

// run returns the first run of bits that are on in [first, first+n): its start
// from first and its length, 0 if there is none.
func run(words []uint64, first, n int) (start, length int) {
	on := func(i int) bool { return words[(first+i)>>6]>>((first+i)&63)&1 != 0 }
	for start < n && !on(start) {
		if (first+start)&63 == 0 && words[(first+start)>>6] == 0 {
			start += 64
			continue
		}
		start++
	}
	if start >= n {
		return 0, 0
	}
	for start+length < n && on(start+length) {
		length++
	}
	return start, length
}

// bits returns where the sectors [first, first+n) of a slot are in the bitmaps.
func (ix *Index) bits(s Slot, first, n int) (at int) {
	if first < 0 || n < 0 || first+n > ix.bitmaps.per {
		panic("hostcache: sectors outside the block")
	}
	return int(ix.slot(s)-numLists)*ix.bitmaps.per + first
}

// SetValid says that sectors of a block hold its data now.
func (ix *Index) SetValid(s Slot, first, n int) {
	setBits(ix.bitmaps.valid, ix.bits(s, first, n), n, true)
}

// ClearValid says that they do not any more; dirty ones become clean: what was
// to be written is superseded.
func (ix *Index) ClearValid(s Slot, first, n int) {
	setBits(ix.bitmaps.valid, ix.bits(s, first, n), n, false)
	if ix.bitmaps.dirty != nil {
		ix.ClearDirty(s, first, n)
	}
}

// Valid tells whether all of the sectors are valid.
func (ix *Index) Valid(s Slot, first, n int) bool {
	if ix.bitmaps.per == 0 {
		return true
	}
	return allBits(ix.bitmaps.valid, ix.bits(s, first, n), n)
}

// ValidCount returns how many sectors of a block are valid.
func (ix *Index) ValidCount(s Slot) int {
	return countBits(ix.bitmaps.valid, ix.bits(s, 0, ix.bitmaps.per), ix.bitmaps.per)
}

// ValidRun returns the first run of valid sectors from sector first on; a length
// of 0 is none.
func (ix *Index) ValidRun(s Slot, first int) (start, length int) {
	n := ix.bitmaps.per - first
	start, length = run(ix.bitmaps.valid, ix.bits(s, first, n), n)
	return first + start, length
}
