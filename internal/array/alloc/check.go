// The account of a space held against what its users say that they have. It changes nothing.

package alloc

import (
	"fmt"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Counts are numbers of references by grain, sparse: what a check found in the maps.
type Counts []*[layout.ExtentGrains]uint32

// NewCounts returns counts for a space, all 0.
func (s *Space) NewCounts() Counts { return make(Counts, len(s.extents)) }

// Add counts a reference. Preconditions: the grain is in the space.
func (c Counts) Add(g uint64) {
	e := &c[g/layout.ExtentGrains]
	if *e == nil {
		*e = new([layout.ExtentGrains]uint32)
	}
	(*e)[g%layout.ExtentGrains]++
}

// Users is what those who use a space say of it, for Check.
type Users struct {
	Refs    Counts // what the maps refer to
	Holds   bool   // copies hold something
	Garbage bool   // references of cut-off subtrees are still to come back: Refs lack these
}

// Check verifies the account: references and holds of every grain against its users', what is
// allocated, what is reserved against the tenants, the tenants against the grains that are marked
// as theirs, that there is space for all of it, and that rounds of discards find what is worth one.
// It changes nothing and returns what is wrong, a line each.
func (s *Space) Check(u Users) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	allocated, loose := int64(0), int64(0)
	found, none := owners{}, [layout.ExtentGrains]uint32{}
	for e, used := range s.used {
		if s.empty.has(uint32(e)) != (used == 0) || s.partial.has(uint32(e)) != (used != 0 && used != allocatedFull) {
			add("extent %d, in use %#x, is not found as what it is", e, used)
		}
		used &^= s.discards.withheld[uint32(e)]
		allocated += int64(bits.OnesCount64(used))
		if s.overlooked(uint32(e)) {
			add("extent %d is worth a discard, and no round would find it", e)
		}
		x := s.known(e)
		if x == nil || used == 0 && *x == (extentInfo{owner: x.owner, homeBase: x.homeBase}) && s.sole[e] == 0 && u.Refs[e] == nil {
			continue
		}
		inMaps := u.Refs[e]
		if inMaps == nil {
			inMaps = &none
		}
		if why := s.wrongTables(x, e, used); why != "" {
			add("extent %d: %s", e, why)
		}
		for i := range uint64(layout.ExtentGrains) {
			g := uint64(e)*layout.ExtentGrains + i
			gi, free, sole := s.grain(x, g), used>>i&1 == 0, s.sole[e]>>i&1 != 0
			if !free {
				if gi.refs == 0 {
					loose++
				}
				found.count(gi)
			}
			if sole != (gi.refs+gi.held == 1) {
				add("grain %d has %d references and holds, the mark of those with one says %t", g, gi.refs+gi.held, sole)
			}
			if gi.refs == inMaps[i] && gi.held == 0 && (gi.refs == 0) == free { // nearly all are like that
				continue
			}
			if why := gi.wrong(free, inMaps[i], u); why != "" {
				add("grain %d %s", g, why)
			}
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
	t := o.last
	if t == nil || t.vol != gi.owner {
		t = o.of(gi.owner)
	}
	t.allocated++
	if gi.home != 0 {
		t.Marked++
		if gi.refs <= 1 {
			t.Homes++
		}
	}
}

// of returns the sum of an owner, for the grains that come next, too.
func (o *owners) of(vol uint32) *Tenant {
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
