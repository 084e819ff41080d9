package rados

import (
	"errors"
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
)

// Standby is what a process knows that waits for an array.
type Standby struct {
	Owner string // who has the lock; "": nobody was seen to
	Link  string // where that one's link is; "": it has none, or nobody knows
	Epoch int64  // the array's, which its owner has raised it to; 0: it has none yet, -1: it is not known
	// Age is how long ago its lease was seen renewed last, in nanoseconds; -1: it was not seen to be.
	Age int64
	// Taking: this process has the lock, and has not raised the epoch yet.
	Taking bool
	// Trouble is why the array cannot be looked at; "": it can. Since is the time of the day at which that began, in
	// nanoseconds since 1970.
	Trouble string
	Since   int64
}

// troubled notes why the array cannot be looked at, and since when, unless something else was in its way before; it reports
// whether nothing was. Preconditions: mu is held.
func (s *Store) troubled(what string, since int64) (first bool) {
	if first = s.standby.Trouble == ""; first {
		s.standby.Since = since
	}
	s.standby.Trouble, s.standby.Age = what, -1
	return first
}

// calm notes that nothing is in the way any more. Preconditions: mu is held.
func (s *Store) calm() { s.standby.Trouble, s.standby.Since = "", 0 }

// refusal is an error that no wait ends: this process was told to serve another array, or otherwise.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refused(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// final reports whether a standby ends with an error. All others may pass: a cluster in trouble is waited for.
func final(err error) bool {
	var r refusal
	return errors.As(err, &r) || errors.Is(err, block.ErrFenced) || errors.Is(err, ErrCanceled) || errors.Is(err, ErrTaken) || errors.Is(err, ErrNotFound)
}

func (s *Store) canceled() bool { return s.opt.Cancel != nil && s.opt.Cancel() }

// hiccup notes an error that may pass, in one line for all that follow each other.
func (s *Store) hiccup(err error) {
	s.enter()
	if s.troubled(err.Error(), s.wallTime()) {
		s.say("the array cannot be examined: %v; it is tried again", err)
	}
	s.leave()
	s.tellWaits()
}

// tellWaits tells who wants to hear of it what the process waits for.
func (s *Store) tellWaits() {
	if s.opt.Waits != nil {
		s.enter()
		seen := s.standby
		s.leave()
		s.opt.Waits(seen)
	}
}

// outwait waits until who holds the lock has given it back, has died, or lets its lease run out, which is then taken
// away, and returns why it is gone; "": the lock is not that one any more. An array that is not to be served here is left
// alone: that is found out before anything is taken from anybody.
func (s *Store) outwait(l Locker) (why string, err error) {
	s.notice("the array is open: %s; waiting for it", l)
	w := watch{l: l}
	for first := true; ; first = false {
		if !first {
			s.pause()
		}
		if s.canceled() {
			return "", ErrCanceled
		}
		why, other, err := w.look(s)
		switch {
		case why != "" || other:
			return why, nil
		case err == nil:
			s.enter()
			s.calm()
			s.leave()
			s.tellWaits()
		case final(err):
			return "", err
		default:
			w.known = false // what the owner has done meanwhile nobody knows
			s.hiccup(err)
		}
	}
}

// watch is what is known of the lease of who holds a lock.
type watch struct {
	l       Locker
	fits    bool   // the array is one that may be served here
	known   bool   // the lease was looked at, and all went well since
	seen    string // the lease, as it was last
	since   int64  // and has been
	silent  int64  // of that time, how much this process had its own answers in
	looked  int64  // when the last look ended
	renewed bool   // it was seen to change
}

// look looks at the lease: why says that it was taken away, or that its owner is dead, and other that the lock is another
// one's now.
func (w *watch) look(s *Store) (why string, other bool, err error) {
	list, err := s.lockers()
	if err != nil || len(list) == 0 || list[0] != w.l {
		return "", err == nil, err
	}
	if !w.fits {
		if err := s.readSuits(); err != nil {
			return "", false, err
		}
		w.fits = true
	}
	if s.dead(w.l) {
		return "has died", false, nil
	}
	text, err := s.readLease()
	if err != nil {
		return "", false, err
	}
	long, epoch, err := s.leaseFor(text)
	if err != nil {
		return "", false, err
	}
	w.note(s, text, epoch)
	if long == 0 || w.silent < max(long, s.opt.Lease) {
		return "", false, nil
	}
	if err := s.readSuits(); err != nil { // once more: it may have been being made
		return "", false, err
	}
	if taken, err := s.takeLease(text); err != nil || !taken {
		return "", false, err
	}
	return "has let its lease run out", false, nil
}

// note notes the lease as it was read. Where the head or its lock did not answer for long they did not answer the owner
// either, and where this process did not look nobody knows what it would have seen: then the owner gets the time of a lease
// from now on. Several shorter outages are no better than a long one: only the time counts in which this process had its
// answers. A look that took long counts as one that had followed the last one at once, so that an owner that is dead is
// replaced in a slow cluster, too.
func (w *watch) note(s *Store, text string, epoch int64) {
	now := s.now()
	if w.known && text != w.seen {
		w.renewed = true
	}
	gap, pause := now-w.looked, s.opt.Lease/renewals
	switch {
	case !w.known, text != w.seen, gap > s.opt.Lease/2:
		w.seen, w.since, w.silent = text, now, 0
	case gap > 2*pause:
		w.silent += pause
	default:
		w.silent += gap
	}
	w.known, w.looked = true, now
	s.enter()
	defer s.leave()
	who, _ := w.l.owner()
	s.standby.Owner, s.standby.Link, s.standby.Age = w.l.String(), who.Link, -1
	if w.renewed {
		s.standby.Age = now - w.since
	}
	s.standby.Epoch = epoch
}

// leaseFor returns for how long a lease is good, in nanoseconds, and the array's epoch; 0: it never runs out. The first owner of
// a new array has none before its first epoch, and the time of one all the same.
func (s *Store) leaseFor(text string) (long, epoch int64, err error) {
	if long, epoch = leaseTime(text), leaseEpoch(text); long > 0 {
		return long, epoch, nil
	}
	h, err := s.readHead()
	if err == nil && h.Epoch == 0 {
		long = s.opt.Lease
	}
	return long, h.Epoch, err
}

// readSuits reads the head, and refuses an array that is not to be served here.
func (s *Store) readSuits() error {
	h, err := s.readHead()
	if err != nil {
		return err
	}
	return s.suits(&h)
}

// readLease reads the lease as it is; "": there is none.
func (s *Store) readLease() (string, error) {
	op := &Op{Object: headObject, Steps: []Step{{Kind: OmapGet, Pairs: []Pair{{Key: leaseAttr}}}}}
	err := s.do(op)
	return string(op.Steps[0].Pairs[0].Value), err
}

// takeLease takes away a lease that was seen; false: it was renewed or taken meanwhile. What it writes was never written
// before, so that who had read the lease before knows that by it.
func (s *Store) takeLease(seen string) (bool, error) {
	own, _, _ := strings.Cut(seen, " ")
	s.taken++
	err := s.do(&Op{Object: headObject, trial: true,
		Steps: append([]Step{{Kind: Guard, Name: leaseAttr, Value: seen}}, setLease(fmt.Sprintf("%s %s.%d", own, s.opt.Cookie, s.taken))...)})
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
	s.wait(func() bool { return over || s.lost != nil })
}
