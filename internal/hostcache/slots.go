package hostcache

// slots hands out slot numbers from a range: those that came back first.
type slots struct {
	fresh, end uint32 // never used yet
	free       uint32 // chain through node.next, 0 ends it
}

// insert gives k, whose hash is h, a slot; g is its ghost or 0. It returns 0 if there is no room.
func (ix *Index) insert(k Key, h uint64, g, size uint32) uint32 {
	w := int64(1)
	if ix.sizes != nil {
		w = int64(size)
	}
	if w > ix.capacity || ix.pinned == ix.resident && ix.used+w > ix.capacity {
		ix.stats.Refused++
		return 0
	}
	if ix.recency && ix.used == ix.capacity {
		return ix.replace(k, h)
	}
	state, ok := ix.policy.admit(k, g, w)
	if !ok {
		ix.stats.Refused++
		return 0
	}
	s := ix.take(&ix.frames)
	ix.nodes[s].key, ix.meta[s] = k, stateFree
	if ix.sizes != nil {
		ix.sizes[s] = size
	}
	ix.put(h, s)
	ix.used += w
	ix.resident++
	ix.stats.Inserted++
	ix.bitmaps.clear(s - numLists)
	ix.policy.place(s, state)
	return s
}

// replace is insert for lru if there is no room: what admit, take and place do together. The oldest block
// leaves, and the new one has its slot and its place in all counts. One that is not pinned has to be there.
func (ix *Index) replace(k Key, h uint64) uint32 {
	s := ix.victim(inCache)
	ix.stats.Evicted++
	if ix.cfg.OnEvict != nil {
		ix.cfg.OnEvict(Slot(s)-numLists, ix.nodes[s].key)
	}
	ix.unput(s)
	ix.nodes[s].key, ix.meta[s] = k, inCache
	ix.put(h, s)
	ix.stats.Inserted++
	ix.bitmaps.clear(s - numLists)
	ix.renew(s)
	return s
}

// take returns an unused slot; callers keep within the bounds.
func (ix *Index) take(from *slots) uint32 {
	if s := from.free; s != 0 {
		from.free = ix.nodes[s].next
		return s
	}
	s := from.fresh
	if s == from.end {
		panic("hostcache: internal error: a policy overran its slots")
	}
	from.fresh++
	if int(s) == len(ix.nodes) { // Sized only
		ix.nodes = append(ix.nodes, node{})
		ix.meta = append(ix.meta, 0)
		ix.sizes = append(ix.sizes, 0)
	}
	return s
}

// release gives back the slot of a block, resident or ghost, that is on no list.
func (ix *Index) release(s uint32) {
	ix.unput(s)
	if m := ix.meta[s]; m&stateMask < firstGhost {
		ix.leave(s)
	}
	ix.giveBack(s)
}

// leave accounts for a block that is not resident any more.
func (ix *Index) leave(s uint32) {
	ix.used -= ix.weight(s)
	ix.resident--
	if m := ix.meta[s]; m&pinMask != 0 {
		ix.pinned--
		if m&pinDirty != 0 {
			ix.dropDirty(s)
		}
	}
}

func (ix *Index) giveBack(s uint32) {
	ix.meta[s] = stateFree
	pool := &ix.frames
	if !ix.cfg.Sized && s >= ix.frames.end {
		pool = &ix.ghosts
	}
	ix.nodes[s].next = pool.free
	pool.free = s
}

// evict makes a resident block leave for good; it is on no list.
func (ix *Index) evict(s uint32) {
	ix.stats.Evicted++
	if ix.cfg.OnEvict != nil {
		ix.cfg.OnEvict(Slot(s)-numLists, ix.nodes[s].key)
	}
	ix.release(s)
}

// demote makes a resident block leave but be remembered, and returns the slot of
// its ghost. Neither is on a list; links of the ghost are those that the block had.
func (ix *Index) demote(s uint32, state uint8) uint32 {
	ix.stats.Evicted++
	if ix.cfg.OnEvict != nil {
		ix.cfg.OnEvict(Slot(s)-numLists, ix.nodes[s].key)
	}
	ix.leave(s)
	if ix.cfg.Sized {
		ix.meta[s] = state
		return s
	}
	g := ix.take(&ix.ghosts)
	ix.nodes[g], ix.meta[g] = ix.nodes[s], state
	ix.reput(s, g)
	ix.giveBack(s)
	return g
}

// weight returns what a slot takes of the capacity.
func (ix *Index) weight(s uint32) int64 {
	if ix.sizes == nil {
		return 1
	}
	return int64(ix.sizes[s])
}
