// The account of a space held against what its users say that they have. It changes nothing.

package alloc

import (
	"fmt"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Users is what those who use a space say of it, for its checks.
type Users struct {
	Refs    *Counts // what the maps refer to, and the homes that their windows have
	Holds   bool    // copies hold something
	Garbage bool    // what was cut off has references and homes that are still to come back: Refs may lack these
}

// CheckExtents verifies up to n extents from one on: references and holds of every grain against its
// users', homes against their windows, the tables, and that rounds of discards find what is worth one.
// It changes nothing and returns what is wrong, a line each. What it says of an extent is of that one
// alone, so that the space may change between two calls, and the users' counts with it.
func (s *Space) CheckExtents(u Users, from, n int) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for e := from; e < min(from+n, len(s.used)); e++ {
		used := s.used[e]
		if s.empty.has(uint32(e)) != (used == 0) || s.partial.has(uint32(e)) != (used != 0 && used != allocatedFull) {
			add("extent %d, in use %#x, is not found as what it is", e, used)
		}
		used &^= s.discards.withheld[uint32(e)]
		if s.overlooked(uint32(e)) {
			add("extent %d is worth a discard, and no round would find it", e)
		}
		x := s.knownOrNone(e)
		referred, homes, several := u.Refs.extent(e)
		if used == 0 && *x == (extentInfo{owner: x.owner, homeBase: x.homeBase}) && s.sole[e] == 0 && referred == 0 {
			continue
		}
		if !several && s.plain(x) && s.agrees(x, e, used, referred, homes, u.Garbage) { // nearly all are
			continue
		}
		problems = s.checkGrains(problems, u, x, e, used, homes)
	}
	return problems
}

// none is what is known of an extent of which nothing ever was. Nobody changes it.
var none extentInfo

// knownOrNone is known, for checks: a map can refer to a grain of which nothing is known.
func (s *Space) knownOrNone(e int) *extentInfo {
	if x := s.known(e); x != nil {
		return x
	}
	return &none
}

// plain reports whether the bits of an extent are all that there is to know of its grains, and whose they
// are: none is shared, held or pinned.
func (s *Space) plain(x *extentInfo) bool {
	return x.refs == 0 && x.held == 0 && x.pins == 0 && x.shared == 0 && x.holds == 0 && x.pinned == 0 && (x.homes == 0 || x.homed != 0)
}

// agrees reports whether checkGrains would find nothing wrong with an extent that is plain and whose
// grains have one reference from the maps at the most: which have one is referred.
func (s *Space) agrees(x *extentInfo, e int, used, referred, homes uint64, garbage bool) bool {
	return s.sole[e] == used && referred == used && x.homed&^used == 0 && (x.homed&^homes == 0 || garbage)
}

// checkGrains is CheckExtents of one extent, grain by grain. It appends to problems.
func (s *Space) checkGrains(problems []string, u Users, x *extentInfo, e int, used, homes uint64) []string {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if why := s.wrongTables(x, e, used); why != "" {
		add("extent %d: %s", e, why)
	}
	for i := range uint64(layout.ExtentGrains) {
		g := uint64(e)*layout.ExtentGrains + i
		gi, free, sole := s.grain(x, g), used>>i&1 == 0, s.sole[e]>>i&1 != 0
		if sole != (gi.refs+gi.held == 1) {
			add("grain %d has %d references and holds, the mark of those with one says %t", g, gi.refs+gi.held, sole)
		}
		if inMaps := u.Refs.Of(g); gi.refs != inMaps || gi.held != 0 || (gi.refs == 0) != free { // hardly any is like that
			if why := gi.wrong(free, inMaps, u); why != "" {
				add("grain %d %s", g, why)
			} else if !free && gi.refs+gi.held == 0 && !s.isPinned(x, g) {
				add("grain %d is in use, and nobody has a reference to it", g)
			}
		}
		if x.homed&used&^homes>>i&1 != 0 && !u.Garbage {
			add("grain %d is marked as the home of window %d of volume %d, which does not have it", g, gi.home-1, gi.owner)
		}
	}
	return problems
}

// CheckTotals verifies what is counted of all extents: what is allocated, what is reserved against the
// tenants, the tenants against the grains that are theirs, and that there is space for all of it. It
// changes nothing and returns what is wrong, a line each. It takes some nanoseconds for an extent.
func (s *Space) CheckTotals(u Users) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	allocated, loose := int64(0), int64(0)
	found := owners{}
	for e, used := range s.used {
		used &^= s.discards.withheld[uint32(e)]
		if used != 0 {
			x := s.knownOrNone(e)
			allocated += int64(bits.OnesCount64(used))
			loose += s.tally(&found, x, e, used)
		}
	}
	if allocated != s.allocated {
		add("%d grains are allocated, the count says %d", allocated, s.allocated)
	}
	problems = append(problems, s.checkTenants(found.by)...)
	// Grains that only copies or transfers keep can be given up.
	if free := s.Available() + loose; free < 0 && !u.Garbage {
		add("of %d grains %d are allocated and %d reserved, %d more than there are", s.Grains(), s.allocated, s.reserved, -free)
	}
	return problems
}

