package hostcache

import (
	"math"
	"slices"
)

// Belady replays references against the policy that knows the future: it evicts the
// block whose next reference is farthest away. That is the least that any policy
// can miss if all blocks have one size, and the usual yardstick if they have not. sizes is
// nil for blocks; an object keeps the size that it came in with. each hears of every reference whether it hit.
func Belady(keys []Key, sizes []uint32, capacity int64, each func(i int, hit bool)) {
	const never = math.MaxInt
	next := make([]int, len(keys))
	last := make(map[Key]int, len(keys)/4)
	for i := len(keys) - 1; i >= 0; i-- {
		if n, ok := last[keys[i]]; ok {
			next[i] = n
		} else {
			next[i] = never
		}
		last[keys[i]] = i
	}
	sizes = slices.Clone(sizes)
	size := func(i int) int64 {
		if sizes == nil {
			return 1
		}
		return int64(sizes[i])
	}
	// An entry of the heap is the reference that a resident block had last; one that
	// was followed by another is stale, as the block's next use shows.
	resident := make(map[Key]int, min(capacity, int64(len(last)))) // last reference
	var h farthest
	used := int64(0)
	for i, k := range keys {
		if was, hit := resident[k]; hit {
			each(i, true)
			if sizes != nil {
				sizes[i] = sizes[was]
			}
		} else {
			each(i, false)
			if size(i) > capacity {
				continue
			}
			used += size(i)
		}
		resident[k] = i
		for used > capacity {
			v := h.pop()
			if j, ok := resident[keys[v.ref]]; ok && j == v.ref {
				delete(resident, keys[v.ref])
				used -= size(v.ref)
			}
		}
		h.push(future{next[i], i})
	}
}

// future is when the block of a reference is used again.
type future struct{ next, ref int }

// farthest is a heap with the farthest future on top.
type farthest []future

func (h *farthest) push(f future) {
	*h = append(*h, f)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if a[up].next >= a[i].next {
			break
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
}

func (h *farthest) pop() future {
	a := *h
	top := a[0]
	n := len(a) - 1
	a[0] = a[n]
	a = a[:n]
	*h = a
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return top
		}
		if c+1 < n && a[c+1].next > a[c].next {
			c++
		}
		if a[i].next >= a[c].next {
			return top
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
}
