package array

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// tenant is a volume's account with the space of its pool. A window is entitled if a write to it may
// not fail for lack of space: every window of a thick volume, and each with an anchored sector of a
// thin one. Its home is a grain that lies in its place in the window; while no other window
// has it, writes go there. For each entitled window without a home of its own the pool reserves a
// grain:
//
//	reserved = sum over the tenants of (entitled - homes)
//
// So an entitled write takes the grain that is reserved for it, and everybody else what is neither
// allocated nor reserved. A reservation can be larger than it has to be where a window has lost its
// home to a clone that then goes away: until the window is written to.
type tenant struct {
	entitled int64 // windows
	homes    int64 // of them, those whose home nobody shares
	marked   int64 // grains that are marked as homes, shared ones, too
}

// entitle says how many windows of a tenant are entitled.
func (s *space) entitle(t *tenant, windows int64) {
	s.reserved += windows - t.entitled
	t.entitled = windows
}

// housed counts a home that stops to be shared, or begins to.
func (s *space) housed(gi *grainInfo, n int64) {
	s.tenant(gi.owner).homes += n
	s.reserved -= n
}

// setHome makes a grain the home of an entitled window.
func (s *space) setHome(g uint64, vol uint32, window uint64) {
	gi := s.grain(g)
	if gi.owner != vol {
		s.owned(gi.owner, -1)
		s.owned(vol, 1)
	}
	gi.owner, gi.home = vol, uint32(window)+1
	s.tenant(vol).marked++
	if gi.refs <= 1 {
		s.housed(gi, 1)
	}
}

func (s *space) clearHome(gi *grainInfo) {
	if gi.home == 0 {
		return
	}
	t := s.tenant(gi.owner)
	t.marked--
	if gi.refs <= 1 {
		s.housed(gi, -1)
	}
	if gi.home = 0; t.marked == 0 {
		s.vacated(gi.owner)
	}
}

// isHome reports whether a grain is the home of a window of a volume.
func (s *space) isHome(g uint64, vol uint32, window uint64) bool {
	gi := s.grain(g)
	return gi.home == uint32(window)+1 && gi.owner == vol
}

// available returns the grains that nobody has and nobody was promised.
func (s *space) available() int64 { return s.grains() - s.allocated - s.reserved }

// has reports whether so many grains are available, if need be after collecting garbage.
func (p *Pool) has(grains int64) bool {
	for p.available() < grains {
		if p.a.garbage.empty() {
			return false
		}
		p.a.collect(garbageStep)
	}
	return true
}

// Space returns the pool's account in bytes: what is free, what is allocated, and what is reserved for
// thick volumes and anchored ranges. Together they are its capacity. What background work and
// copies still have to give back can make free negative for a while.
func (p *Pool) Space() (free, allocated, reserved int64) {
	const grain = windowSectors * block.SectorSize
	return p.available() * grain, p.allocated * grain, p.reserved * grain
}

// account renews what the volume is entitled to. Preconditions: none; it is called behind every
// change of the map or of the size.
func (v *Volume) account() {
	var windows int64
	switch {
	case v.deleted:
	case v.spec.Thin:
		windows = v.m.sum.promised
	default:
		windows = v.windows()
	}
	v.pool.entitle(&v.tenant, windows)
}

// anchored reports whether a window has an anchored sector.
func (m *extentMap) anchored(s slot) bool {
	if s.kind() == kindDetail {
		return !m.arena.details.at(uint32(s.value())).anchored.empty()
	}
	return s == kindAnchored
}

func (m *extentMap) entitled(s slot) bool { return m.thick || m.anchored(s) }

// aligned calls fn for the grains that lie in their place in a window, until it returns false.
func (m *extentMap) aligned(s slot, fn func(g uint64) bool) {
	switch s.kind() {
	case kindData:
		if s.value()&(windowSectors-1) == 0 {
			fn(s.value() >> windowShift)
		}
	case kindDetail:
		ds := &m.arena.details
		for i := uint32(s.value()); i != 0; i = ds.at(i).next {
			if d := ds.at(i); d.phys&(windowSectors-1) == 0 && !d.mask.empty() && !fn(d.phys>>windowShift) {
				return
			}
		}
	}
}

// noGrain is no grain of any pool.
const noGrain = ^uint64(0)

// home returns the home of a window, noGrain if it has none.
func (m *extentMap) home(s slot, w uint64) (home uint64) {
	home = noGrain
	m.aligned(s, func(g uint64) bool {
		if m.pool.isHome(g, m.vol, w) {
			home = g
		}
		return home == noGrain
	})
	return home
}

