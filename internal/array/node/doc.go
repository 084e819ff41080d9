// Package node is the nodes of maps, and the memory that they are in. A [Node] is one page of a map: the slots
// of 256 windows, which is a leaf, or of 256 nodes below it. A [Slab] has the nodes of all maps of an array. It
// knows no map, no volume and no references: what leads to a node, and when one leaves, is package extent's.
//
// # Shape
//
//	measures.go  the measures of the tree
//	slab.go      nodes by number, and their memory
//	walk.go      what lies below a slot
//	packed.go    leaves that nobody needs for a while: which are packed, and when
//	absent.go    leaves that are not in memory: how one leaves, and what it is when it is read
//	encode.go    how a node is written into a page, and read again
//	root.go      the same of the roots of maps
//
// # Invariants
//
//   - One slot leads to a node: window.KindChild to one with a number, window.KindPacked to a leaf in few bytes,
//     window.KindAbsent to one that the store alone has.
//   - A leaf that is packed or absent is in the store as it was here.
//
// # Ownership
//
// A Slab belongs to one executor. Whoever has the slot that leads to a node has the node.
package node
