// The checksums of all values of a meta store, by key, in little memory: there is one for each page
// of each map.

package metadata

import (
	"math/bits"
	"slices"
)

// checksums are the checksums of values, by key. Keys that differ in the last byte alone, as those of
// pages beside each other do, share all but four bytes. Its zero value is empty; no key is.
type checksums struct{ families map[string]*family }

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
		c.families[string(shared)] = f
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
	}
}
