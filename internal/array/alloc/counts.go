// What a check has found in the maps, beside what a space says of itself.

package alloc

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Counts are what a check has found in the maps: how many references each grain has, and which grains
// are homes. They take three eighths of a byte a grain, and four bytes for each grain of an extent of
// which one is shared.
type Counts struct {
	once  []uint64 // grains with a reference, one bit each, one word an extent
	more  []*table // references beyond the first; nil: none
	homes []uint64 // like once
}

// NewCounts returns counts for a space, all 0.
func (s *Space) NewCounts() *Counts { return new(Counts) }

// reach has counts reach to an extent: a space may have grown.
func (c *Counts) reach(e uint64) {
	for n := uint64(len(c.once)); n <= e; n++ {
		c.once, c.more, c.homes = append(c.once, 0), append(c.more, nil), append(c.homes, 0)
	}
}

// Add counts a reference.
func (c *Counts) Add(g uint64) {
	e, bit := g/layout.ExtentGrains, uint64(1)<<in(g)
	c.reach(e)
	if c.once[e]&bit == 0 {
		c.once[e] |= bit
		return
	}
	if c.more[e] == nil {
		c.more[e] = new(table)
	}
	c.more[e][in(g)]++
}

// Sub takes a reference back, and returns false if there is none.
func (c *Counts) Sub(g uint64) bool {
	e, bit := g/layout.ExtentGrains, uint64(1)<<in(g)
	c.reach(e)
	switch {
	case c.once[e]&bit == 0:
		return false
	case c.more[e] != nil && c.more[e][in(g)] > 0:
		c.more[e][in(g)]--
	default:
		c.once[e] &^= bit
	}
	return true
}

// Of returns the number of references of a grain.
func (c *Counts) Of(g uint64) (n uint32) {
	if e := g / layout.ExtentGrains; e < uint64(len(c.once)) {
		n = uint32(c.once[e] >> in(g) & 1)
		if c.more[e] != nil {
			n += c.more[e][in(g)]
		}
	}
	return n
}

// AddHome says that a grain is the home of a window.
func (c *Counts) AddHome(g uint64) {
	e := g / layout.ExtentGrains
	c.reach(e)
	c.homes[e] |= 1 << in(g)
}

// extent returns which grains of an extent have references, and which are homes.
func (c *Counts) extent(e int) (referred, homes uint64) {
	if e < len(c.once) {
		return c.once[e], c.homes[e]
	}
	return 0, 0
}

// Watch has counts hear of grains that become homes from now on, until Unwatch.
func (s *Space) Watch(c *Counts) { s.watch = append(s.watch, c) }

// Unwatch ends what Watch began.
func (s *Space) Unwatch(c *Counts) {
	s.watch = slices.DeleteFunc(s.watch, func(x *Counts) bool { return x == c })
}
