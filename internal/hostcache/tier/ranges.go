package tier

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/arraysim/arraysim/internal/block"
)

var errLost = errors.New("the flash device is lost")

func statusError(s block.Status) error {
	if s == block.OK {
		return nil
	}
	return fmt.Errorf("device: %v", s)
}

// everything is more sectors than a device ever has.
const everything = 1 << 62

// rangeSet is a set of sectors, as ranges in order that do not touch. It is meant to
// be empty or small.
type rangeSet []block.Range

// at returns the index of the first range that ends behind a sector.
func (s rangeSet) at(sector uint64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].End() > sector })
}

func (s rangeSet) overlaps(r block.Range) bool {
	i := s.at(r.Start)
	return i < len(s) && s[i].Overlaps(r)
}

// first returns the first range of the set that overlaps another one.
func (s rangeSet) first(r block.Range) (block.Range, bool) {
	if i := s.at(r.Start); i < len(s) && s[i].Overlaps(r) {
		return s[i], true
	}
	return block.Range{}, false
}

func (s *rangeSet) remove(r block.Range) {
	if len(*s) == 0 || !s.overlaps(r) {
		return
	}
	var out rangeSet
	for _, q := range *s {
		if !q.Overlaps(r) {
			out = append(out, q)
			continue
		}
		if q.Start < r.Start {
			out = append(out, block.Range{Start: q.Start, Count: r.Start - q.Start})
		}
		if q.End() > r.End() {
			out = append(out, block.Range{Start: r.End(), Count: q.End() - r.End()})
		}
	}
	*s = out
}

func (s *rangeSet) add(r block.Range) {
	if r.Count == 0 {
		return
	}
	s.remove(r)
	i := s.at(r.Start)
	*s = append(*s, block.Range{})
	copy((*s)[i+1:], (*s)[i:])
	(*s)[i] = r
}

// coarsen joins neighbours, the nearest first, until there are no more than most, which is at least
// 1: what lies between counts as being in the set.
func (s *rangeSet) coarsen(most int) {
	in := *s
	if len(in) <= most {
		return
	}
	gaps := make([]uint64, 0, len(in)-1)
	for i := range in[1:] {
		gaps = append(gaps, in[i+1].Start-in[i].End())
	}
	slices.Sort(gaps)
	joins := len(in) - most
	widest := gaps[joins-1]
	// ties is how many of the widest are closed.
	ties := joins - sort.Search(joins, func(i int) bool { return gaps[i] >= widest })
	out := in[:1]
	for _, r := range in[1:] {
		last := &out[len(out)-1]
		gap := r.Start - last.End()
		if gap > widest || gap == widest && ties == 0 {
			out = append(out, r)
			continue
		}
		if gap == widest {
			ties--
		}
		last.Count = r.End() - last.Start
	}
	*s = out
}
