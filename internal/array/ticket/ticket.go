// Package ticket is how a request waits. Who lacks something queues its ticket for that, and is
// resumed when whoever gives it back wakes the ticket at the head: nobody else is, and nobody asks
// who could go on.
//
// A ticket is a part of what waits (it is linked through itself), so that waiting allocates
// nothing. It stands in at most one queue. A queue is for one resource.
//
// # Who owns what
//
// The waiter owns its ticket: it queues it, and may take it out again (Leave). The owner of a
// resource owns the queue, decides whom it wakes, and wakes only when it has what the waiter asked
// for, or when only the waiter can tell. Package ticket does neither: it keeps the order.
package ticket

// Resource is what somebody can lack.
type Resource uint8

// Resources.
const (
	Nothing    Resource = iota
	Room                // pages: of a partition, or of what pools share
	Budget              // a share of a partition for offloads
	Log                 // room in the log
	Lock                // a range that somebody else has locked
	Space               // grains that transfers still pin
	CopyEngine          // bytes that copies may have under way
	CopyRead            // a read of a copy's source
	Turn                // nothing, but others go first
	BackEnd             // the mdisks have not all that was written
	Map                 // a leaf of a map that is not in memory
)

var names = [...]string{"nothing", "room", "budget", "log", "lock", "space", "copy engine", "copy read", "turn", "back end", "map"}

func (r Resource) String() string { return names[r] }

// Set is a set of resources.
type Set uint16

// SetOf returns the set of some resources.
func SetOf(rs ...Resource) (s Set) {
	for _, r := range rs {
		s.Add(r)
	}
	return s
}

// Has reports whether the set has a resource.
func (s Set) Has(r Resource) bool { return s>>(r&15)&1 != 0 }

// Add puts a resource into the set.
func (s *Set) Add(r Resource) { *s |= 1 << (r & 15) }

// Take takes a resource out of the set, and reports whether it was in it.
func (s *Set) Take(r Resource) bool {
	had := s.Has(r)
	*s &^= 1 << (r & 15)
	return had
}

// Waiter is who has a ticket.
type Waiter interface {
	// Resume goes on with what waited. The ticket stands in no queue when it is called.
	Resume()
}

// Ticket is a place in a queue. Its zero value needs Init.
type Ticket struct {
	// Since is since when its waiter gets nothing, in the executor's nanoseconds; 0: it does not
	// wait, or nobody asks for how long. The waiter sets and clears it: a wait for one thing after
	// another may be one for its host.
	Since int64
	// Rank orders a queue that is filled with PushRanked: 0 goes first.
	Rank uint8

	of         Resource
	waiter     Waiter
	in         *Queue
	prev, next *Ticket
}

// Init gives a ticket to its waiter, for good: what is recycled keeps it.
func (t *Ticket) Init(w Waiter) { t.waiter = w }

// Reset makes a recycled waiter's ticket a new one. Precondition: it stands in no queue.
func (t *Ticket) Reset() { t.Since, t.Rank, t.of = 0, 0, Nothing }

// Waiter returns whose ticket it is.
func (t *Ticket) Waiter() Waiter { return t.waiter }

// Queued reports whether the ticket stands in a queue.
func (t *Ticket) Queued() bool { return t.in != nil }

// In reports whether the ticket stands in this queue.
func (t *Ticket) In(q *Queue) bool { return t.in == q }

// For returns what the ticket waits for; what it waited for last, if it stands in no queue.
func (t *Ticket) For() Resource { return t.of }

// Next returns the ticket behind this one, nil if it is the last.
func (t *Ticket) Next() *Ticket { return t.next }
