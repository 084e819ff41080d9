// Counting the entries of a volume's map, a few leaves at a time while it changes.

package pool

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// What one step of a count looks at, which takes a few milliseconds at the most.
const (
	entryLeaves = 256
	entryRuns   = 1 << 14
)

// entries is how far a count is.
type entries struct {
	v    *Volume
	at   uint64     // the sector where it goes on
	last extent.Run // that it has counted
	n    int
	runs int // of this step
	done func(int, error)
}

// CountEntries counts the maximal runs of equal state of the volume, where data lies in a row, and calls done, perhaps at
// once. What is edited meanwhile counts as it was or as it is.
func (v *Volume) CountEntries(done func(n int, err error)) {
	(&entries{v: v, done: done}).step()
}

func (c *entries) step() {
	v := c.v
	c.runs = 0
	for i := 0; i < entryLeaves && c.runs < entryRuns; i++ {
		switch {
		case v.Deleted:
			c.done(0, errors.New("the volume is gone"))
			return
		case c.at >= v.Spec.Sectors:
			c.done(c.n, nil)
			return
		}
		g := block.Range{Start: c.at, Count: min(v.Spec.Sectors-c.at, node.LeafSectors-c.at%node.LeafSectors)}
		if v.Map.Fetch(g, extent.Look, c.fetched) {
			return
		}
		v.Map.Walk(g, c.count)
	}
	v.Set.Exec.At(v.Set.Exec.Now(), c.step)
}

// fetched goes on when a leaf has come.
func (c *entries) fetched(err error) {
	if err != nil {
		c.done(0, err)
		return
	}
	c.step()
}

// count counts a run that does not go on from the last one; false: this step has counted enough.
func (c *entries) count(x extent.Run) bool {
	if l := c.last; l.Count == 0 || l.State != x.State || x.State == block.Data && l.Phys+l.Count != x.Phys {
		c.n++
	}
	c.last, c.at = x, x.End()
	c.runs++
	return c.runs < entryRuns
}
