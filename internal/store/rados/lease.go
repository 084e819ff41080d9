package rados

import (
	"fmt"
	"strconv"
	"strings"
)

// The lease says that the owner lives. It is an attribute of the head, and once more an entry of its ordered map, for
// attributes are compared and entries are read:
//
//	EPOCH.COUNTER.NANOSECONDS    hexadecimal; with " NAME" behind it, somebody has taken it away
//
// The owner renews it ten times within its time, guarded by what it has written before. A renewal that has ended well
// is good for seven tenths of that time from when it was sent, by the owner's clock. Who waits for the array and sees
// the same lease for a whole time by its own clock takes it away, guarded by what it has seen: either a renewal comes
// first, and it goes on waiting, or the owner's next one fails, and that one hears that it is fenced. The last one that
// has ended well was sent before the taker saw it: when the lease is taken away, the owner has ceased to serve three
// tenths before. Nobody compares times of two clocks; they may differ in speed by less than three tenths.
//
// What the lease cannot do the blocklist does: an operation that was sent in time and comes late.
const (
	leaseAttr = "lease"
	renewals  = 10 // in the time of a lease
)

// lease is what a store knows of its own. It is guarded by Store.mu.
type lease struct {
	text    string // as it was written last
	counter uint64
}

func (s *Store) leaseText(counter uint64) string {
	return fmt.Sprintf("%s.%016x.%016x", s.epoch, counter, s.opt.Lease)
}

// leaseTime returns how long a lease is good, in nanoseconds; 0: it is none.
func leaseTime(text string) int64 {
	text, _, _ = strings.Cut(text, " ")
	fields := strings.Split(text, ".")
	if len(fields) != 3 {
		return 0
	}
	n, err := strconv.ParseInt(fields[2], 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// leaseEpoch returns the epoch of a lease; -1: it says none.
func leaseEpoch(text string) int64 {
	text, _, _ = strings.Cut(text, ".")
	n, err := strconv.ParseInt(text, 16, 64)
	if err != nil {
		return -1
	}
	return n
}

func setLease(text string) []Step {
	return []Step{{Kind: SetAttr, Name: leaseAttr, Value: text}, {Kind: OmapSet, Pairs: []Pair{{Key: leaseAttr, Value: []byte(text)}}}}
}

// now is the time by which leases are measured.
func (s *Store) now() int64 {
	if s.opt.Clock != nil {
		return s.opt.Clock()
	}
	return s.exec.Now()
}

// clocks are the times by which one renewal is measured: Options.Clock and Wall.
type clocks struct{ now, wall int64 }

func (s *Store) clocks() (c clocks) {
	if c.now = s.now(); s.opt.Wall != nil {
		c.wall = s.opt.Wall()
	}
	return c
}

// extend notes a renewal that was sent at a time and has ended well.
func (s *Store) extend(sent clocks) {
	s.overAt.Store(sent.wall + s.opt.Lease/10*7)
	s.until.Store(sent.now + s.opt.Lease/10*7)
}

// Serving reports whether this process may answer hosts: it is the owner as far as anybody can know, and nobody has
// taken over. It is safe for concurrent use, and costs a look at two clocks: the time of the day ends a lease early
// where it was set forward, as behind the pause of a virtual machine, and never prolongs one. A command that began
// while it was true may be answered later: it is as if it had been answered then.
func (s *Store) Serving() bool {
	switch {
	case s.fenced.Load(), s.over.Load():
		return false
	case s.opt.Lease == 0:
		return true
	}
	return s.now() < s.until.Load() && (s.opt.Wall == nil || s.opt.Wall() < s.overAt.Load())
}

// Ownership is what an owner says of itself.
type Ownership struct {
	Epoch int64
	// Left is for how long the lease is good without a renewal, in nanoseconds, less than 0 when it has run out. Without a
	// lease it is 0.
	Left int64
	// Age is how long ago the renewal was sent that ended well last, in nanoseconds; -1: there is no lease.
	Age     int64
	Serving bool
	// Trouble is what the cluster does not take, an object map or metadata, the older one; "": nothing is known of that.
	// Since is the time of the day at which that began, in nanoseconds since 1970.
	Trouble string
	Since   int64
	// From is the time of the day at which this ownership began, likewise; 0: it has not. Fenced is how many former owners it had
	// to fence.
	From   int64
	Fenced int
}

// Ownership describes this process's ownership. It is safe for concurrent use.
func (s *Store) Ownership() Ownership {
	s.mu.Lock()
	late := s.metaLate
	if late.what == "" || s.mapsLate.what != "" && s.mapsLate.since < late.since {
		late = s.mapsLate
	}
	o := Ownership{Epoch: s.head.Epoch, Age: -1, Trouble: late.what, Since: late.since, From: s.from, Fenced: s.replaced}
	s.mu.Unlock()
	if o.Serving = s.Serving(); s.opt.Lease > 0 {
		o.Left = s.until.Load() - s.now()
		o.Age = s.opt.Lease/10*7 - o.Left
	}
	return o
}

// renewLater renews the lease in a while. Preconditions: mu is held.
func (s *Store) renewLater() {
	if s.opt.Lease > 0 {
		s.cluster.After(s.opt.Lease/renewals, func() {
			s.enter()
			defer s.leave()
			s.renew()
		})
	}
}

// renew renews the lease, for as long as the store is open. One renewal is under way at a time. Preconditions: mu is
// held.
func (s *Store) renew() {
	if s.lost != nil || s.released {
		return
	}
	if s.answers.ceded { // somebody may have taken it
		s.submit(&s.leaseLane, s.inquiry(), func(*Op) { s.renewLater() })
		return
	}
	sent, text := s.clocks(), s.leaseText(s.lease.counter+1)
	op := &Op{Object: headObject, Steps: append([]Step{s.guard(), {Kind: Guard, Name: leaseAttr, Value: s.lease.text}}, setLease(text)...)}
	s.submit(&s.leaseLane, op, func(op *Op) {
		if op.Err == nil {
			s.lease.counter, s.lease.text = s.lease.counter+1, text
			s.extend(sent)
		}
		s.renewLater()
	})
}
