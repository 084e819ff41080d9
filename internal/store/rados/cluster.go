package rados

import (
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Cluster is a connection to RADOS, bound to one pool and namespace: operations on objects, and what
// fencing needs. All that the store knows of RADOS goes through here, so that the same code runs over
// librados and over a simulated cluster in virtual time.
//
// Safe for concurrent use.
type Cluster interface {
	// Submit starts an operation. Its Done is called once, by the cluster, never from inside Submit and
	// not on the executor; no two at a time. Operations on one object take effect in the order of Submit;
	// they end in any order. There is no timeout: an operation may take for ever. It must not be called
	// with more under way than the store's window has, nor for a Remove while others on its object are
	// under way, nor for others before it has ended: Ceph 16 may never answer a read among these.
	Submit(op *Op)
	// After calls fn after so many nanoseconds, as Done is called.
	After(ns int64, fn func())
	// Wait returns when until is true. That is asked at once, and behind each call of a Done or of an
	// After's fn. It must not be called from inside these.
	Wait(until func() bool)

	// Lock takes an exclusive advisory lock of an object without waiting for it: ErrBusy if somebody
	// has it. It does not expire.
	Lock(object, name, cookie string) error
	Unlock(object, name, cookie string) error
	// Lockers lists who holds a lock.
	Lockers(object, name string) ([]Locker, error)
	// BreakLock takes a lock away from its holder; ErrNotFound if he does not have it any more.
	BreakLock(object, name string, l Locker) error
	// Blocklist has the cluster refuse all operations of clients for so many seconds from now on, which it is
	// asked for all at a time: that takes about as long as for one. Its error is that of RequestError. An OSD
	// that has not heard of it yet may still take some: see LatestMap.
	Blocklist(addresses []string, seconds int) error
	// LatestMap waits until this client has the newest map of the OSDs. An OSD that gets an operation
	// of this client has at least that map then, and refuses who is blocklisted in it.
	LatestMap() error
	// Watch registers interest in an object. lost is called, as Done is, whenever the cluster may have
	// dropped this client, which may be no more than a slow answer: who hears it has to ask. The watch is
	// registered again then.
	Watch(object string, lost func(error)) error

	// Interrupt has Lock to Watch wait for no answer any more: those under way and those that follow end with
	// ErrCanceled, though what they have sent may take effect.
	Interrupt()
	// Close ends the connection. What is under way is abandoned, and Done may not be called for it.
	Close() error
}

// Locker is who holds a lock.
type Locker struct {
	Client  string // its name in the cluster, such as client.4123
	Cookie  string
	Address string // for Blocklist
}

// Errors of operations. ErrFull and ErrFenced are those of package block.
var (
	ErrNotFound = errors.New("the object does not exist")
	ErrExists   = errors.New("the object exists already")
	ErrGuard    = errors.New("the object has a newer owner")
	ErrBusy     = errors.New("another process has the lock")
	// ErrUnanswered is of a call that the client has given up, and which may have had its effect.
	ErrUnanswered = errors.New("the cluster does not answer in time")
)

// RequestError returns the error of a request of several parts to the monitors, such as Blocklist, by those of its parts; nil: all
// have ended well. A request of which a part has an answer is not unanswered: only ErrUnanswered alone says that nobody
// answers. That a part was refused because this client is fenced is the error of the whole.
func RequestError(parts []error) error {
	failed := slices.DeleteFunc(slices.Clone(parts), func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return nil
	}
	first := failed[0]
	if i := slices.IndexFunc(failed, func(err error) bool { return errors.Is(err, block.ErrFenced) }); i >= 0 {
		first = failed[i]
	}
	if slices.ContainsFunc(parts, func(err error) bool { return !errors.Is(err, ErrUnanswered) }) && errors.Is(first, ErrUnanswered) {
		return fmt.Errorf("%d of %d parts of a request failed, one of them: %v", len(failed), len(parts), first)
	}
	if len(failed) == 1 {
		return first
	}
	return fmt.Errorf("%d of %d parts of a request failed, one of them: %w", len(failed), len(parts), first)
}

// Op is an operation on one object: its steps take effect together, in their order, or not at all. An
// Op either reads or writes; guards go with both. It belongs to the cluster from Submit to Done, with
// all that it refers to.
type Op struct {
	Object string
	Steps  []Step
	Err    error
	Done   func(*Op)
	// Priv belongs to the cluster.
	Priv any

	// The store's: what follows Done, first without and then with Store.mu, and the lane that the operation
	// counts in, with so many bytes.
	first, then func(*Op)
	lane        *lane
	size        int
	began       int64 // when it was sent
	trial       bool  // a guard may fail: that says nothing of who owns the array
	awaited     bool  // its end is what somebody waits for who can do nothing else
}

// Kind is what a step does.
type Kind uint8

// The kinds of steps.
const (
	Guard       Kind = iota // the attribute Name is Value, else ErrGuard
	GuardAtMost             // the attribute Name is Value or less, as text, else ErrGuard
	Exists                  // the object is there, else ErrNotFound; of operations that write
	Create                  // the object exists afterwards; with Exclusive, and did not before, else ErrExists
	SetAttr                 // the attribute Name becomes Value
	Write                   // Data goes to Off
	Replace                 // Data becomes all that the object holds
	Zero                    // N bytes from Off read as zeros; an object that does not exist is not made
	Remove                  // the object is removed, or ErrNotFound; no other step but guards is in the operation
	OmapSet                 // Pairs become entries
	OmapRemove              // the entries of the keys of Pairs go; the object must exist
	Read                    // Buf gets what lies at Off: N bytes, fewer at the end of the object
	OmapGet                 // Pairs, with keys, get their values, nil where there is no entry
	OmapList                // Pairs become up to Max entries behind the key After that begin with Prefix; More: there are more
)

// Step is a part of an Op. Keys of entries are of any bytes but 0.
type Step struct {
	Kind      Kind
	Exclusive bool
	More      bool
	Name      string
	Value     string
	Off       uint64
	N         uint64
	Data      [][]byte
	Buf       []byte
	Pairs     []Pair
	After     string
	Prefix    string
	Max       int
}

// Pair is an entry of an object's ordered map.
type Pair struct {
	Key   string
	Value []byte
}

// Reads reports whether the operation is one that reads.
func (o *Op) Reads() bool {
	for i := range o.Steps {
		switch o.Steps[i].Kind {
		case Guard, GuardAtMost, Exists:
		default:
			return o.Steps[i].Kind >= Read
		}
	}
	return true
}

// Bytes is what the operation takes of the window.
func (o *Op) Bytes() int {
	n := 0
	for i := range o.Steps {
		s := &o.Steps[i]
		n += len(s.Buf)
		for _, b := range s.Data {
			n += len(b)
		}
		for _, p := range s.Pairs {
			n += len(p.Key) + len(p.Value)
		}
	}
	return n
}
