// What a space owes each volume: windows whose writes may not fail, their homes, and the grains
// that are reserved for those without one.

package alloc

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Tenant is a volume's account with a space. A window is entitled if a write to it may
// not fail for lack of space: every window of a thick volume, and each with an anchored sector of a
// thin one. Its home is a grain that lies in its place in the window; while no other window
// has it, writes go there. For each entitled window without a home of its own the space reserves a
// grain:
//
//	reserved = sum over the tenants of (entitled - homes)
//
// So an entitled write takes the grain that is reserved for it, and everybody else what is neither
// allocated nor reserved. A reservation can be larger than it has to be where a window has lost its
// home to a clone that then goes away: until the window is written to.
//
// It is also the volume's place in the space: it takes the grains of one extent after another, so
// that what a volume writes in sequence lies in sequence.
type Tenant struct {
	Account
	vol       uint32
	extent    uint32 // that it takes grains from, or noExtent
	allocated int64  // grains that it owns
}

// Account is what a space owes a tenant, in windows and grains.
type Account struct {
	Entitled int64 // windows
	Homes    int64 // homes that nobody shares, be they of these windows or of some that were cut off and are not collected yet
	Marked   int64 // grains that are marked as homes, shared ones, too
}

// Allocated returns the number of allocated grains that the tenant owns.
func (t *Tenant) Allocated() int64 { return t.allocated }

// AddTenant opens the account of a volume. Preconditions: it has none.
func (s *Space) AddTenant(vol uint32) *Tenant {
	t := &Tenant{vol: vol, extent: noExtent}
	s.tenants.set(vol, t)
	return t
}

// RemoveTenant closes an account. Preconditions: nothing is entitled or marked. Grains that others
// share may go on naming the volume as their owner.
func (s *Space) RemoveTenant(t *Tenant) { s.tenants.set(t.vol, nil) }

// Entitle says how many windows of a tenant are entitled.
func (s *Space) Entitle(t *Tenant, windows int64) {
	fewer := windows < t.Entitled
	s.reserved += windows - t.Entitled
	if t.Entitled = windows; fewer {
		s.more()
	}
}

// housed counts a home of a volume that stops to be shared, or begins to.
func (s *Space) housed(vol uint32, n int64) {
	s.tenants.of(vol).Homes += n
	s.reserved -= n
}

// SetHome makes a grain the home of an entitled window, and the tenant its owner.
func (s *Space) SetHome(g uint64, t *Tenant, window uint64) {
	x := s.extent(g)
	if owner := s.ownerOf(x, g); owner != t.vol {
		if old := s.tenants.of(owner); old != nil {
			old.allocated--
		}
		t.allocated++
		s.setOwner(x, g, t.vol)
	}
	s.setHome(x, g, uint32(window)+1)
	for _, c := range s.watch {
		c.AddHome(g)
	}
	t.Marked++
	if s.refs(x, g) <= 1 {
		s.housed(t.vol, 1)
	}
}

// ClearHome makes a grain nobody's home, if it was one.
func (s *Space) ClearHome(g uint64) {
	x := s.extent(g)
	s.clearHome(x, g, s.refs(x, g))
}

// clearHome is ClearHome of a grain with so many references.
func (s *Space) clearHome(x *extentInfo, g uint64, refs uint32) {
	if x.homed>>in(g)&1 == 0 {
		return
	}
	owner := s.ownerOf(x, g)
	t := s.tenants.of(owner)
	t.Marked--
	if refs <= 1 {
		s.housed(owner, -1)
	}
	if s.unsetHome(x, g); t.Marked == 0 {
		s.events.Vacated(owner)
	}
}

// ClearHomesOf makes the homes of n windows of a volume, from one on, nobody's: those of windows that nobody can ask any more which
// grains they have. It goes over all extents, at some nanoseconds each, or until the volume has no home.
func (s *Space) ClearHomesOf(vol uint32, window, n uint64) {
	t := s.tenants.of(vol)
	for i, c := range s.info {
		if t == nil || t.Marked == 0 {
			return
		}
		if c == nil {
			continue
		}
		for e := range c {
			x := &c[e]
			if x.owners == 0 && x.owner != vol {
				continue
			}
			for left := x.homed; left != 0; left &= left - 1 {
				g := uint64(i<<chunkShift|e)*layout.ExtentGrains + uint64(bits.TrailingZeros64(left))
				if s.ownerOf(x, g) == vol && uint64(s.homeOf(x, g)-1)-window < n {
					s.ClearHome(g)
				}
			}
		}
	}
}

// IsHome reports whether a grain is the home of a window of a volume.
func (s *Space) IsHome(g uint64, vol uint32, window uint64) bool {
	x := s.extent(g)
	return s.homeOf(x, g) == uint32(window)+1 && s.ownerOf(x, g) == vol
}

// Homeless reports whether a grain is no window's home.
func (s *Space) Homeless(g uint64) bool { return s.extent(g).homed>>in(g)&1 == 0 }

// SoleHome reports whether a grain is a home that nobody shares: who shares it has to leave its
// window another one.
func (s *Space) SoleHome(g uint64) bool {
	x := s.extent(g)
	return x.homed>>in(g)&1 != 0 && s.refs(x, g) == 1
}

// tenants finds tenants by volume. It has two levels because volumes' numbers are the array's and
// are never used again: those of one space may lie far apart.
type tenants struct{ chunks []*tenantChunk }

const tenantChunkShift = 8

type tenantChunk [1 << tenantChunkShift]*Tenant

// of returns a volume's tenant, nil if it has none.
func (ts *tenants) of(vol uint32) *Tenant {
	if i := vol >> tenantChunkShift; int(i) < len(ts.chunks) && ts.chunks[i] != nil {
		return ts.chunks[i][vol%uint32(len(tenantChunk{}))]
	}
	return nil
}

func (ts *tenants) set(vol uint32, t *Tenant) {
	i := int(vol >> tenantChunkShift)
	for len(ts.chunks) <= i {
		ts.chunks = append(ts.chunks, nil)
	}
	if ts.chunks[i] == nil {
		ts.chunks[i] = new(tenantChunk)
	}
	ts.chunks[i][vol%uint32(len(tenantChunk{}))] = t
}

// each calls fn for all tenants, by volume.
func (ts *tenants) each(fn func(*Tenant)) {
	for _, c := range ts.chunks {
		if c == nil {
			continue
		}
		for _, t := range c {
			if t != nil {
				fn(t)
			}
		}
	}
}
