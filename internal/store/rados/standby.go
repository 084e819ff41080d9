package rados

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
)

// Standby is what a process knows that waits for an array.
type Standby struct {
	Owner string // who has the lock
	Link  string // where that one's link is; "": it has none
	Epoch int64  // of the owner
	Age   int64  // for how long its lease has been seen unchanged, in nanoseconds
	// Trouble is why the array cannot be looked at; "": it can.
	Trouble string
}

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
	if s.standby.Trouble == "" {
		s.notice("the array cannot be looked at: %v; it is tried again", err)
	}
	s.standby.Trouble = err.Error()
	s.tellWaits()
}

func (s *Store) tellWaits() {
	if s.opt.Waits != nil {
		s.opt.Waits(s.standby)
	}
}

// outwait waits until who holds the lock has given it back, has died, or lets its lease run out, which is then taken
// away. It returns false when the lock is not that one any more. An array that is not to be served here is left alone:
// that is found out before anything is taken from anybody.
func (s *Store) outwait(l Locker) (bool, error) {
	s.notice("the array is open: %s; waiting for it", l)
	w := watch{l: l}
	for first := true; ; first = false {
		if !first {
			s.sleep(s.opt.Lease / renewals)
		}
		if s.canceled() {
			return false, ErrCanceled
		}
		gone, other, err := w.look(s)
		switch {
		case gone || other:
			return gone, nil
		case err == nil:
			s.standby.Trouble = ""
			s.tellWaits()
		case final(err):
			return false, err
		default:
			w.seen = "" // what the owner has done meanwhile nobody knows
			s.hiccup(err)
		}
	}
}

// watch is what is known of the lease of who holds a lock.
type watch struct {
	l     Locker
	fits  bool   // the array is one that may be served here
	seen  string // the lease, as it was last
	since int64  // and has been
}

// look looks at the lease: gone says that it was taken away, or that its owner is dead, and other that the lock is another
// one's now.
func (w *watch) look(s *Store) (gone, other bool, err error) {
	asked := s.now()
	list, err := s.cluster.Lockers(headObject, lockName)
	if err != nil || len(list) == 0 || list[0] != w.l {
		return false, err == nil, err
	}
	if !w.fits {
		if err := s.readSuits(); err != nil {
			return false, false, err
		}
		w.fits = true
	}
	if s.dead(w.l) {
		s.notice("the array's owner has died: %s; it is fenced", w.l)
		return true, false, nil
	}
	sent := s.now()
	text, err := s.readLease()
	if err != nil {
		return false, false, err
	}
	// Where the head did not answer for long, it did not answer its owner either. That one gets the time of a lease from
	// when it does.
	now := s.now()
	if slow := now-sent > s.opt.Lease*2/renewals; slow || text != w.seen || w.seen == "" {
		w.seen, w.since = text, now
	}
	epoch, _, _ := strings.Cut(text, ".")
	o, _ := w.l.owner()
	s.standby.Owner, s.standby.Link, s.standby.Age = w.l.String(), o.Link, now-w.since
	s.standby.Epoch, _ = strconv.ParseInt(epoch, 16, 64)
	long := leaseTime(text)
	if long == 0 || asked-w.since < max(long, s.opt.Lease) {
		return false, false, nil
	}
	if err := s.readSuits(); err != nil { // once more: it may have been being made
		return false, false, err
	}
	if gone, err = s.takeLease(text); gone {
		s.notice("the array's owner has let its lease run out: %s; it is fenced", w.l)
	}
	return gone, false, err
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
