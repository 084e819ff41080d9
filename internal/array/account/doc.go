// Package account is what the meta store has of references: how many each grain has from the pages of
// leaves that are there, whether a root leads to them or not. It knows no map.
//
// # Shape
//
//	notes.go   by what the references of a leaf differ from those of its page: a list of each leaf
//	book.go    what all pages refer to, by space
//	encode.go  how the books stand in the meta store
//	leaf.go    leaves: their pages are written, overwritten and removed
//	compare.go the account that a store has against the pages that it has, for a check
//
// # Invariants
//
//   - A [Book] has the references of all leaves that the store has of the volumes of its space, as of the
//     last entry that went to the store.
//   - A leaf that is as the store has it has no list. So what a leaf refers to is what its page does,
//     or nothing if there is none, changed by its list; and what a space counts is what its book has,
//     changed by all lists.
//
// Who writes the page of a leaf, or removes it, says so in the same batch: see [Account.Settle].
//
// # Ownership
//
// An Account belongs to the arena of the maps, under its executor.
package account
