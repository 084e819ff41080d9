package hostcache

// The lists of an Index. A list is a ring through its head; next of the head is
// the newest slot, prev the oldest. A slot's state counts it in units, blocks
// and pinnedIn; usually the state is also the number of the list it is on.

// emptyLists takes all slots from all lists.
func (ix *Index) emptyLists() {
	for i := range uint32(numLists) {
		ix.nodes[i] = node{prev: i, next: i}
	}
	ix.units, ix.blocks, ix.pinnedIn = [numLists]int64{}, [numLists]int64{}, [numLists]int64{}
}

func (ix *Index) newest(list uint32) uint32 { return ix.nodes[list].next }
func (ix *Index) oldest(list uint32) uint32 { return ix.nodes[list].prev }

// linkNewest puts a slot that is on no list at the new end of one.
func (ix *Index) linkNewest(list, s uint32) {
	l := ix.nodes
	first := l[list].next
	l[s].prev, l[s].next = list, first
	l[first].prev = s
	l[list].next = s
}

func (ix *Index) unlink(s uint32) {
	l := ix.nodes
	p, n := l[s].prev, l[s].next
	l[p].next = n
	l[n].prev = p
}

// enter counts a slot in a state.
func (ix *Index) enter(s uint32, state uint8) {
	m := ix.meta[s]&^stateMask | state
	ix.meta[s] = m
	ix.units[state] += ix.weight(s)
	ix.blocks[state]++
	if m&pinMask != 0 {
		ix.pinnedIn[state]++
	}
}

// exit stops counting a slot in its state, which it keeps.
func (ix *Index) exit(s uint32) {
	m := ix.meta[s]
	ix.units[m&stateMask] -= ix.weight(s)
	ix.blocks[m&stateMask]--
	if m&pinMask != 0 {
		ix.pinnedIn[m&stateMask]--
	}
}

// push puts a slot that is on no list at the new end of its state's list.
func (ix *Index) push(s uint32, state uint8) {
	ix.enter(s, state)
	ix.linkNewest(uint32(state), s)
}

// pull takes a slot from the list of its state.
func (ix *Index) pull(s uint32) {
	ix.exit(s)
	ix.unlink(s)
}

// renew moves a slot to the new end of the list it is on.
func (ix *Index) renew(s uint32) {
	state := uint32(ix.meta[s] & stateMask)
	if ix.nodes[state].next == s {
		return
	}
	ix.unlink(s)
	ix.linkNewest(state, s)
}

// move takes a slot from the list of its state to another.
func (ix *Index) move(s uint32, state uint8) {
	ix.pull(s)
	ix.push(s, state)
}

// victim returns the oldest slot of a state's list that is not pinned, or 0.
// Pinned ones that it passes become the newest, so that what was passed is not
// passed again soon: dirty data and I/O in flight are use, too.
func (ix *Index) victim(state uint8) uint32 {
	if ix.blocks[state] == ix.pinnedIn[state] {
		return 0
	}
	s := ix.oldest(uint32(state))
	for ix.meta[s]&pinMask != 0 {
		ix.renew(s)
		s = ix.oldest(uint32(state))
	}
	return s
}

// victimOf returns a victim from the first of two states that has one.
func (ix *Index) victimOf(a, b uint8) uint32 {
	if s := ix.victim(a); s != 0 {
		return s
	}
	return ix.victim(b)
}

// forget frees the ghost of a state's list.
func (ix *Index) forget(g uint32) {
	ix.pull(g)
	ix.release(g)
}

// remember turns a resident block that is on a list into the newest ghost of a
// state whose ghosts are bounded to limit units.
func (ix *Index) remember(s uint32, state uint8, limit int64) {
	ix.pull(s)
	w := ix.weight(s)
	for ix.units[state]+w > limit && ix.blocks[state] > 0 {
		ix.forget(ix.oldest(uint32(state)))
	}
	if w > limit {
		ix.evict(s)
		return
	}
	ix.push(ix.demote(s, state), state)
}

// expel evicts a resident block that is on a list.
func (ix *Index) expel(s uint32) {
	ix.pull(s)
	ix.evict(s)
}

// count returns a slot's small counter.
func (ix *Index) count(s uint32) uint8 { return ix.meta[s] / countUnit }

// setCount sets it, to countMax at most.
func (ix *Index) setCount(s uint32, n uint8) {
	ix.meta[s] = ix.meta[s]&(countUnit-1) | n*countUnit
}

// bump raises it up to limit.
func (ix *Index) bump(s uint32, limit uint8) {
	if ix.meta[s] < limit*countUnit {
		ix.meta[s] += countUnit
	}
}
