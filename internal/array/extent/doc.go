// Package extent is the map of volumes: which state each sector has, and where data lies. It knows
// no array and no volume, only numbers of them, maps, and the spaces that their data lies in.
//
// # Shape
//
// A [Map] is a radix tree over windows of 64 KiB. An [Arena] holds the nodes of many maps.
//
//	arena.go       the maps and their nodes (package node), which map has which number
//	map.go         the tree: setting a state, setting data, looking a window up
//	references.go  what its layers refer to, as the space counts it
//	absent.go      leaves that are not in memory: who needs one, and how it comes back
//	evict.go       which leaves leave memory, and when
//	run.go         walking over runs of equal state; references to them (package hold)
//	home.go        homes of windows that are promised their space; taking grains for them
//	garbage.go     subtrees that edits have cut off (package cutoff)
//	stored.go      what the store has of their references (package account)
//	checkpoint.go  what a checkpoint writes, in which order
//	load.go        how it is read again; package node has how it is written
//	tour.go        the way through all leaves, a few at a time
//	found.go       what an audit has found, kept right while maps change
//	audit.go       what is verified: maps, and the space against them
//	search.go      where volumes have a physical sector
//
// # Invariants
//
//   - Every layer of data that a map has, be it reachable or among the garbage, has one reference
//     on each grain that it lies in. An edit takes and gives back references in the same call.
//   - The sums of a node are those of its slots; a node whose sectors are all unmapped, zero or
//     anchored is folded into one slot.
//   - A node without changes is in the store as it is here, under its key.
//     No node that is in the store leads to a key that the store lacks; see [Checkpoint].
//
// # Ownership
//
// An Arena and its Maps belong to one executor. A Map counts in the alloc.Space that it was made
// with, and is its volume's only tenant there. Upwards go three callbacks: that there is garbage to
// collect, that sectors lost their last reference, and the entries of a checkpoint.
package extent
