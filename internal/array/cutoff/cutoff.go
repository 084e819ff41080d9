// Package cutoff finds the subtrees that have a leaf, among those that edits have cut off of maps. There may be
// millions of them, and each leaf that is made, read or written is looked for.
//
// The subtrees are a stack of the user's, who has their keys. A leaf may be in several: it was cut off, and another
// one with its key later.
//
// # Ownership
//
// An [Index] belongs to its stack, under the executor of that.
package cutoff

import (
	"cmp"
	"sort"

	"github.com/arraysim/arraysim/internal/array/node"
)

// Keys returns the key of the subtree at a place of a stack.
type Keys func(place int) node.Key

// Index finds leaves in a stack. It learns of what was pushed when it is asked, and of what is popped at once. The zero
// value knows nothing.
//
// Invariant: each of the first inOrder subtrees lies behind the one before it, as those do that a start finds; they need
// no memory. Of the others, up to known, last has the last one with a key, and prev the one before it.
type Index struct {
	inOrder, known int
	last           map[node.Key]int32
	prev           []int32 // by place, those in order left out; -1: there is none
}

// few is how many subtrees that are not in order are not worth a map.
const few = 8

// Find calls fn for the places of the subtrees that a leaf can be in, of a stack of so many.
func (x *Index) Find(size int, keys Keys, leaf node.Key, fn func(place int)) {
	for x.known == x.inOrder && x.known < size && (x.known == 0 || behind(keys(x.known-1), keys(x.known))) {
		x.known, x.inOrder = x.known+1, x.inOrder+1
	}
	i := sort.Search(x.inOrder, func(i int) bool { return compare(keys(i), leaf) >= 0 })
	if i < x.inOrder && compare(keys(i), leaf) == 0 {
		fn(i)
	}
	if x.known == x.inOrder && size-x.inOrder <= few {
		for i := x.inOrder; i < size; i++ {
			if compare(keys(i), leaf) == 0 {
				fn(i)
			}
		}
		return
	}
	x.learn(size, keys)
	for level := range uint8(node.MaxLevels) {
		k := node.Key{Vol: leaf.Vol, Level: level, Index: leaf.Index >> (node.FanoutBits * uint(level))}
		i, ok := x.last[k]
		for ; ok && i >= 0; i = x.prev[int(i)-x.inOrder] {
			fn(int(i))
		}
	}
}

// learn takes up what was pushed.
func (x *Index) learn(size int, keys Keys) {
	if x.last == nil {
		x.last = map[node.Key]int32{}
	}
	for ; x.known < size; x.known++ {
		k, before := keys(x.known), int32(-1)
		if i, ok := x.last[k]; ok {
			before = i
		}
		x.last[k] = int32(x.known)
		x.prev = append(x.prev, before)
	}
}

// Pop hears that the last subtree, of a key, is about to leave a stack of so many.
func (x *Index) Pop(size int, k node.Key) {
	switch top := size - 1; {
	case top >= x.known:
	case top < x.inOrder:
		x.known, x.inOrder = top, top
	default:
		before := x.prev[top-x.inOrder]
		x.prev, x.known = x.prev[:top-x.inOrder], top
		if x.last[k] = before; before < 0 {
			delete(x.last, k)
		}
	}
}

// span returns the first leaf of a subtree, and that behind its last.
func span(k node.Key) (first, end uint64) {
	shift := node.FanoutBits * uint(k.Level)
	return k.Index << shift, (k.Index + 1) << shift
}

// behind reports whether all leaves of the second subtree lie behind those of the first.
func behind(k, next node.Key) bool {
	_, end := span(k)
	first, _ := span(next)
	return k.Vol < next.Vol || k.Vol == next.Vol && end <= first
}

// compare returns -1 if a subtree lies before a leaf, 1 if it lies behind it, and 0 if the leaf can be in it.
func compare(k, leaf node.Key) int {
	first, end := span(k)
	switch {
	case k.Vol != leaf.Vol:
		return cmp.Compare(k.Vol, leaf.Vol)
	case end <= leaf.Index:
		return -1
	case first > leaf.Index:
		return 1
	}
	return 0
}
