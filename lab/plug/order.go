package plug

// Order is a list of slots, from the oldest to the newest: the queue of a FIFO, an LRU or a SIEVE. A slot is in it once
// at most. Nothing is allocated after NewOrder, and everything but Victim takes constant time. It belongs to one policy,
// and so to one goroutine.
type Order struct {
	// older and newer are a ring: the last entry is before the oldest and after the newest. A slot that is not in the list
	// is its own neighbour.
	older, newer []int
	count        int
}

// NewOrder returns an empty list for slots from 0 to slots-1.
func NewOrder(slots int) *Order {
	o := &Order{older: make([]int, slots+1), newer: make([]int, slots+1)}
	for i := range o.older {
		o.older[i], o.newer[i] = i, i
	}
	return o
}

// Len returns how many slots are in the list.
func (o *Order) Len() int { return o.count }

// Has reports whether a slot is in the list.
func (o *Order) Has(slot int) bool { return o.newer[slot] != slot }

// Push makes a slot the newest, whether it is in the list or not.
func (o *Order) Push(slot int) {
	o.Remove(slot)
	end := len(o.older) - 1
	newest := o.older[end]
	o.older[slot], o.newer[slot] = newest, end
	o.newer[newest], o.older[end] = slot, slot
	o.count++
}

// Remove takes a slot out of the list, if it is in it.
func (o *Order) Remove(slot int) {
	if !o.Has(slot) {
		return
	}
	o.newer[o.older[slot]], o.older[o.newer[slot]] = o.newer[slot], o.older[slot]
	o.older[slot], o.newer[slot] = slot, slot
	o.count--
}

// Oldest returns the oldest slot, or -1 if the list is empty.
func (o *Order) Oldest() int { return o.Newer(len(o.older) - 1) }

// Newer returns the slot that came right after a slot of the list, or -1 if that is the newest.
func (o *Order) Newer(slot int) int {
	if n := o.newer[slot]; n < len(o.newer)-1 {
		return n
	}
	return -1
}

// Victim returns the oldest slot that is not pinned, or -1 if there is none. It is the Victim of a policy that evicts in
// this order.
func (o *Order) Victim(pinned func(slot int) bool) int {
	slot := o.Oldest()
	for slot >= 0 && pinned(slot) {
		slot = o.Newer(slot)
	}
	return slot
}
