package lun

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// held is a reference by name: a unit's ranges. What it refers to changes with the unit: a copy
// reads what is there when it is placed. So the unit's holds note what goes to these ranges while the
// reference is held, and what is known of other hosts' changes.
type held struct {
	by      *holds
	ranges  []block.Range
	count   uint64
	changed bool
}

// ref is one of a LUN.
type ref struct {
	held
	dev *Device
}

var _, _ block.Vulnerable = (*ref)(nil), (*fileRef)(nil)

// Sectors returns the length of what is referred to.
func (h *held) Sectors() uint64 { return h.count }

// Changed implements block.Vulnerable. Of other hosts' changes it knows what ChangedSince has told, and no more.
func (h *held) Changed() bool { return h.changed }

// Release ends the watch; nobody keeps state for a name.
func (h *held) Release() {
	h.by.held = slices.DeleteFunc(h.by.held, func(o *held) bool { return o == h })
}

// holds are the references of one unit that are held. They belong to its executor.
type holds struct{ held []*held }

// watch begins to note what happens to the ranges of a request of h.
func (s *holds) watch(h *held, r *block.Request) {
	h.by, h.ranges, h.count = s, slices.Clone(r.Ranges), 0
	for _, g := range h.ranges {
		h.count += g.Count
	}
	s.held = append(s.held, h)
}

// touch notes a request that may change what references are held of. Nobody knows when the unit carries it out, so it counts
// from the moment when it is sent.
func (s *holds) touch(r *block.Request) {
	if len(s.held) == 0 {
		return
	}
	switch r.Op {
	case block.OpUnmap:
		for _, g := range r.Ranges {
			s.touchRange(g)
		}
	case block.OpWrite, block.OpWriteSame, block.OpCompareWrite, block.OpOrWrite, block.OpPlace:
		s.touchRange(r.Range)
	}
}

func (s *holds) touchRange(g block.Range) {
	for _, h := range s.held {
		h.changed = h.changed || slices.ContainsFunc(h.ranges, g.Overlaps)
	}
}

func (d *Device) hold(r *block.Request) block.Ref {
	h := &ref{dev: d}
	d.watch(&h.held, r)
	return h
}
