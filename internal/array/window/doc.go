// Package window is the windows of maps: which state each of their sectors has, and where data lies.
// It knows no tree and no volume. A [Slot] says what a window is in eight bytes; a [Slab] has what
// does not fit into them.
//
// # Shape
//
//	slot.go    a window, or another entry of a map's tree, in eight bytes; sums of sectors by state
//	slab.go    the memory of windows that are not of one piece
//	edit.go    setting a state, setting data
//	read.go    sums, layers and runs of a window
//	encode.go  how a window that is not of one piece is written into a page, and read again
//	packed.go  leaves that nobody needs for a while, and their memory
//	pack.go    how these are written
//
// # Invariants
//
//   - A window is in the least form that can say what it is: one that is of one piece is a slot
//     alone. No layer is empty, and no two have a sector.
//   - An edit takes and gives back the references of what it changes within the same call.
//
// # Ownership
//
// A slot that leads into a slab is the only one that does, and whoever has the slot gives back what
// it leads to. The executor of its owner serialises all calls of a Slab.
package window
