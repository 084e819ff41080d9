// Package alloc is the allocator of one pool's physical space: which grains are allocated, by whom,
// who refers to each, and how many are reserved. It knows no array, no map and no mdisk, only
// numbers of them.
//
// # What keeps a grain
//
//	references  layers of windows that maps have; a map retains and releases them
//	holds       point-in-time references of copies; given up where promised space runs out
//	pins        transfers that are reading it
//
// A grain whose last reference and hold have gone is freed at once, or, while a transfer reads it,
// when that has ended: until then it is leaving. The Freed callback hears of it before it can be
// taken again.
//
// # What is withheld
//
// A grain that is free may have bytes on its mdisk still. While the mdisk discards them the grain is
// withheld: it counts as free, and nobody gets it. Only the Space can say so, because only it knows
// who takes a grain next.
//
// # The law
//
//	free + allocated + reserved = grains, none of them negative
//
// where grains that nothing but a hold, a pin or a map's garbage keeps count as free. [Space.Check]
// verifies it, and what it consists of.
//
// # Ownership
//
// A Space is the one owner of the account of its space; what volumes have in it are their tenants.
// Everything goes through its methods, which run one at a time under the executor of the pool's
// owner. Callbacks only go upwards, and must not call back into the Space.
package alloc
