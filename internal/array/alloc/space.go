// A pool's grains and extents: which are free, which one is taken next, and how many are promised.
// Invariant: free + allocated + reserved = grains, none of them negative.

package alloc

import (
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Space is the physical space of a pool. The zero value has no extents; see New.
type Space struct {
	extents []uint32       // extent -> mdisk<<20 | number of the extent on it
	counts  []int          // extents, by mdisk
	least   uint32         // of them
	used    []uint64       // allocated and withheld grains, one bit each, one word an extent
	empty   bitset         // extents without such grains
	partial bitset         // extents with some, but not all
	sole    []uint64       // the same of grains with one reference or hold: all that nearly every write asks
	info    []*extentChunk // what else is known of extents, in chunks
	chunks  int            // of info that were made
	tables  tables

	down    []bool // by mdisk: it is offline, nothing new goes there
	anyDown bool
	cursor  uint32 // extent where the search for an empty one goes on

	allocated int64 // grains
	reserved  int64 // grains: sum of (entitled - homes) over the tenants
	leaving   int   // grains that only transfers keep

	tenants  tenants
	discards discards
	events   Events
	watch    []*Counts // of checks under way
}

// Events are what a Space tells those above it. None may call its methods that change something.
type Events struct {
	// Freed hears of a grain that is being freed: what is dirty of it is nobody's any more.
	Freed func(grain uint64)
	// Left, where it is set, hears that there may be space again for who waits for it, beside grains
	// that are freed: one has gone that only transfers kept, withheld ones were given back, less is
	// reserved, or an mdisk is online again.
	Left func()
	// Vacated hears that no grain is marked as a home of a volume any more.
	Vacated func(vol uint32)
	// Miscounted, where it is set, hears that the space panics because it was counted wrongly.
	Miscounted func()
}

const (
	mdiskShift    = 20
	extentMask    = 1<<mdiskShift - 1
	noExtent      = ^uint32(0)
	allocatedFull = ^uint64(0)
)

// Limits of a space: what an extent's number has bits for.
const (
	MaxExtents = extentMask             // of an mdisk: 4 TiB
	MaxMdisks  = 1 << (32 - mdiskShift) // 4096
)

// NoGrain is no grain of any space.
const NoGrain = ^uint64(0)

// New returns the space of mdisks of so many extents each, all of it free.
func New(extents []int, events Events) *Space {
	s := &Space{counts: slices.Clone(extents), down: make([]bool, len(extents)), events: events}
	if len(extents) > 0 {
		s.least = uint32(slices.Min(extents))
	}
	s.addExtents(extents)
	return s
}

// addExtents puts the extents of mdisks in rotation, so that neighbours lie on different mdisks.
func (s *Space) addExtents(counts []int) {
	sum := 0
	for _, c := range counts {
		sum += c
	}
	s.extents = slices.Grow(s.extents, sum)
	for n := uint32(0); len(s.extents) < sum; n++ {
		for i, c := range counts {
			if int(n) < c {
				s.extents = append(s.extents, uint32(i)<<mdiskShift|n)
			}
		}
	}
	s.used, s.sole = make([]uint64, sum), make([]uint64, sum)
	s.info = make([]*extentChunk, (sum+chunkExtents-1)/chunkExtents)
	s.empty, s.partial = newBitset(sum), newBitset(sum)
	for e := range uint32(sum) {
		s.empty.add(e)
	}
}

// use marks grains of an extent as allocated or withheld, unuse as neither. Preconditions: they are not
// what they become.
func (s *Space) use(extent uint32, grains uint64) {
	was := s.used[extent]
	s.used[extent] = was | grains
	switch full := was|grains == allocatedFull; {
	case was == 0:
		if s.empty.remove(extent); !full {
			s.partial.add(extent)
		}
	case full:
		s.partial.remove(extent)
	}
}

func (s *Space) unuse(extent uint32, grains uint64) {
	was := s.used[extent]
	s.used[extent] = was &^ grains
	switch empty := was&^grains == 0; {
	case empty:
		s.empty.add(extent)
		s.partial.remove(extent)
	case was == allocatedFull && grains != 0:
		s.partial.add(extent)
	}
}

// Locate returns the mdisk and the byte offset on it of a physical sector, and how
// many sectors follow on the same mdisk without a break.
func (s *Space) Locate(phys uint64) (mdisk int, off, n uint64) {
	x := s.extents[phys/layout.ExtentSectors]
	in := phys % layout.ExtentSectors
	return int(x >> mdiskShift), uint64(x&extentMask)*layout.ExtentBytes + in*512, layout.ExtentSectors - in
}

// SetDown says whether an mdisk is offline: no grain is taken from it then.
func (s *Space) SetDown(mdisk int, down bool) {
	s.down[mdisk] = down
	if s.anyDown = slices.Contains(s.down, true); !down {
		s.more()
	}
}

// more says that there may be space again for who waits for it.
func (s *Space) more() {
	if s.events.Left != nil {
		s.events.Left()
	}
}

// AnyDown reports whether an mdisk is offline.
func (s *Space) AnyDown() bool { return s.anyDown }

// Grains returns the number of grains of the space, Allocated and Reserved how many of them are
// allocated and reserved.
func (s *Space) Grains() int64 { return int64(len(s.extents)) * layout.ExtentGrains }

// Allocated returns the number of grains that are allocated, for whatever reason.
func (s *Space) Allocated() int64 { return s.allocated }

// Reserved returns the number of grains that are promised to entitled windows; see Tenant.
func (s *Space) Reserved() int64 { return s.reserved }

// Available returns the number of grains that nobody has and nobody was promised. It is negative
// while what a hold, a pin or garbage keeps is in the way of what is promised.
func (s *Space) Available() int64 { return s.Grains() - s.allocated - s.reserved }

// Takeable returns a number of grains that Take finds for sure: those that are free and not withheld, if
// all mdisks are online.
func (s *Space) Takeable() int64 {
	if s.anyDown {
		return 0
	}
	return s.Grains() - s.allocated - int64(s.discards.withholds)
}

// Bytes returns the memory that the tables take.
func (s *Space) Bytes() uint64 {
	const perExtent = 4 + 8 + 8
	return uint64(len(s.extents))*perExtent + s.empty.bytes() + s.partial.bytes() + s.discardBytes() + s.infoBytes()
}

func (s *Space) isFree(g uint64) bool {
	return s.used[g/layout.ExtentGrains]>>(g%layout.ExtentGrains)&1 == 0
}

// Take allocates a grain without references for a tenant; false means that none is free on mdisks
// that are online. It is the caller's to ask Available first, or to know that the grain is reserved
// for it.
func (s *Space) Take(t *Tenant) (grain uint64, ok bool) {
	if s.mustTurn(t) && !s.turn(t) {
		return 0, false
	}
	bit := bits.TrailingZeros64(^s.used[t.extent])
	s.use(t.extent, 1<<bit)
	g := uint64(t.extent)*layout.ExtentGrains + uint64(bit)
	s.setOwner(s.extent(g), g, t.vol)
	s.allocated++
	t.allocated++
	return g, true
}

// mustTurn reports whether the extent that a tenant takes grains from has none for it.
func (s *Space) mustTurn(t *Tenant) bool {
	return t.extent == noExtent || s.used[t.extent] == allocatedFull || s.anyDown && s.isDown(t.extent)
}

// turn gives a tenant another extent to take grains from; false means that none has any.
func (s *Space) turn(t *Tenant) bool {
	e, ok := s.pickExtent()
	if ok {
		t.extent = e
	}
	return ok
}

// pickExtent finds an extent with room, an empty one where there is one. It looks at no extent that has
// none, but for those of mdisks that are offline.
func (s *Space) pickExtent() (extent uint32, ok bool) {
	if extent, ok = s.nextUp(s.empty); ok {
		s.cursor = extent + 1
		return extent, true
	}
	return s.nextUp(s.partial)
}

// nextUp returns the next extent of a set from the cursor on, once round, whose mdisk is online.
func (s *Space) nextUp(set bitset) (extent uint32, ok bool) {
	for _, from := range [...]uint32{s.cursor, 0} {
		for extent, ok = set.next(from); ok; extent, ok = set.next(extent + 1) {
			if !s.anyDown || !s.isDown(extent) {
				return extent, true
			}
		}
	}
	return 0, false
}

func (s *Space) isDown(extent uint32) bool { return s.down[s.extents[extent]>>mdiskShift] }

// Free returns a grain that was taken and got no reference: what was to use it cannot be finished.
// Nobody hears of it: who waits for space has not got more than there was before the grain was taken,
// and has perhaps returned it himself.
func (s *Space) Free(g uint64) {
	x := s.extent(g)
	s.clearHome(x, g, 0)
	s.vacate(x, g)
}

func (s *Space) free(x *extentInfo, g uint64) {
	s.clearHome(x, g, 0)
	s.events.Freed(g)
	s.vacate(x, g)
}

// vacate makes a grain free that is nobody's home.
func (s *Space) vacate(x *extentInfo, g uint64) {
	if t := s.tenants.of(s.ownerOf(x, g)); t != nil {
		t.allocated--
	}
	s.unuse(uint32(g/layout.ExtentGrains), 1<<in(g))
	s.allocated--
	if s.discards.stale != nil {
		s.noteFree(g)
	}
}
