package account

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSettle: a list goes into the book of its volume's space, and its memory is used again.
func TestSettle(t *testing.T) {
	a := Account{Nodes: new(node.Slab), Dead: Dead{}, Doomed: Dead{}}
	one, other := alloc.New([]int{1}, alloc.Events{}), alloc.New([]int{1}, alloc.Events{})
	a.Open(3, 1, one)
	a.Open(9, 2, other)
	a.Open(700, 1, one)
	if !a.Known(3) || a.Known(4) || a.Known(701) {
		t.Error("other volumes are known than were opened")
	}
	a.Has(3, 5)
	var l List
	for round := range 3 {
		a.Give(&l, 5) // before it is taken again
		a.Take(&l, 5)
		a.Take(&l, 6)
		if a.Notes() != 3 {
			t.Errorf("round %d: %d notes", round, a.Notes())
		}
		a.Settle(700, &l)
		if got := a.Refs(3, 6); got != uint32(round)+1 || a.Refs(3, 5) != 1 || a.Refs(9, 6) != 0 || l != 0 || a.Notes() != 0 {
			t.Errorf("round %d: %d references, %d notes", round, got, a.Notes())
		}
	}
	a.Take(&l, 6)
	a.Freed(&node.Node{Notes: l})
	l = 0
	if n := len(a.notes.all); n != 3 || a.Refs(3, 6) != 3 || l != 0 {
		t.Errorf("%d notes were made; %d references", n, a.Refs(3, 6))
	}
	if a.Wrong() != nil {
		t.Error(a.Wrong())
	}
	a.Lost(9, 5)
	said := false
	a.EndBatch(func(key, value []byte) { said = said || string(key) == Prefix && value != nil })
	if a.Wrong() == nil || !said {
		t.Errorf("a reference was given back that the book lacks: %v; the store says so: %v", a.Wrong(), said)
	}
}

// TestOff: where nothing is stored there are no books.
func TestOff(t *testing.T) {
	a := Account{Off: true}
	a.Open(3, 1, alloc.New([]int{1}, alloc.Events{}))
	if a.Known(3) || a.Bytes() != 0 {
		t.Error("there is a book")
	}
}

// TestUnread: the store says that the books have too much with the batch that takes the page of a leaf away which nobody has
// read, be that removed or replaced, and not before. It does not say so where they are not known to be right, and says so again
// when they are derived.
func TestUnread(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		a := Account{Nodes: new(node.Slab), Dead: Dead{}, Doomed: Dead{}}
		a.Open(3, 1, alloc.New([]int{1}, alloc.Events{}))
		said := func() (said bool) {
			a.EndBatch(func(key, value []byte) { said = said || string(key) == Prefix && MarkOf(value) == TooMuch })
			return said
		}
		k := node.LeafKey(3, 0)
		a.Unread(k)
		if said() {
			t.Errorf("replaced %v: while the page is there the books are not right", replaced)
		}
		if replaced {
			a.Written(&node.Node{Vol: 3})
		} else if a.Doom(); !a.Removed(k) {
			t.Error("it is not removed")
		}
		if !said() || said() {
			t.Errorf("replaced %v: the store does not say that the books have too much, or says so twice", replaced)
		}
		a.Unsure()
		said()
		if a.over = true; said() {
			t.Errorf("replaced %v: the store says that the books are right but for what they have too much", replaced)
		}
		for a.Derive(false); a.Derived; {
			a.PutDerived(func(_, _ []byte) {})
		}
		if !said() || !a.HasTooMuch() {
			t.Errorf("replaced %v: the store does not say it when the books were derived", replaced)
		}
	}
}
