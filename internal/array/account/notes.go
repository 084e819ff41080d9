// By what the references of leaves differ from those of their pages.

package account

// note is one reference that a leaf has taken or given back since its page was written. The log bounds
// how many there are: a checkpoint begins when it is half full.
type note struct {
	grain uint64 // twice, and 1 more if the reference was given back
	next  uint32 // 1 + its number, 0: none
}

// List is the notes of a leaf: 1 + the number of the last one, 0: none.
type List = uint32

// notes has the memory of all lists. Numbers are used again.
type notes struct {
	all  []note
	free List
	live int
}

func (ns *notes) add(l *List, grain uint64) {
	ns.live++
	n := note{grain, *l}
	if i := ns.free; i != 0 {
		ns.free = ns.all[i-1].next
		ns.all[i-1] = n
		*l = i
		return
	}
	ns.all = append(ns.all, n)
	*l = List(len(ns.all))
}

// drop empties a list.
func (ns *notes) drop(l *List) {
	for i := *l; i != 0; {
		n := &ns.all[i-1]
		next := n.next
		n.next, ns.free = ns.free, i
		ns.live--
		i = next
	}
	*l = 0
}

// each calls fn for the grains of the references that were taken, or of those that were given back.
func (ns *notes) each(l List, given bool, fn func(grain uint64)) {
	for ; l != 0; l = ns.all[l-1].next {
		if g := ns.all[l-1].grain; g&1 != 0 == given {
			fn(g >> 1)
		}
	}
}
