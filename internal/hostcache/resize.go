package hostcache

import "fmt"

// Resize changes the capacity. What does not fit any more is evicted in the order
// of the policy; pinned blocks stay, and if they alone are too many nothing
// changes and an error says how many must be destaged. Blocks in frames beyond the new
// capacity get another frame: move (not nil) is called for each, when its new frame is free to be
// written. All other blocks keep their slots.
func (ix *Index) Resize(capacity int64, move func(from, to Slot)) error {
	cfg := ix.cfg
	cfg.Capacity = capacity
	if err := cfg.check(); err != nil {
		return err
	}
	if ix.pinned > capacity || cfg.Sized && ix.pinned > 0 && ix.used > capacity {
		return fmt.Errorf("hostcache: %d blocks are dirty or in use and cannot leave for a capacity of %d; destage first", ix.pinned, capacity)
	}
	resident, ghosts := ix.policy.order(nil, nil)
	ix.emptyLists()
	stay := resident[:0]
	for _, s := range resident {
		if ix.used > capacity && ix.meta[s]&pinMask == 0 {
			ix.evict(s)
			continue
		}
		stay = append(stay, s)
	}
	ix.cfg = cfg
	if cfg.Sized {
		ix.capacity, ix.ghostsMax = capacity, ix.policy.ghosts(capacity)
	} else {
		ghosts = ix.relocate(capacity, stay, ghosts, move)
	}
	ix.policy.resize(capacity)
	kept := ix.policy.adopt(stay, ghosts)
	for _, g := range ghosts[:len(ghosts)-kept] {
		ix.release(g)
	}
	return nil
}

// relocate lays the arrays out anew and takes the slots over; it changes the
// numbers in resident to the new ones and returns the ghosts that fit, the newest.
func (ix *Index) relocate(capacity int64, resident, ghosts []uint32, move func(from, to Slot)) []uint32 {
	old := *ix
	ix.layOut(capacity)
	ix.used, ix.resident, ix.pinned = old.used, old.resident, old.pinned
	taken := make([]bool, capacity)
	for _, s := range resident {
		if s < ix.frames.end {
			taken[s-numLists] = true
		}
	}
	for f := capacity - 1; f >= 0; f-- {
		if !taken[f] {
			ix.giveBack(uint32(f) + numLists)
		}
	}
	ix.frames.fresh = ix.frames.end
	for i, s := range resident {
		to := s
		if s >= ix.frames.end {
			to = ix.take(&ix.frames)
			move(Slot(s)-numLists, Slot(to)-numLists)
			resident[i] = to
		}
		ix.nodes[to].key, ix.meta[to] = old.nodes[s].key, old.meta[s]
		ix.put(hash(old.nodes[s].key), to)
		ix.bitmaps.copyFrom(&old.bitmaps, s-numLists, to-numLists)
	}
	ghosts = ghosts[max(0, int64(len(ghosts))-ix.ghostsMax):]
	for i, s := range ghosts {
		g := ix.take(&ix.ghosts)
		ix.nodes[g].key, ix.meta[g] = old.nodes[s].key, firstGhost
		ix.put(hash(ix.nodes[g].key), g)
		ghosts[i] = g
	}
	return ghosts
}

// copyFrom takes over a frame's bits.
func (b *bitmaps) copyFrom(old *bitmaps, from, to uint32) {
	if b.per == 0 {
		return
	}
	copyBits(b.valid, old.valid, int(from)*b.per, int(to)*b.per, b.per)
	if b.dirty != nil {
		copyBits(b.dirty, old.dirty, int(from)*b.per, int(to)*b.per, b.per)
	}
}

func copyBits(to, from []uint64, fromAt, toAt, n int) {
	for i := 0; i < n; {
		start, length := run(from, fromAt+i, n-i)
		if length == 0 {
			return
		}
		setBits(to, toAt+i+start, length, true)
		i += start + length
	}
}
