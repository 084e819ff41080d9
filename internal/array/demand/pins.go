package demand

import (
	"cmp"
	"slices"
)

// Pins are leaves that do not leave: those that somebody waits for, or needs when he has what he waits for.
// The zero value has none. They belong to one table at a time.
type Pins struct {
	table *Table
	at    int // place in the table's list
	list  []span
}

// span is leaves of a volume, the last one included.
type span struct {
	volume      uint32
	first, last uint64
}

// Keep adds leaves of a volume, the last one included.
func (t *Table) Keep(p *Pins, volume uint32, first, last uint64) {
	if len(p.list) == 0 {
		p.table, p.at = t, len(t.pins)
		t.pins = append(t.pins, p)
	}
	p.list = append(p.list, span{volume, first, last})
	t.index.stale = true
}

// Release lets all of them leave.
func (p *Pins) Release() {
	if len(p.list) == 0 {
		return
	}
	t, last := p.table, len(p.table.pins)-1
	t.pins[p.at] = t.pins[last]
	t.pins[p.at].at = p.at
	t.pins[last] = nil
	t.pins = t.pins[:last]
	t.index.stale = true
	p.list = p.list[:0]
}

// Empty reports whether no leaf is kept.
func (p *Pins) Empty() bool { return len(p.list) == 0 }

// Kept returns how many have leaves kept for them.
func (t *Table) Kept() int { return len(t.pins) }

// index finds who keeps a leaf among many. It is made anew when somebody asks and others have come or gone: who asks does
// so for very many leaves in a row, and pins come and go with each command that waits.
type index struct {
	stale bool
	list  []indexed // by volume and first leaf
}

// indexed is a span, and the last leaf of all of its volume that begin no later.
type indexed struct {
	span
	reach uint64
}

// fewPins is for how many it is cheaper to look at all of them.
const fewPins = 8

// kept reports whether somebody keeps a leaf.
func (t *Table) kept(k Key) bool {
	if len(t.pins) <= fewPins {
		return slices.ContainsFunc(t.pins, func(p *Pins) bool {
			return slices.ContainsFunc(p.list, func(x span) bool { return x.volume == k.Volume && x.first <= k.Leaf && k.Leaf <= x.last })
		})
	}
	if t.index.stale {
		t.index.renew(t.pins)
	}
	behind, _ := slices.BinarySearchFunc(t.index.list, k, func(x indexed, k Key) int {
		if c := cmp.Or(cmp.Compare(x.volume, k.Volume), cmp.Compare(x.first, k.Leaf)); c != 0 {
			return c
		}
		return -1 // those that begin with it are before what is looked for
	})
	if behind == 0 {
		return false
	}
	x := &t.index.list[behind-1]
	return x.volume == k.Volume && k.Leaf <= x.reach
}

// renew makes the index of pins.
func (x *index) renew(pins []*Pins) {
	x.stale, x.list = false, x.list[:0]
	for _, p := range pins {
		for _, s := range p.list {
			x.list = append(x.list, indexed{span: s, reach: s.last})
		}
	}
	slices.SortFunc(x.list, func(x, y indexed) int {
		return cmp.Or(cmp.Compare(x.volume, y.volume), cmp.Compare(x.first, y.first))
	})
	for i := 1; i < len(x.list); i++ {
		if before := x.list[i-1]; before.volume == x.list[i].volume {
			x.list[i].reach = max(x.list[i].reach, before.reach)
		}
	}
}
