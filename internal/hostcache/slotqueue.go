package hostcache

// slotQueue is a queue of slots with removal from the middle, for slots whose
// links are in use. It costs 20 bytes an entry and does not allocate until it
// holds more than its limit.
type slotQueue struct {
	limit int64
	nodes []queueNode // nodes[0] is the head of the ring
	free  uint32      // chain through next
	used  int
	index []uint32 // node by slot: open addressing, 0 is empty
}

type queueNode struct{ slot, prev, next uint32 }

func (q *slotQueue) init(limit int64) {
	q.limit = limit
	n := int(limit) + 2
	q.nodes = make([]queueNode, 1, n)
	q.free, q.used = 0, 0
	q.index = make([]uint32, 2*n)
}

func (q *slotQueue) home(s uint32) int { return reduce(s*0x9e3779b1, len(q.index)) }

// at returns the place in the index of a slot's node, or where it would go.
func (q *slotQueue) at(s uint32) int {
	i := q.home(s)
	for q.index[i] != 0 && q.nodes[q.index[i]].slot != s {
		if i++; i == len(q.index) {
			i = 0
		}
	}
	return i
}

// push adds a slot that is not queued as the newest.
func (q *slotQueue) push(s uint32) {
	if 2*(q.used+1) > len(q.index) {
		q.index = make([]uint32, 2*len(q.index))
		for n := q.nodes[0].next; n != 0; n = q.nodes[n].next {
			q.index[q.at(q.nodes[n].slot)] = n
		}
	}
	n := q.free
	if n != 0 {
		q.free = q.nodes[n].next
	} else {
		n = uint32(len(q.nodes))
		q.nodes = append(q.nodes, queueNode{})
	}
	q.index[q.at(s)] = n
	first := q.nodes[0].next
	q.nodes[n] = queueNode{slot: s, prev: 0, next: first}
	q.nodes[first].prev = n
	q.nodes[0].next = n
	q.used++
}

// remove takes a slot that is queued out.
func (q *slotQueue) remove(s uint32) {
	gap := q.at(s)
	n := q.index[gap]
	p, next := q.nodes[n].prev, q.nodes[n].next
	q.nodes[p].next = next
	q.nodes[next].prev = p
	size := len(q.index)
	for j := gap; ; {
		if j++; j == size {
			j = 0
		}
		v := q.index[j]
		if v == 0 {
			break
		}
		if !between(gap, q.home(q.nodes[v].slot), j) {
			q.index[gap] = v
			gap = j
		}
	}
	q.index[gap] = 0
	q.nodes[n] = queueNode{next: q.free}
	q.free = n
	q.used--
}

// oldest returns the slot that has been queued for longest; there must be one.
func (q *slotQueue) oldest() uint32 { return q.nodes[q.nodes[0].prev].slot }

// each calls fn with all slots, oldest first.
func (q *slotQueue) each(fn func(s uint32)) {
	for n := q.nodes[0].prev; n != 0; n = q.nodes[n].prev {
		fn(q.nodes[n].slot)
	}
}

// between tells whether an entry whose home is home and that is at j must stay
// behind the gap: going round from the gap, its home comes first.
func between(gap, home, j int) bool {
	if gap < j {
		return gap < home && home <= j
	}
	return gap < home || home <= j
}
