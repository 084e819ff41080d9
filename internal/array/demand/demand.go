// Package demand is the pages of maps that somebody wants in memory, which need not be there: which are
// being read, who waits for one, and which must not leave. It knows no map and no page: only keys.
//
// # Ownership
//
// A [Table] belongs to one executor. Whoever has [Pins] releases them.
//
// # Time
//
// A read of a leaf has no end of its own: a page that comes late is as good as one in time, and to give the read up
// would only have the next one wait for the same disk. Who waits for it has one: see Table.Late. So a host has its
// answer before it would abort the command, and the table has no more than one read for each leaf. Before that the source
// hears that the page does not come: see Table.Hurry.
package demand

import (
	"cmp"
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/array/ticket"
)

// Key is a leaf of a volume's map.
type Key struct {
	Volume uint32
	Leaf   uint64
}

// Source has the pages of leaves that are absent; see metadata.Ledger.
type Source interface {
	// Read calls done on the executor, never from inside.
	Read(key []byte, done func(value []byte, err error))
	// Hurry says that an answer to Read does not come: it may be had elsewhere.
	Hurry(key []byte)
	// ReadNow waits.
	ReadNow(key []byte) ([]byte, error)
}

// Hooks are what a Table asks and tells its user.
type Hooks struct {
	// Name returns the name that the source has for a leaf.
	Name func(Key) []byte
	// Put puts a page where it belongs; err says that it could not be read. It returns why it is of no use.
	Put func(k Key, page []byte, err error) error
	// Heard: a leaf has come, or could not, and who waited for it has gone on.
	Heard func()
	// Asked: a leaf is being read. Until there is none, Late is called every now and then.
	Asked func()
	// Turned: a leaf is late, or one has ended that was.
	Turned func()
	// Now returns the time in nanoseconds.
	Now func() int64
}

// ErrLate says that a leaf has not come in time. It may still come.
var ErrLate = errors.New("it was not read in time")

// Table is what is wanted.
type Table struct {
	Hooks Hooks
	From  Source

	reads   map[Key]*reading
	failing error // of the leaf whose waiters are being woken
	failed  int
	closed  bool

	fresh map[Key]struct{} // in entries of a checkpoint that may not be durable yet
	pins  []*Pins
	index index // of pins
}

// reading is a leaf on its way into memory.
type reading struct {
	key   Key
	wait  ticket.Queue // who waits for it; all of them go on when it has come, or could not, or is late
	since int64
	late  bool
	slow  bool // the source was told to hurry
}

// Read has a leaf read, if it is not on its way already, and returns the queue of those who wait for it.
// Whoever is woken there asks again for what it needs, unless Failing says that the leaf could not be read.
func (t *Table) Read(k Key) *ticket.Queue {
	x := t.reads[k]
	if x == nil {
		if t.reads == nil {
			t.reads = map[Key]*reading{}
		}
		x = &reading{key: k, wait: ticket.Queue{Of: ticket.Map}, since: t.Hooks.Now()}
		t.reads[k] = x
		t.From.Read(t.Hooks.Name(k), func(page []byte, err error) { t.arrived(x, page, err) })
		t.Hooks.Asked()
	}
	return &x.wait
}

// Close forgets what is being read: nothing happens when it comes. Preconditions: nobody waits for it.
func (t *Table) Close() { t.closed, t.reads = true, nil }

func (t *Table) arrived(x *reading, page []byte, err error) {
	if t.closed {
		return
	}
	delete(t.reads, x.key)
	if err = t.Hooks.Put(x.key, page, err); err != nil {
		t.failed++
	}
	t.wake(x, err)
	if x.late {
		t.Hooks.Turned()
	}
	t.Hooks.Heard()
}

func (t *Table) wake(x *reading, failing error) {
	t.failing = failing
	x.wait.WakeAll()
	t.failing = nil
}

// overdue returns what is being read since a time or longer, in the order in which it was asked for.
func (t *Table) overdue(since int64) (list []*reading) {
	for _, x := range t.reads {
		if x.since <= since {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(x, y *reading) int {
		return cmp.Or(cmp.Compare(x.since, y.since), cmp.Compare(x.key.Volume, y.key.Volume), cmp.Compare(x.key.Leaf, y.key.Leaf))
	})
	return list
}

// Hurry tells the source of leaves that are being read since a time or longer, once of each.
func (t *Table) Hurry(since int64) {
	for _, x := range t.overdue(since) {
		if !x.slow {
			x.slow = true
			t.From.Hurry(t.Hooks.Name(x.key))
		}
	}
}

// Late ends the waits for leaves that are being read since a time or longer, with ErrLate, and reports whether there
// are any. Those are still being read.
func (t *Table) Late(since int64) bool {
	late := t.overdue(since)
	for _, x := range late {
		if !x.late {
			x.late = true
			t.Hooks.Turned()
		}
		t.wake(x, ErrLate)
	}
	return len(late) > 0
}

// Since returns since when the leaf is being read that has been for the longest time. Preconditions: Reads.
func (t *Table) Since() int64 {
	since := t.Hooks.Now()
	for _, x := range t.reads {
		since = min(since, x.since)
	}
	return since
}

// ReadNow reads the page of a leaf. It waits.
func (t *Table) ReadNow(k Key) ([]byte, error) { return t.From.ReadNow(t.Hooks.Name(k)) }

// Reading returns the queue of a leaf that is on its way into memory, nil if it is not.
func (t *Table) Reading(k Key) *ticket.Queue {
	if x := t.reads[k]; x != nil {
		return &x.wait
	}
	return nil
}

// Reads returns how many leaves are on their way into memory.
func (t *Table) Reads() int { return len(t.reads) }

// Timely returns how many of them are not late.
func (t *Table) Timely() (n int) {
	for _, x := range t.reads {
		if !x.late {
			n++
		}
	}
	return n
}

// Failing returns why the leaf could not be read, or not yet, whose waiters are being woken now, nil if it was.
func (t *Table) Failing() error { return t.failing }

// Failed returns how many leaves could not be read.
func (t *Table) Failed() int { return t.failed }

// Call has fn called when the leaf of a queue has come, or could not be read, or is late.
func (t *Table) Call(q *ticket.Queue, fn func(error)) {
	c := &called{table: t, fn: fn}
	c.ticket.Init(c)
	q.Push(&c.ticket)
}

// called is a function that waits for a leaf.
type called struct {
	ticket ticket.Ticket
	table  *Table
	fn     func(error)
}

// Resume implements ticket.Waiter.
func (c *called) Resume() { c.fn(c.table.failing) }

// Written hears of a leaf in an entry of a checkpoint: it must not leave before Settle, and never if there is none
// because that has failed.
func (t *Table) Written(k Key) {
	if t.fresh == nil {
		t.fresh = map[Key]struct{}{}
	}
	t.fresh[k] = struct{}{}
}

// Settle hears that all entries of checkpoints are durable.
func (t *Table) Settle() { clear(t.fresh) }

// Needed reports whether a leaf must not leave.
func (t *Table) Needed(k Key) bool {
	if _, fresh := t.fresh[k]; fresh {
		return true
	}
	return t.kept(k)
}
