// What a check has found in the maps, beside what a space says of itself.

package alloc

import (
	"slices"
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Counts are what a check has found in the maps: how many references each grain has, and which grains
// are homes. They take three eighths of a byte for each grain of a chunk in which there are any, and four
// bytes for each grain of an extent of which one is shared.
type Counts struct{ chunks []*countChunk } // nil: there are none

// countChunk is the counts of some extents that lie in a row.
type countChunk struct {
	once  [countExtents]uint64 // grains with a reference, one bit each, one word an extent
	more  [countExtents]*table // references beyond the first; nil: none
	homes [countExtents]uint64 // like once
}

const countExtents = 1024

// NewCounts returns counts for a space, all 0.
func (s *Space) NewCounts() *Counts {
	return &Counts{make([]*countChunk, (len(s.extents)+countExtents-1)/countExtents)}
}

// at returns the chunk of a grain, which is made if there is none, and the number of its extent there.
func (c *Counts) at(g uint64) (*countChunk, uint64) {
	e := g / layout.ExtentGrains
	x := &c.chunks[e/countExtents]
	if *x == nil {
		*x = new(countChunk)
	}
	return *x, e % countExtents
}

// Add counts a reference. Preconditions: the grain is in the space.
func (c *Counts) Add(g uint64) {
	x, e := c.at(g)
	bit := uint64(1) << in(g)
	if x.once[e]&bit == 0 {
		x.once[e] |= bit
		return
	}
	if x.more[e] == nil {
		x.more[e] = new(table)
	}
	x.more[e][in(g)]++
}

// Sub takes a reference back, and returns false if there is none. Preconditions: the grain is in the space.
func (c *Counts) Sub(g uint64) bool {
	x, e := c.at(g)
	bit := uint64(1) << in(g)
	switch {
	case x.once[e]&bit == 0:
		return false
	case x.more[e] != nil && x.more[e][in(g)] > 0:
		x.more[e][in(g)]--
	default:
		x.once[e] &^= bit
	}
	return true
}

// Of returns the number of references of a grain. Preconditions: it is in the space.
func (c *Counts) Of(g uint64) (n uint32) {
	e := g / layout.ExtentGrains
	x := c.chunks[e/countExtents]
	if x == nil {
		return 0
	}
	n = uint32(x.once[e%countExtents] >> in(g) & 1)
	if more := x.more[e%countExtents]; more != nil {
		n += more[in(g)]
	}
	return n
}

// Put says how many references a grain has that had none. Preconditions: it is in the space, and n is not 0.
func (c *Counts) Put(g uint64, n uint32) {
	x, e := c.at(g)
	x.once[e] |= 1 << in(g)
	if n == 1 {
		return
	}
	if x.more[e] == nil {
		x.more[e] = new(table)
	}
	x.more[e][in(g)] = n - 1
}

// Extent returns which grains of an extent have references, and whether there may be one with several.
func (c *Counts) Extent(e uint32) (referred uint64, several bool) {
	referred, _, several = c.extent(int(e))
	return referred, several
}

// Empty reports whether no grain has references.
func (c *Counts) Empty() bool {
	for _, x := range c.chunks {
		if x != nil && x.once != [countExtents]uint64{} {
			return false
		}
	}
	return true
}

// Bytes returns the memory that the counts take.
func (c *Counts) Bytes() (n uint64) {
	if c == nil {
		return 0
	}
	for _, x := range c.chunks {
		if x == nil {
			continue
		}
		n += uint64(unsafe.Sizeof(*x))
		for _, t := range x.more {
			if t != nil {
				n += uint64(unsafe.Sizeof(*t))
			}
		}
	}
	return n
}

// AddHome says that a grain is the home of a window. Preconditions: it is in the space.
func (c *Counts) AddHome(g uint64) {
	x, e := c.at(g)
	x.homes[e] |= 1 << in(g)
}

// extent returns which grains of an extent have references, which are homes, and whether there is one
// with several references.
func (c *Counts) extent(e int) (referred, homes uint64, several bool) {
	if x := c.chunks[e/countExtents]; x != nil {
		e %= countExtents
		return x.once[e], x.homes[e], x.more[e] != nil
	}
	return 0, 0, false
}

// Watch has counts hear of grains that become homes from now on, until Unwatch.
func (s *Space) Watch(c *Counts) { s.watch = append(s.watch, c) }

// Unwatch ends what Watch began.
func (s *Space) Unwatch(c *Counts) {
	s.watch = slices.DeleteFunc(s.watch, func(x *Counts) bool { return x == c })
}
