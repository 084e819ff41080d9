// What is known of each grain, in as little memory as that takes. Nearly every extent has one owner,
// and none of its grains is shared, held or being read; and where its grains are homes, those of
// neighbours are neighbours. Then 40 bytes and the bits of Space say all. What else there is has a
// table of 64 numbers each, as long as it is needed.
//
// Invariant: a table that an extent has is not without need, but for what its owners were: those go
// with the last grain.

package alloc

import (
	"unsafe"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// extentInfo is what is known of an extent's grains beside the bits of Space. It holds no pointer, so
// that the garbage collector never looks inside.
type extentInfo struct {
	owner    uint32 // of all grains, where there is no table of owners
	homeBase uint32 // 1 + the window that the first grain would be the home of, where there is no table of homes
	homed    uint64 // grains that are homes, one bit each

	owners tableID // volume that allocated a grain, or has it as a home
	homes  tableID // 1 + the window of its owner that it is the home of
	refs   tableID // references from the maps; no table: those that are sole have one, the others none
	held   tableID // references from holds; no table: none
	pins   tableID // transfers that read a grain; no table: none

	shared uint8 // grains with more than one reference from the maps
	holds  uint8 // grains with holds
	pinned uint8 // grains with pins
}

// table is one number of each grain of an extent.
type table [layout.ExtentGrains]uint32

// tableID is a table of a Space, 0 none.
type tableID uint32

// tables hands out tables by number. What it has handed out once it keeps.
type tables struct {
	list []*table // by number, less one
	free []tableID
}

func (ts *tables) at(id tableID) *table { return ts.list[id-1] }

// take returns a table of zeros.
func (ts *tables) take() (tableID, *table) {
	if n := len(ts.free); n > 0 {
		id := ts.free[n-1]
		ts.free = ts.free[:n-1]
		return id, ts.at(id)
	}
	t := new(table)
	ts.list = append(ts.list, t)
	return tableID(len(ts.list)), t
}

// give takes a table back, which is zeros then, and forgets its number.
func (ts *tables) give(id *tableID) {
	if *id != 0 {
		*ts.at(*id) = table{}
		ts.free = append(ts.free, *id)
		*id = 0
	}
}

// Extents come in chunks, each made when the first of its extents is used.
const (
	chunkShift   = 8
	chunkExtents = 1 << chunkShift // 1 GiB
)

type extentChunk [chunkExtents]extentInfo

// extent returns what is known of the extent of a grain.
func (s *Space) extent(g uint64) *extentInfo {
	e := g / layout.ExtentGrains
	c := s.info[e>>chunkShift]
	if c == nil {
		c = new(extentChunk)
		s.info[e>>chunkShift] = c
		s.chunks++
	}
	return &c[e%chunkExtents]
}

// known returns what is known of an extent, nil if nothing ever was of it and its neighbours.
func (s *Space) known(extent int) *extentInfo {
	if c := s.info[extent>>chunkShift]; c != nil {
		return &c[extent%chunkExtents]
	}
	return nil
}

func in(g uint64) uint64 { return g % layout.ExtentGrains }

// refs returns the references that a grain has from the maps.
func (s *Space) refs(x *extentInfo, g uint64) uint32 {
	if x.refs != 0 {
		return s.tables.at(x.refs)[in(g)]
	}
	return uint32(s.sole[g/layout.ExtentGrains] >> in(g) & 1)
}

// held returns those that it has from holds.
func (s *Space) held(x *extentInfo, g uint64) uint32 {
	if x.held != 0 {
		return s.tables.at(x.held)[in(g)]
	}
	return 0
}

// setRefs changes the references that a grain has from the maps by one, to n.
func (s *Space) setRefs(x *extentInfo, g uint64, was, n uint32) {
	if n > 1 {
		s.countRefs(x, g)
	}
	if was == 1 && n == 2 {
		x.shared++
	}
	if was == 2 && n == 1 {
		x.shared--
	}
	if x.refs != 0 {
		s.tables.at(x.refs)[in(g)] = n
	}
	s.counted(x, g, n+s.held(x, g))
}

// setHeld changes the references that a grain has from holds by one, to n.
func (s *Space) setHeld(x *extentInfo, g uint64, was, n uint32) {
	refs := s.refs(x, g)
	if x.held == 0 {
		s.countRefs(x, g) // beside holds the bit says nothing of references
		x.held, _ = s.tables.take()
	}
	switch {
	case was == 0:
		x.holds++
	case n == 0:
		x.holds--
	}
	if s.tables.at(x.held)[in(g)] = n; x.holds == 0 {
		s.tables.give(&x.held)
	}
	s.counted(x, g, refs+n)
}

// countRefs makes the table of references, if there is none.
func (s *Space) countRefs(x *extentInfo, g uint64) {
	if x.refs != 0 {
		return
	}
	var t *table
	x.refs, t = s.tables.take()
	for i, sole := 0, s.sole[g/layout.ExtentGrains]; sole != 0; i, sole = i+1, sole>>1 {
		t[i] = uint32(sole & 1)
	}
}

// counted brings sole in line with a grain that has so many references and holds now, and gives the
// table of references back where that says all.
func (s *Space) counted(x *extentInfo, g uint64, n uint32) {
	word, bit := &s.sole[g/layout.ExtentGrains], uint64(1)<<in(g)
	if n == 1 {
		*word |= bit
	} else {
		*word &^= bit
	}
	if x.refs != 0 && x.shared == 0 && x.holds == 0 {
		s.tables.give(&x.refs)
	}
}

// ownerOf returns the volume that owns a grain.
func (s *Space) ownerOf(x *extentInfo, g uint64) uint32 {
	if x.owners != 0 {
		return s.tables.at(x.owners)[in(g)]
	}
	return x.owner
}

// setOwner says which volume owns a grain that is allocated.
func (s *Space) setOwner(x *extentInfo, g uint64, vol uint32) {
	others := s.used[g/layout.ExtentGrains] &^ (1 << in(g))
	switch {
	case others == 0:
		s.tables.give(&x.owners)
		x.owner = vol
	case x.owners != 0:
		s.tables.at(x.owners)[in(g)] = vol
	case x.owner != vol:
		var t *table
		x.owners, t = s.tables.take()
		for i := range t {
			t[i] = x.owner
		}
		t[in(g)] = vol
	}
}

// homeOf returns 1 + the window of its owner that a grain is the home of, 0 if it is none.
func (s *Space) homeOf(x *extentInfo, g uint64) uint32 {
	switch {
	case x.homed>>in(g)&1 == 0:
		return 0
	case x.homes != 0:
		return s.tables.at(x.homes)[in(g)]
	}
	return x.homeBase + uint32(in(g))
}

// setHome makes a grain a home, home as homeOf has it.
func (s *Space) setHome(x *extentInfo, g uint64, home uint32) {
	base := home - uint32(in(g))
	if others := x.homed &^ (1 << in(g)); others == 0 {
		s.tables.give(&x.homes)
		x.homeBase = base
	} else if x.homes == 0 && x.homeBase != base {
		var t *table
		x.homes, t = s.tables.take()
		for i := range t {
			t[i] = x.homeBase + uint32(i)
		}
	}
	if x.homes != 0 {
		s.tables.at(x.homes)[in(g)] = home
	}
	x.homed |= 1 << in(g)
}

// unsetHome makes a grain none.
func (s *Space) unsetHome(x *extentInfo, g uint64) {
	if x.homed &^= 1 << in(g); x.homed == 0 {
		s.tables.give(&x.homes)
	}
}

// pin counts a transfer that reads a grain.
func (s *Space) pin(g uint64) {
	x := s.extent(g)
	if x.pins == 0 {
		x.pins, _ = s.tables.take()
	}
	p := &s.tables.at(x.pins)[in(g)]
	if *p == 0 {
		x.pinned++
	}
	*p++
}

// unpin counts one less, and reports whether it was the last.
func (s *Space) unpin(g uint64) (last bool) {
	x := s.extent(g)
	p := &s.tables.at(x.pins)[in(g)]
	if *p--; *p > 0 {
		return false
	}
	if x.pinned--; x.pinned == 0 {
		s.tables.give(&x.pins)
	}
	return true
}

// isPinned reports whether a transfer reads a grain.
func (s *Space) isPinned(x *extentInfo, g uint64) bool {
	return x.pins != 0 && s.tables.at(x.pins)[in(g)] > 0
}

// infoBytes returns the memory of what is known of the extents.
func (s *Space) infoBytes() uint64 {
	const one = uint64(unsafe.Sizeof(table{})) + 8 + 4 // and its place in the lists
	return uint64(len(s.info))*8 + uint64(s.chunks)*uint64(unsafe.Sizeof(extentChunk{})) + uint64(len(s.tables.list))*one
}