// tally sums up what the grains of an extent say that are in use, and returns how many of them no map
// refers to.
func (s *Space) tally(found *owners, x *extentInfo, e int, used uint64) (loose int64) {
	if x.owners == 0 && x.refs == 0 { // no grain is shared or held
		t, homes := found.of(x.owner), int64(bits.OnesCount64(x.homed&used))
		t.allocated += int64(bits.OnesCount64(used))
		t.Marked, t.Homes = t.Marked+homes, t.Homes+homes
		return int64(bits.OnesCount64(used &^ s.sole[e]))
	}
	for left := used; left != 0; left &= left - 1 {
		gi := s.grain(x, uint64(e)*layout.ExtentGrains+uint64(bits.TrailingZeros64(left)))
		if gi.refs == 0 {
			loose++
		}
		found.count(gi)
	}
	return loose
}

// grainInfo is all that is known of a grain.
type grainInfo struct {
	refs  uint32 // from the maps
	held  uint32 // references from holds
	owner uint32
	home  uint32
}

func (s *Space) grain(x *extentInfo, g uint64) grainInfo {
	return grainInfo{s.refs(x, g), s.held(x, g), s.ownerOf(x, g), s.homeOf(x, g)}
}

// wrongTables says what is wrong with what an extent counts of its tables, "" if nothing is.
func (s *Space) wrongTables(x *extentInfo, e int, used uint64) string {
	var shared, holds, pinned uint8
	for i := range uint64(layout.ExtentGrains) {
		g := uint64(e)*layout.ExtentGrains + i
		if s.refs(x, g) > 1 {
			shared++
		}
		if s.held(x, g) > 0 {
			holds++
		}
		if s.isPinned(x, g) {
			pinned++
		}
	}
	switch {
	case shared != x.shared || holds != x.holds || pinned != x.pinned:
		return fmt.Sprintf("%d grains are shared, %d held and %d pinned, it counts %d, %d and %d", shared, holds, pinned, x.shared, x.holds, x.pinned)
	case x.homed&^used != 0:
		return "a grain that is free is a home"
	case (x.refs != 0) != (shared+holds > 0), (x.held != 0) != (holds > 0), (x.pins != 0) != (pinned > 0), x.homes != 0 && x.homed == 0:
		return "it has a table without need, or lacks one"
	}
	return ""
}

// wrong says what is wrong with a grain of which the maps have so many references, "" if nothing
// is.
func (gi grainInfo) wrong(free bool, inMaps uint32, u Users) string {
	switch {
	case free && (gi.refs+gi.held != 0 || inMaps != 0):
		return fmt.Sprintf("is free but has %d references, %d in the maps", gi.refs+gi.held, inMaps)
	case gi.held != 0 && !u.Holds:
		return fmt.Sprintf("is held by %d copies, there is none", gi.held)
	case gi.refs < inMaps, gi.refs > inMaps && !u.Garbage:
		return fmt.Sprintf("counts %d references, the maps have %d", gi.refs, inMaps)
	}
	return ""
}

// owners sums up by owner what grains say.
type owners struct {
	by   map[uint32]*Tenant
	last *Tenant // that was counted: neighbours mostly have the same owner
}

func (o *owners) count(gi grainInfo) {
	t := o.of(gi.owner)
	t.allocated++
	if gi.home != 0 {
		t.Marked++
		if gi.refs <= 1 {
			t.Homes++
		}
	}
}

// of returns the sum of an owner.
func (o *owners) of(vol uint32) *Tenant {
	if o.last != nil && o.last.vol == vol {
		return o.last
	}
	if o.by == nil {
		o.by = map[uint32]*Tenant{}
	}
	if o.last = o.by[vol]; o.last == nil {
		o.last = &Tenant{vol: vol}
		o.by[vol] = o.last
	}
	return o.last
}

// checkTenants compares the tenants with what their grains say, and with what is reserved for them.
func (s *Space) checkTenants(found map[uint32]*Tenant) (problems []string) {
	reserved := int64(0)
	s.tenants.each(func(t *Tenant) {
		reserved += t.Entitled - t.Homes
		var got Tenant
		if f := found[t.vol]; f != nil {
			got = *f
		}
		if got.Marked != t.Marked || got.Homes != t.Homes || got.allocated != t.allocated {
			problems = append(problems, fmt.Sprintf("volume %d: its account says %d grains, %d homes, %d not shared; its grains %d, %d, %d",
				t.vol, t.allocated, t.Marked, t.Homes, got.allocated, got.Marked, got.Homes))
		}
	})
	if reserved != s.reserved {
		problems = append(problems, fmt.Sprintf("the volumes have reserved %d grains, the count says %d", reserved, s.reserved))
	}
	return problems
}
