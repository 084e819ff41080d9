// The checksums of all values of a meta store, by key, in little memory: there is one for each page
// of each map.

package metadata

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// checksums are the checksums of values, by key. Keys that differ in the last byte alone, as those of
// pages beside each other do, share all but four bytes. Its zero value is empty; no key is.
type checksums struct {
	families map[string]*family
	order    []string // what families share, in its order; nil: not known. It takes memory only between two walks.
}

// family is the checksums of keys that differ in the last byte alone.
type family struct {
	has  [4]uint64 // a bit for each last byte that there is
	sums []uint32  // in their order
}

// place returns where the checksum of a last byte is, or would be.
func (f *family) place(last byte) (i int, ok bool) {
	word, bit := last/64, last%64
	for _, w := range f.has[:word] {
		i += bits.OnesCount64(w)
	}
	return i + bits.OnesCount64(f.has[word]&(1<<bit-1)), f.has[word]>>bit&1 != 0
}

// split returns what a key shares with its family, and its last byte.
func split(key []byte) (shared []byte, last byte) { return key[:len(key)-1], key[len(key)-1] }

// get returns the checksum of a key's value, and whether there is one.
func (c *checksums) get(key []byte) (sum uint32, ok bool) {
	shared, last := split(key)
	f := c.families[string(shared)]
	if f == nil {
		return 0, false
	}
	i, ok := f.place(last)
	if ok {
		sum = f.sums[i]
	}
	return sum, ok
}

// set says what it is.
func (c *checksums) set(key []byte, sum uint32) {
	shared, last := split(key)
	f := c.families[string(shared)]
	if f == nil {
		if c.families == nil {
			c.families = map[string]*family{}
		}
		f = new(family)
		c.families[string(shared)], c.order = f, nil
	}
	i, ok := f.place(last)
	if !ok {
		f.has[last/64] |= 1 << (last % 64)
		f.sums = slices.Insert(f.sums, i, 0)
	}
	f.sums[i] = sum
}

// remove forgets a key, if there is one.
func (c *checksums) remove(key []byte) {
	shared, last := split(key)
	f := c.families[string(shared)]
	if f == nil {
		return
	}
	if i, ok := f.place(last); ok {
		f.has[last/64] &^= 1 << (last % 64)
		f.sums = slices.Delete(f.sums, i, i+1)
	}
	if len(f.sums) == 0 {
		delete(c.families, string(shared))
		c.order = nil
	}
}

// walker goes through keys in their order, with their checksums. Nothing is set or removed meanwhile. It is at no key
// unless there is more.
type walker struct {
	of   *checksums
	all  []string // families that are left, the one where it is first
	from int      // the least last byte there that is left
	key  []byte   // valid until next
	sum  uint32
	more bool
}

// walk returns a walker through the keys with a prefix, which all have the same length and are longer than that, or are
// one key.
func (c *checksums) walk(prefix []byte) *walker {
	if c.order == nil {
		c.order = slices.Sorted(maps.Keys(c.families))
	}
	w := &walker{of: c}
	first, _ := slices.BinarySearch(c.order, string(prefix))
	end := first
	for end < len(c.order) && strings.HasPrefix(c.order[end], string(prefix)) {
		end++
	}
	w.all = c.order[first:end]
	if sum, ok := c.get(prefix); ok {
		w.key, w.sum, w.more = slices.Clone(prefix), sum, true
		return w
	}
	w.next()
	return w
}

// next goes on to the next key.
func (w *walker) next() {
	for w.more = false; len(w.all) > 0; w.all, w.from = w.all[1:], 0 {
		f := w.of.families[w.all[0]]
		for ; w.from < 256; w.from++ {
			if i, ok := f.place(byte(w.from)); ok {
				w.key, w.sum, w.more = append(append(w.key[:0], w.all[0]...), byte(w.from)), f.sums[i], true
				w.from++
				return
			}
		}
	}
}

// firsts returns the first bytes of all keys.
func (c *checksums) firsts() (list []byte) {
	var has [256]bool
	for shared, f := range c.families {
		if shared != "" {
			has[shared[0]] = true
			continue
		}
		for b := range has { // these keys are their last bytes
			_, one := f.place(byte(b))
			has[b] = has[b] || one
		}
	}
	for b, ok := range has {
		if ok {
			list = append(list, byte(b))
		}
	}
	return list
}

// rest forgets what walks have made of all keys.
func (c *checksums) rest() { c.order = nil }
