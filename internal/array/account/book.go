// What the pages in the store refer to, by space.

package account

import (
	"cmp"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/node"
)

// Account has the books of all spaces, and the lists of all leaves. One without nodes and keys is empty.
type Account struct {
	// Off: nothing is ever stored, and nothing is noted.
	Off   bool
	Nodes *node.Slab
	// Dead are the keys that the next checkpoint removes, Doomed those that the one under way does.
	Dead, Doomed Dead

	// Derived: what the books have was derived from all leaves, and not all of it is in the store yet.
	Derived bool
	at      struct { // where PutDerived goes on
		book   int
		extent uint32
	}
	unmarked bool                  // the next batch says so of those that the store has, which are being Derived
	unsure   bool                  // the next batch says that the books are not known to be right
	over     bool                  // the books have references that no page has
	said     bool                  // the store says one of these
	wrong    error                 // what was wrong in a book, nil: nothing was met
	unread   map[node.Key]struct{} // dead keys of leaves that nobody has read

	notes notes
	books []*Book
	of    []uint32 // by volume: 1 + the number of its book, 0: none
}

// Book is what the pages of the volumes of a space refer to.
type Book struct {
	number  int // its place among the books
	pool    uint16
	space   *alloc.Space
	refs    *alloc.Counts
	touched map[uint32]uint16 // extents that have changed since the last batch, and what their entries take at the most
	bytes   int               // all of these
	closed  bool              // its pool is no more: when the store has nothing of it, it forgets the space
}

// Close says that the pool of a space is no more: all that is in its book is about to be removed from the store.
func (a *Account) Close(space *alloc.Space) {
	for _, b := range a.books {
		if b.space == space {
			b.closed = true
			b.forget()
		}
	}
}

// forget forgets the space of a closed book that has nothing, behind the batch that said so.
func (b *Book) forget() {
	if b.closed && b.space != nil && len(b.touched) == 0 && b.refs.Empty() {
		b.space, b.refs, b.touched = nil, nil, nil
	}
}

// Open says which pool and which space the data of a volume lies in. The number of neither is ever used again.
func (a *Account) Open(vol uint32, pool uint16, space *alloc.Space) {
	if a.Off {
		return
	}
	for len(a.of) <= int(vol) {
		a.of = append(a.of, 0)
	}
	a.of[vol] = a.open(pool, space)
}

// open returns 1 + the number of the book of a pool, which it makes if there is none.
func (a *Account) open(pool uint16, space *alloc.Space) uint32 {
	for i, b := range a.books {
		if b.space == space {
			return uint32(i) + 1
		}
	}
	a.books = append(a.books, &Book{number: len(a.books), pool: pool, space: space, refs: space.NewCounts(), touched: map[uint32]uint16{}})
	return uint32(len(a.books))
}

// book returns the book that a volume is in. Preconditions: Open.
func (a *Account) book(vol uint32) *Book { return a.books[a.of[vol]-1] }

// Known reports whether a volume is in a book.
func (a *Account) Known(vol uint32) bool { return int(vol) < len(a.of) && a.of[vol] != 0 }

// Refs returns the references that a grain has from the pages in the store of volumes of its space.
// Preconditions: Open of such a volume.
func (a *Account) Refs(vol uint32, grain uint64) uint32 { return a.book(vol).refs.Of(grain) }

// Take notes that a leaf has taken a reference, Give that it has given one back.
func (a *Account) Take(l *List, grain uint64) { a.notes.add(l, grain<<1) }

// Give notes that a leaf has given a reference back.
func (a *Account) Give(l *List, grain uint64) { a.notes.add(l, grain<<1|1) }

// Has counts a reference of a leaf of a volume that the store has. Preconditions: the grain is in the space.
func (a *Account) Has(vol uint32, grain uint64) {
	b := a.book(vol)
	b.refs.Add(grain)
	a.touch(b, grain)
}

// Lost takes back what Has has counted: the store has the page no more.
func (a *Account) Lost(vol uint32, grain uint64) {
	b := a.book(vol)
	if b.refs.Sub(grain) {
		a.touch(b, grain)
		return
	}
	a.Unsure()
	a.wrong = cmp.Or(a.wrong, fmt.Errorf("the account of space lacks a reference of volume %d on grain %d", vol, grain))
}

// Wrong returns what was found to be wrong in what the store has, nil: nothing was. The next start derives it.
func (a *Account) Wrong() error { return a.wrong }

// Settle empties the list of a leaf of a volume: the store has it now as it is, or has it no more and it
// has nothing.
func (a *Account) Settle(vol uint32, l *List) {
	if *l == 0 {
		return
	}
	if a.book(vol).space != nil { // else the list comes to nothing
		a.notes.each(*l, false, func(g uint64) { a.Has(vol, g) })
		a.notes.each(*l, true, func(g uint64) { a.Lost(vol, g) })
	}
	a.notes.drop(l)
}

// Notes returns how many notes there are.
func (a *Account) Notes() int { return a.notes.live }

// Bytes returns the memory that books and lists take.
func (a *Account) Bytes() (n uint64) {
	for _, b := range a.books {
		n += b.refs.Bytes()
	}
	return n + uint64(cap(a.notes.all))*16 + uint64(cap(a.of))*4
}
