// The account of space that the meta store has, and the pages of maps beside it.

package check

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/account"
)

// Stored compares the account of space in the meta store with the pages of maps there, and returns what differs, a line for
// each pool. entries calls fn for all that the store has, as of one moment. What the array has in memory it does not ask: a
// start believes what was stored under a right digest, so that counts are as wrong as that, and agree with it.
func (c *Checker) Stored(entries func(fn func(key, value []byte) error) error) (lines []string) {
	var held account.Comparison
	for _, p := range c.Set.Pools() {
		held.Pool(p.ID(), p.Alloc.Grains())
	}
	wrong := func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, args...))
		c.Set.Arena.Account().Unsure()
	}
	if err := entries(held.Take); err != nil {
		wrong("space: the account in the metadata cannot be compared with the pages of maps: %v", err)
		return lines
	}
	list, _ := held.Differences()
	for _, d := range list {
		wrong("space: pool %s: the account in the metadata differs from the pages of maps on %d grains; of grain %d it has %d references, and they have %d; the next start derives it",
			c.Set.ByID(d.Pool).Name(), d.Grains, d.Grain, d.Stored, d.Pages)
	}
	return lines
}
