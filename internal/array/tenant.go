package array

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/block"
)

// has reports whether so many grains are available, if need be after collecting garbage.
func (p *Pool) has(grains int64) bool {
	for p.space.Available() < grains {
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
	return p.space.Available() * grain, p.space.Allocated() * grain, p.space.Reserved() * grain
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
	v.pool.space.Entitle(v.tenant, windows)
}

// anchored reports whether a window has an anchored sector.
func (m *extentMap) anchored(s slot) bool {
	if s.kind() == kindDetail {
		return !m.arena.details.at(uint32(s.value())).anchored.Empty()
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
			if d := ds.at(i); d.phys&(windowSectors-1) == 0 && !d.mask.Empty() && !fn(d.phys>>windowShift) {
				return
			}
		}
	}
}

// home returns the home of a window, alloc.NoGrain if it has none.
func (m *extentMap) home(s slot, w uint64) (home uint64) {
	home = alloc.NoGrain
	m.aligned(s, func(g uint64) bool {
		if m.pool.space.IsHome(g, m.vol, w) {
			home = g
		}
		return home == alloc.NoGrain
	})
	return home
}

// settleHome brings the home of a window in line with an edit of its slot; was is what it had before.
func (m *extentMap) settleHome(s slot, w, was uint64) {
	sp, entitled := m.pool.space, m.entitled(s)
	if !entitled && m.tenant.Marked == 0 {
		return
	}
	now := m.home(s, w)
	if was != alloc.NoGrain && now != was && sp.IsHome(was, m.vol, w) {
		sp.ClearHome(was) // others share it, and the window has left it
	}
	switch {
	case now != alloc.NoGrain && !entitled:
		sp.ClearHome(now)
	case now == alloc.NoGrain && entitled:
		m.adopt(s, w, true)
	}
}

// adopt makes a grain that lies in its place the home of an entitled window: one that only the window
// has, or any.
func (m *extentMap) adopt(s slot, w uint64, own bool) (adopted bool) {
	m.aligned(s, func(g uint64) bool {
		if sp := m.pool.space; sp.Homeless(g) && (!own || sp.MapRefs(g) == 1) {
			sp.SetHome(g, m.tenant, w)
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
	was := alloc.NoGrain
	if m.tenant.Marked > 0 {
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
	entitled, old := v.m.entitled(s), alloc.NoGrain
	if entitled {
		old = v.m.home(s, w)
	}
	// Nothing is reserved for a window whose home only a copy holds: it goes in place if it must.
	reserved := entitled && (old == alloc.NoGrain || p.space.MapRefs(old) > 1)
	for {
		if reserved || p.space.Available() > 0 {
			if g, ok := p.space.Take(v.tenant); ok {
				if entitled {
					if old != alloc.NoGrain {
						p.space.ClearHome(old)
					}
					p.space.SetHome(g, v.tenant, w)
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
	if v.tenant.Homes < v.tenant.Entitled && v.m.entitled(s) && v.m.home(s, w) == alloc.NoGrain {
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

// clipTail unmaps what older versions anchored behind the end of a thin volume.
func (v *Volume) clipTail() {
	end, behind := v.spec.Sectors, false
	span := uint64(1) << spanShift(v.m.levels)
	if !v.spec.Thin || end == span {
		return
	}
	v.m.walk(block.Range{Start: end, Count: 1}, func(x run) bool { behind = x.state == block.Anchored; return false })
	if behind {
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
		private = m.pool.space.MapRefs(g) == 1
		return !private
	})
	return private
}
