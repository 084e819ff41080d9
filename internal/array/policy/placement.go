// How a copy inside a pool is carried out.

package policy

import "github.com/arraysim/arraysim/lab/plug"

// AsPool is the placement of arrays that are set by pool: data moves where the pool says so, else
// copies share it.
type AsPool struct{}

// Place implements plug.Placement.
func (AsPool) Place(c plug.Copy) plug.Way {
	if c.Moves {
		return plug.Data
	}
	return plug.Reference
}
