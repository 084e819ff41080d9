package rados

import (
	"errors"
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

// extend notes a renewal that was sent at a time and has ended well.
func (s *Store) extend(sent int64) { s.until.Store(sent + s.opt.Lease/10*7) }

// Serving reports whether this process may answer hosts: it is the owner as far as anybody can know, and nobody has
// taken over. It is safe for concurrent use, and costs a look at the clock. A command that began while it was true
// may be answered later: it is as if it had been answered then.
func (s *Store) Serving() bool {
	return !s.fenced.Load() && (s.opt.Lease == 0 || s.now() < s.until.Load())
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
	sent, text := s.now(), s.leaseText(s.lease.counter+1)
	op := &Op{Object: headObject, Steps: append([]Step{s.guard(), {Kind: Guard, Name: leaseAttr, Value: s.lease.text}}, setLease(text)...)}
	s.submit(&s.leaseLane, op, func(op *Op) {
		if op.Err == nil {
			s.lease.counter, s.lease.text = s.lease.counter+1, text
			s.extend(sent)
		}
		s.renewLater()
	})
}

// readLease reads the lease as it is; "": there is none.
func (s *Store) readLease() (string, error) {
	op := &Op{Object: headObject, Steps: []Step{{Kind: OmapGet, Pairs: []Pair{{Key: leaseAttr}}}}}
	err := s.do(op)
	return string(op.Steps[0].Pairs[0].Value), err
}

// outwait waits until who holds the lock has given it back, has died, or lets its lease run out, which is then taken
// away. It returns false when the lock is not that one any more.
func (s *Store) outwait(l Locker) (bool, error) {
	s.notice("the array is open: %s; waiting for it", l)
	var was string
	var since int64
	for first := true; ; first = false {
		if !first {
			s.sleep(s.opt.Lease / renewals)
		}
		if s.opt.Cancel != nil && s.opt.Cancel() {
			return false, ErrCanceled
		}
		list, err := s.cluster.Lockers(headObject, lockName)
		if err != nil || len(list) == 0 || list[0] != l {
			return false, err
		}
		if s.dead(l) {
			s.notice("the array's owner has died: %s; it is fenced", l)
			return true, nil
		}
		asked := s.now()
		text, err := s.readLease()
		if err != nil {
			return false, err
		}
		if text != was || first {
			was, since = text, s.now()
			continue
		}
		long := leaseTime(text)
		if long == 0 || asked-since < max(long, s.opt.Lease) {
			continue
		}
		took, err := s.takeLease(text)
		if err != nil {
			return false, err
		}
		if took {
			s.notice("the array's owner has let its lease run out: %s; it is fenced", l)
			return true, nil
		}
		was, since = "", s.now()
	}
}

// takeLease takes away a lease that was seen; false: it was renewed or taken meanwhile.
func (s *Store) takeLease(seen string) (bool, error) {
	own, _, _ := strings.Cut(seen, " ")
	err := s.do(&Op{Object: headObject, trial: true,
		Steps: append([]Step{{Kind: Guard, Name: leaseAttr, Value: seen}}, setLease(own+" "+s.opt.Cookie)...)})
	if errors.Is(err, ErrGuard) {
		return false, nil
	}
	return err == nil, err
}

// sleep waits for so many nanoseconds.
func (s *Store) sleep(ns int64) {
	over := false
	s.cluster.After(ns, func() {
		s.enter()
		defer s.leave()
		over = true
	})
	s.wait(func() bool { return over })
}