// settleHome brings the home of a window in line with an edit of its slot; was is what it had before.
func (m *extentMap) settleHome(s slot, w, was uint64) {
	p, entitled := m.pool, m.entitled(s)
	if !entitled && m.tenant.marked == 0 {
		return
	}
	now := m.home(s, w)
	if was != noGrain && now != was && p.isHome(was, m.vol, w) {
		p.clearHome(p.grain(was)) // others share it, and the window has left it
	}
	switch {
	case now != noGrain && !entitled:
		p.clearHome(p.grain(now))
	case now == noGrain && entitled:
		m.adopt(s, w, true)
	}
}

// adopt makes a grain that lies in its place the home of an entitled window: one that only the window
// has, or any.
func (m *extentMap) adopt(s slot, w uint64, own bool) (adopted bool) {
	m.aligned(s, func(g uint64) bool {
		if gi := m.pool.grain(g); gi.home == 0 && (gi.refs == 1 || !own) {
			m.pool.setHome(g, m.vol, w)
			adopted = true
		}
		return !adopted
	})
	return adopted
}

// edited carries out an edit of a window's slot and settles its home.
func (m *extentMap) edited(s *slot, w uint64, edit func(*slot) sums) sums {
	if m.arena.recovering || m.tenant == nil {
		return edit(s)
	}
	was := noGrain
	if m.tenant.marked > 0 {
		was = m.home(*s, w)
	}
	d := edit(s)
	m.settleHome(*s, w, was)
	return d
}

// allocGrain takes a grain for a window that has none to write to; false means out of space.
func (v *Volume) allocGrain(w uint64) (uint64, bool) {
	p := v.pool
	s, _ := v.m.find(w)
	entitled, old := v.m.entitled(s), noGrain
	if entitled {
		old = v.m.home(s, w)
	}
	// Nothing is reserved for a window whose home only a copy holds: it goes in place if it must.
	reserved := entitled && (old == noGrain || p.grain(old).refs > 1)
	for {
		if reserved || p.available() > 0 {
			if g, ok := p.alloc(&v.alloc, v.id); ok {
				v.own++
				if entitled {
					if old != noGrain {
						p.clearHome(p.grain(old))
					}
					p.setHome(g, v.id, w)
				}
				return g, true
			}
		}
		if p.a.garbage.empty() {
			return 0, false
		}
		p.a.collect(garbageStep)
	}
}

// ownHome gives an entitled window that has lost its home the grain that it has for itself now.
func (v *Volume) ownHome(s slot, w uint64) {
	if v.tenant.homes < v.tenant.entitled && v.m.entitled(s) && v.m.home(s, w) == noGrain {
		v.m.adopt(s, w, true)
	}
}

// findHomes gives the entitled windows of a volume their homes after a start, grains that nobody shares first.
func (v *Volume) findHomes() {
	v.account()
	v.a.eachWindow(&v.m, v.m.root, func(w uint64, s slot) {
		if v.m.entitled(s) && !v.m.adopt(s, w, true) {
			v.m.adopt(s, w, false)
		}
	})
}

// clipTail ends the map of a volume where the volume ends, before anything of it is counted. Behind the end it may have
// what a shrink has cut off, of which no record tells, and what older versions anchored on thin volumes. A uniform
// state that the map was widened by stays.
func (v *Volume) clipTail() {
	end, span := v.spec.Sectors, uint64(1)<<spanShift(v.m.levels)
	if end >= span {
		return
	}
	clean := true
	v.m.walk(block.Range{Start: end, Count: span - end}, func(x run) bool {
		clean = x.Count == span-end && x.state != block.Data && !(x.state == block.Anchored && v.spec.Thin)
		return false
	})
	if !clean {
		v.m.setState(end, span, kindUnmapped)
	}
}

// promise returns the grains that anchoring ranges may take: one for each of their windows that is not
// entitled yet and has no grain of its own.
func (v *Volume) promise(ranges []block.Range) (grains int64) {
	a := v.a
	a.promised = append(a.promised[:0], ranges...)
	slices.SortFunc(a.promised, func(x, y block.Range) int { return cmp.Compare(x.Start, y.Start) })
	next := uint64(0) // the first window that is not counted yet
	for _, x := range a.promised {
		if x.Count == 0 {
			continue
		}
		end := (x.End()-1)>>windowShift + 1
		for next = max(next, x.Start>>windowShift); next < end; {
			s, n := v.m.find(next)
			n = min(n, end-next)
			if !v.m.anchored(s) && !v.m.private(s) {
				grains += int64(n)
			}
			next += n
		}
	}
	return grains
}

// private reports whether a window has a grain in its place that no other window has.
func (m *extentMap) private(s slot) (private bool) {
	m.aligned(s, func(g uint64) bool {
		private = m.pool.grain(g).refs == 1
		return !private
	})
	return private
}
