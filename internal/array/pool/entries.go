package pool

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// What one step of an EntryCount looks at, which takes a few milliseconds at the most.
const (
	entryWindows = 1 << 16
	entryRuns    = 1 << 14
)

// EntryCount counts the entries of a map in steps, between which others have the executor: a map may have millions. What is
// written meanwhile may be counted as it was or as it is. The zero value has counted nothing.
type EntryCount struct {
	Entries int // so far
	at      uint64
	last    extent.Run
}

// CountEntries takes the next step of a count; false: it is complete.
func (v *Volume) CountEntries(c *EntryCount) (more bool) {
	size := v.Spec.Sectors // the volume may have become smaller
	end := min(size, c.at+entryWindows*layout.WindowSectors)
	if c.at >= end {
		return false
	}
	runs := 0
	v.Map.Walk(block.Range{Start: c.at, Count: end - c.at}, func(x extent.Run) bool {
		if l := &c.last; l.Count == 0 || l.State != x.State || x.State == block.Data && l.Phys+l.Count != x.Phys {
			c.Entries++
		}
		c.last, c.at = x, x.End()
		runs++
		return runs < entryRuns
	})
	return c.at < size
}
