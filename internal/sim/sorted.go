package sim

import (
	"cmp"
	"maps"
	"slices"
)

// sortedKeys is how this package goes over a map.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
