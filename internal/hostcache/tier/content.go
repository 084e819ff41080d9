package tier

import (
	"cmp"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/hostcache"
)

// content is what the journal says of the blocks on flash, as far as it was read. It takes as much memory as the cache
// itself will, and some 35 bytes more for each sector that was written since the snapshot, so that a host that could
// run a cache can start it again.
type content struct {
	ix     *hostcache.Index // of the blocks; all frames may be dirty
	frames []uint32         // of each slot of the index
	slots  []hostcache.Slot // of each frame, or None
	// chains has sectors whose last record is "written".
	chains   map[hostcache.Slot]map[uint16]chain
	versions []version
	free     uint32 // the first of the versions that no chain has, or 0
}

// chain is what a dirty sector may hold: the versions that were written to its place.
type chain struct {
	newest uint32 // in versions
	base   base
	// solid: something that was flushed lies in its place, or what was written over that.
	solid bool
}

// version is the checksum of a sector as a write left it, and where that of the write before it is in versions, or 0. Of a free one,
// older is the next one that is free.
type version struct{ crc, older uint32 }

// base is what a sector was before the first of a chain.
type base uint8

const (
	baseNone  base = iota // nothing: the frame has another block's data there
	baseClean             // what the device below has
	baseDirty             // dirty, with a checksum that no snapshot keeps
)

// makeContent makes one that knows of no block, for a number of frames and of sectors a block.
func (c *content) makeContent(frames uint64, per int) error {
	ix, err := hostcache.New(hostcache.Config{Policy: "fifo", Capacity: int64(frames), BlockSectors: per, Dirty: true, MaxPinned: int64(frames)})
	if err != nil {
		return err
	}
	*c = content{ix: ix, frames: make([]uint32, frames), slots: make([]hostcache.Slot, frames),
		chains: map[hostcache.Slot]map[uint16]chain{}, versions: make([]version, 1)}
	for i := range c.slots {
		c.slots[i] = hostcache.None
	}
	return nil
}

// block returns the slot of a block, which lies in this frame from now on; None if no cache of ours has such a block or
// frame. A frame has one block, so there are never more blocks than slots.
func (c *content) block(k hostcache.Key, frame uint32) hostcache.Slot {
	if uint64(frame) >= uint64(len(c.slots)) || k.Disk() != 0 {
		return hostcache.None
	}
	if s := c.ix.Lookup(k); s != hostcache.None {
		if c.frames[s] == frame {
			return s
		}
		c.forget(s)
	}
	if old := c.slots[frame]; old != hostcache.None {
		c.forget(old)
	}
	s := c.ix.Insert(k)
	c.frames[s], c.slots[frame] = frame, s
	return s
}

// forget makes a block's frame hold nothing.
func (c *content) forget(s hostcache.Slot) {
	c.slots[c.frames[s]] = hostcache.None
	for _, h := range c.chains[s] { // each on its own: order does not matter
		c.giveBack(h)
	}
	delete(c.chains, s)
	c.ix.Drop(s)
}

// wrote adds a version to a sector's chain.
func (c *content) wrote(s hostcache.Slot, i int, crc uint32, overFlushed bool) {
	of := c.chains[s]
	if of == nil {
		of = map[uint16]chain{}
		c.chains[s] = of
	}
	h, ok := of[uint16(i)]
	if !ok {
		switch {
		case c.ix.Dirty(s, i, 1):
			h.base = baseDirty
		case c.ix.Valid(s, i, 1):
			h.base = baseClean
		}
	}
	h.solid = h.solid || overFlushed
	h.newest = c.version(version{crc: crc, older: h.newest})
	of[uint16(i)] = h
	c.ix.SetDirty(s, i, 1)
}

// version keeps one and returns where.
func (c *content) version(v version) uint32 {
	at := c.free
	if at == 0 {
		c.versions = append(c.versions, v)
		return uint32(len(c.versions) - 1)
	}
	c.free, c.versions[at] = c.versions[at].older, v
	return at
}

// giveBack frees the versions of a chain.
func (c *content) giveBack(h chain) {
	oldest := h.newest
	for c.versions[oldest].older != 0 {
		oldest = c.versions[oldest].older
	}
	c.versions[oldest].older, c.free = c.free, h.newest
}

// cut ends the chains of sectors: their last record is not that of a write any more.
func (c *content) cut(s hostcache.Slot, first, n int) {
	of := c.chains[s]
	if len(of) == 0 {
		return
	}
	for i := first; i < first+n; i++ {
		if h, ok := of[uint16(i)]; ok {
			c.giveBack(h)
			delete(of, uint16(i))
		}
	}
	if len(of) == 0 {
		delete(c.chains, s)
	}
}

// blocks returns the slots of all blocks in the order of their addresses.
func (c *content) blocks() []hostcache.Slot {
	all := make([]hostcache.Slot, 0, c.ix.Len())
	for _, s := range c.slots {
		if s != hostcache.None {
			all = append(all, s)
		}
	}
	c.sort(all)
	return all
}

// chained returns the slots of the blocks that have chains, in the order of their addresses.
func (c *content) chained() []hostcache.Slot {
	all := slices.AppendSeq(make([]hostcache.Slot, 0, len(c.chains)), maps.Keys(c.chains)) // sorted below
	c.sort(all)
	return all
}

func (c *content) sort(all []hostcache.Slot) {
	slices.SortFunc(all, func(a, b hostcache.Slot) int { return cmp.Compare(c.ix.Key(a), c.ix.Key(b)) })
}

// eachRun calls fn with each run of bits that are on.
func eachRun(bits []byte, fn func(first, n int)) {
	on := func(i int) bool { return bits[i/8]>>(i%8)&1 != 0 }
	for i := 0; i < len(bits)*8; {
		first := i
		for i < len(bits)*8 && on(i) {
			i++
		}
		if i > first {
			fn(first, i-first)
		}
		for i < len(bits)*8 && !on(i) {
			i++
		}
	}
}
