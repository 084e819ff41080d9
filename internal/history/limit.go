package history

import (
	"cmp"
	"math"
	"slices"
)

// Which rows a sample holds when more objects are active than it may hold.

// limit drops the rows of least rank where there are too many.
func (h *History) limit(t *tick) {
	free := 0
	for _, r := range t.rows {
		if !h.kinds[h.objects[r.object].key.kind].Always {
			free++
		}
	}
	if free <= MaxRows {
		return
	}
	kept := h.kept(t.rows)
	slices.SortStableFunc(t.rows, func(a, b row) int {
		x, y := h.rank(a), h.rank(b)
		if kept[a.object] {
			x = math.Inf(1)
		}
		if kept[b.object] {
			y = math.Inf(1)
		}
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	drop := free - MaxRows
	t.omitted += drop
	t.rows = slices.Clip(t.rows[:len(t.rows)-drop])
}

// kept returns the objects that a sample holds whatever their rank: the highest by each field with Keep.
func (h *History) kept(rows []row) map[uint32]bool {
	out := map[uint32]bool{}
	for kind, k := range h.kinds {
		for i, f := range k.Fields {
			if k.Always || !f.Keep {
				continue
			}
			var known []row
			for _, r := range rows {
				if h.objects[r.object].key.kind == kind && r.values[i] == r.values[i] {
					known = append(known, r)
				}
			}
			slices.SortStableFunc(known, func(a, b row) int { return cmp.Compare(b.values[i], a.values[i]) })
			for _, r := range known[:min(len(known), MaxKept)] {
				out[r.object] = true
			}
		}
	}
	return out
}

// rank is infinite for objects that every sample holds.
func (h *History) rank(r row) float64 {
	k := h.kinds[h.objects[r.object].key.kind]
	if k.Always {
		return math.Inf(1)
	}
	sum := 0.0
	for i, f := range k.Fields {
		if v := float64(r.values[i]); f.Rank && !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}

func idle(values []float32) bool {
	for _, v := range values {
		if v != 0 && v == v {
			return false
		}
	}
	return true
}
