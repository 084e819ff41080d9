package lun

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// ref is a unit's name and ranges. What it refers to changes with the unit: a copy reads what
// is there when it is placed. So the device notes what goes to these ranges while the reference is held, and what the unit says
// of other hosts' changes.
type ref struct {
	dev     *Device
	ranges  []block.Range
	count   uint64
	changed bool
}

var _ block.Vulnerable = (*ref)(nil)

// Sectors returns the length of what is referred to.
func (h *ref) Sectors() uint64 { return h.count }

// Changed implements block.Vulnerable. Of other hosts' changes it knows what ChangedSince has told, and no more.
func (h *ref) Changed() bool { return h.changed }

// Release ends the watch; the array keeps no state for a name.
func (h *ref) Release() {
	h.dev.held = slices.DeleteFunc(h.dev.held, func(o *ref) bool { return o == h })
}

func (d *Device) hold(r *block.Request) block.Ref {
	h := &ref{dev: d, ranges: slices.Clone(r.Ranges)}
	for _, g := range h.ranges {
		h.count += g.Count
	}
	d.held = append(d.held, h)
	return h
}

// touch notes a request that may change what references are held of. Nobody knows when the unit carries it out, so it counts
// from the moment when it is sent.
func (d *Device) touch(r *block.Request) {
	if len(d.held) == 0 {
		return
	}
	switch r.Op {
	case block.OpUnmap:
		for _, g := range r.Ranges {
			d.touchRange(g)
		}
	case block.OpWrite, block.OpWriteSame, block.OpCompareWrite, block.OpOrWrite, block.OpPlace:
		d.touchRange(r.Range)
	}
}

func (d *Device) touchRange(g block.Range) {
	for _, h := range d.held {
		h.changed = h.changed || slices.ContainsFunc(h.ranges, g.Overlaps)
	}
}
