// Grains that lie in a row: taken, and referred to, for what one grain costs.

package alloc

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// TakeRun takes up to n grains of one extent that lie in a row, from first on, and refers to each once:
// those that so many calls of Take would return one after the other, and Retain of each. It returns how
// many they are: 0 if Take would find none. As with Take, the caller asks Available first.
func (s *Space) TakeRun(t *Tenant, n int) (first uint64, grains int) {
	if n <= 0 || s.mustTurn(t) && !s.turn(t) {
		return 0, 0
	}
	free := ^s.used[t.extent]
	bit := bits.TrailingZeros64(free)
	grains = min(n, bits.TrailingZeros64(^(free >> bit)))
	mask := (uint64(1)<<grains - 1) << bit
	s.use(t.extent, mask)
	first = uint64(t.extent)*layout.ExtentGrains + uint64(bit)
	x := s.extent(first)
	switch others := s.used[t.extent] &^ mask; {
	case others == 0:
		s.tables.give(&x.owners)
		x.owner = t.vol
	case x.owners != 0 || x.owner != t.vol:
		for i := range uint64(grains) {
			s.setOwner(x, first+i, t.vol)
		}
	}
	s.allocated += int64(grains)
	t.allocated += int64(grains)
	if x.refs == 0 && x.held == 0 { // free grains have neither, and the bit says all of those that have one
		s.sole[t.extent] |= mask
		return first, grains
	}
	for i := range uint64(grains) {
		s.Retain(first + i)
	}
	return first, grains
}
