// The state machine of a page. A state says what the page waits for, and so where it is listed;
// which stage of a flush or of a sync takes it along is the business of the queue that it is in.
//
//	                    +--------------------> superseded -------+
//	        install     |  overwritten, dropped   ^              | flushed
//	free -----------> behind --> queued, ordered, direct --------+----> tombstoned --> free
//	 ^                              ^  |                         |            flushed
//	 |                              v  | sent     | failed        | synced
//	 |                           pinned+--> destaging --> written+
//	 |                                                     |  ^  |
//	 |                                                     v  |  |
//	 +---------- no payload: nothing to survive       rewriting -+
//
// Only page.to changes the state, and it holds every change against the table of transitions.

package wcache

import "slices"

// State is the state that a page is in.
type State uint8

const (
	// Free: nobody's. It is in the free ring, or is being filled within one call.
	Free State = iota
	// Filling: the data of a write is on its way into it, beside the executor. It has no address yet.
	Filling
	// Behind: dirty, and on no list, because its predecessor, an older page of its address, is on
	// its way to the back end and has to be there first.
	Behind
	// Queued: dirty, on its owner's list of its mdisk.
	Queued
	// Ordered: dirty, on the partition's list of its mdisk (DestageLRU).
	Ordered
	// Direct: dirty, on the partition's list of what a write waits for.
	Direct
	// Pinned: dirty, on the partition's list of an mdisk that is offline.
	Pinned
	// Destaging: on its way to the back end. What is written to its address lies in its successor.
	Destaging
	// Written: on the back end, in the queue for a sync of its mdisk.
	Written
	// Rewriting: a sync after it was written has failed; it is being written again.
	Rewriting
	// Superseded: overwritten or dropped, in the queue for a flush behind which no loss of power
	// can bring back what it was superseded by. It has left its partition, like the next.
	Superseded
	// Tombstoned: its descriptor says that it does not count any more; in the queue for a flush.
	Tombstoned

	numStates
)

// transitions says, as a set of bits, from which states each state may be entered; the state to
// enter is a constant wherever one changes.
var transitions = [numStates]uint32{
	Filling:    1 << Free,
	Free:       1<<Filling | 1<<Tombstoned | 1<<Superseded | 1<<Written | 1<<Rewriting,
	Behind:     1 << Free,
	Queued:     1<<Behind | 1<<Queued | 1<<Ordered | 1<<Pinned,
	Ordered:    1<<Behind | 1<<Queued | 1<<Ordered | 1<<Pinned,
	Direct:     1<<Behind | 1<<Pinned,
	Pinned:     1<<Queued | 1<<Ordered | 1<<Direct,
	Destaging:  1<<Queued | 1<<Ordered | 1<<Direct,
	Written:    1 << Destaging,
	Rewriting:  1 << Written,
	Superseded: 1<<Behind | 1<<Queued | 1<<Ordered | 1<<Direct | 1<<Pinned | 1<<Destaging,
	Tombstoned: 1<<Superseded | 1<<Written | 1<<Rewriting,
}

var stateNames = [numStates]string{"free", "filling", "behind", "queued", "ordered", "direct", "pinned", "destaging",
	"written", "rewriting", "superseded", "tombstoned"}

func (s State) String() string { return stateNames[s] }

// Dirty reports whether the page may still be written to: it has not been sent.
func (s State) Dirty() bool { return s-Behind <= Pinned-Behind }

// held reports whether the page counts in its partition.
func (s State) held() bool { return s-Behind <= Rewriting-Behind }

// to changes the state. A change that is not in the table is a fault of this package.
func (p *page) to(s State) {
	if transitions[s]>>(p.state&31)&1 == 0 {
		illegal(p.state, s)
	}
	p.state = s
}

func illegal(from, to State) {
	panic("wcache: internal error: a page that is " + from.String() + " cannot become " + to.String())
}

// list is a list of dirty pages, linked through them, oldest first; the state of a page says on which it is. See newLists.
type list struct {
	head, tail uint32
	age        uint32 // of head
}

// newLists returns an empty list for each of n mdisks.
func newLists(n int) []list { return slices.Repeat([]list{{head: NoPage, tail: NoPage}}, n) }

func (l *list) empty() bool { return l.head == NoPage }

func (c *Cache) push(l *list, i uint32) {
	p := &c.pages[i]
	p.prev, p.next = l.tail, NoPage
	if l.tail == NoPage {
		l.head, l.age = i, p.age
	} else {
		c.pages[l.tail].next = i
	}
	l.tail = i
}

func (c *Cache) unlink(l *list, i uint32) {
	p := &c.pages[i]
	if p.prev == NoPage {
		if l.head = p.next; l.head != NoPage {
			l.age = c.pages[l.head].age
		}
	} else {
		c.pages[p.prev].next = p.next
	}
	if p.next == NoPage {
		l.tail = p.prev
	} else {
		c.pages[p.next].prev = p.prev
	}
}
