package rados

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// How a start waits: for what may never answer, for monitors in trouble, and until it is canceled.
const (
	heedEvery = 200e6 // between two looks at Options.Cancel, in nanoseconds
	// heedGrace is for how many of them a start goes on that has the lock: it may be about to end, or to give it back.
	heedGrace = 25

	answerTick = 1e9  // between two looks at what has no answer
	answerLate = 10e9 // then it is said
)

// acquire takes possession of the array, and raises the epoch. A start that fails behind the lock gives it back.
func (s *Store) acquire() error {
	s.epoch = epochText(0)
	s.heed(0)
	if err := s.makeHead(); err != nil {
		return wrap("the array in the pool cannot be examined", err)
	}
	if err := s.lock(); err != nil {
		return err
	}
	err := s.raise()
	raised := err == nil
	if raised {
		s.enter()
		s.standby.Epoch, s.standby.Taking = s.head.Epoch, false
		s.leave()
		s.tellWaits()
	}
	if err == nil {
		err = s.patiently("earlier owners that were fenced cannot be kept out", s.keepOut)
	}
	if err == nil {
		err = s.patiently("the array cannot be watched", func() error {
			return s.ask("the watch of "+headObject, func() error { return s.cluster.Watch(headObject, s.suspect) })
		})
	}
	if err != nil {
		return s.giveUp(err, raised)
	}
	s.enter()
	s.emptyTrash()
	s.leave()
	return nil
}

// giveUp gives the array back behind an error. A process that had raised the epoch has nothing under way then that the
// next one would have to fence.
func (s *Store) giveUp(err error, raised bool) error {
	s.enter()
	s.released = true
	if raised && s.lost == nil {
		s.head.Address = ""
		s.change(nil, nil)
	}
	s.leave()
	s.wait(func() bool { return s.lost != nil || s.leaseLane.ops == 0 && s.headers.idle() })
	err = wrap("the array cannot be taken over", err)
	if failed := s.unlock(s.cookie); failed != nil && !errors.Is(failed, ErrCanceled) && !errors.Is(failed, block.ErrFenced) {
		err = also(err, wrap("its lock cannot be released", failed))
	}
	return err
}

// patiently does what needs the monitors, again and again while they are in trouble, for so long as Options.Patience says. The
// lease is renewed meanwhile.
func (s *Store) patiently(what string, fn func() error) error {
	const pause = 1e9
	s.enter()
	s.await("") // between two tries it waits as well
	s.leave()
	defer func() {
		s.enter()
		s.answered(false)
		s.leave()
	}()
	begin, said := s.now(), false
	for {
		err := fn()
		s.mu.Lock()
		lost := s.lost
		s.mu.Unlock()
		switch {
		case err == nil:
			return nil
		case lost != nil:
			return lost
		case s.canceled():
			return ErrCanceled
		case final(err) || s.now()-begin >= s.opt.Patience:
			return wrap(what, err)
		case !said:
			said = true
			s.notice("%s: %v; it is tried again", what, err)
		}
		s.sleep(pause)
	}
}

// heed looks at Options.Cancel until the array is served, or cannot be, and has what waits end with ErrCanceled. tries is how
// often it was canceled before.
func (s *Store) heed(tries int) {
	if s.opt.Cancel == nil {
		return
	}
	s.cluster.After(heedEvery, func() {
		canceled := s.opt.Cancel()
		if canceled {
			tries++
		}
		s.enter()
		over := s.started
		if !over && canceled && (!s.locked || tries > heedGrace) {
			over = true
			s.interrupt()
			defer s.cluster.Interrupt()
		}
		s.leave()
		if !over {
			s.heed(tries)
		}
	})
}

// answers is what is known of the cluster while somebody waits for it who can do nothing else, as a start does. It is
// guarded by Store.mu.
type answers struct {
	waiting int    // who waits
	what    string // that was asked for last
	ended   uint64 // answers to who waits: what goes on besides says nothing of those
	seen    uint64 // of them, when somebody looked last
	quiet   int64  // for how long nothing has ended that somebody waits for, in nanoseconds
	ticking bool
	// ceded: the lease is not renewed, for this process serves nobody while it waits.
	ceded bool
}

// ask asks the cluster for something and waits for the answer.
func (s *Store) ask(what string, fn func() error) error {
	s.enter()
	s.await(what)
	s.leave()
	err := fn()
	s.enter()
	s.answered(!errors.Is(err, ErrUnanswered) && !errors.Is(err, ErrCanceled))
	s.leave()
	return err
}

// waitFor waits as wait does, for who can do nothing else. It ends with an error when the start is canceled, or the array
// has a new owner: what has no answer does not matter then.
func (s *Store) waitFor(what string, until func() bool) error {
	s.enter()
	s.await(what)
	s.leave()
	var ended bool
	var lost error
	s.wait(func() bool {
		ended, lost = until(), s.lost
		return ended || lost != nil
	})
	s.enter()
	s.answered(ended)
	s.leave()
	if ended {
		return nil
	}
	return lost
}

// Opened says that the array is served: nobody cancels its start any more. Where somebody has, it is not to be served, and the
// error is ErrCanceled. Safe for concurrent use.
func (s *Store) Opened() error {
	s.enter()
	defer s.leave()
	if s.started, s.flights = true, nil; s.interrupted {
		return ErrCanceled
	}
	return nil
}

// bound has Close wait no more when nothing has ended for as long as Options.Patience says: from endings on, since a time.
// Preconditions: mu is held.
func (s *Store) bound(endings uint64, since int64) {
	s.cluster.After(answerTick, func() {
		s.enter()
		stop := false
		switch now := s.now(); {
		case s.lost != nil:
		case s.endings != endings:
			s.bound(s.endings, now)
		case now-since < s.opt.Patience:
			s.bound(endings, since)
		default:
			s.abandoned, s.released, stop = true, true, true
			s.say("the cluster has not answered for %d s: the process ends anyway", (now-since)/1e9)
		}
		s.leave()
		if stop {
			s.cluster.Interrupt()
		}
	})
}

// await notes that somebody waits from now on. Preconditions: mu is held.
func (s *Store) await(what string) {
	a := &s.answers
	if what != "" {
		a.what = what
	}
	if a.waiting++; !a.ticking {
		a.ticking, a.quiet, a.seen = true, 0, a.ended
		s.cluster.After(answerTick, s.tick)
	}
}

// answered notes that somebody waits no more, and whether the cluster has answered. Preconditions: mu is held.
func (s *Store) answered(ended bool) {
	if s.answers.waiting--; ended {
		s.answers.ended++
	}
}

// tick looks at what somebody waits for, says when it has no answer for long, and lets the lease go that a process renews
// which does nothing but wait: another one may be able to serve.
func (s *Store) tick() {
	s.enter()
	a := &s.answers
	if a.waiting == 0 && a.quiet == 0 || s.lost != nil || s.interrupted {
		a.ticking = false
		s.leave()
		return
	}
	was := a.quiet
	if a.quiet += answerTick; a.ended != a.seen || a.waiting == 0 {
		a.seen, a.quiet = a.ended, 0
	}
	tell := false
	switch {
	case a.quiet == 0 && was >= answerLate:
		s.say("the cluster answers again")
		tell = true
		s.calm()
	case a.quiet == answerLate:
		tell = true
		s.troubled(fmt.Sprintf("%s has not answered for %d s", a.what, a.quiet/1e9), s.wallTime()-a.quiet)
		s.say("this process waits for the array, and %s; see: ceph health detail", s.standby.Trouble)
	}
	if a.quiet == 0 {
		a.ceded = false
	} else if a.quiet >= s.opt.Patience && !a.ceded && s.opt.Lease > 0 {
		a.ceded = true
		s.say("%s has not answered for %d s: until it does the lease of the array is not renewed, and another process may take it over", a.what, a.quiet/1e9)
	}
	s.cluster.After(answerTick, s.tick)
	s.leave()
	if tell {
		s.tellWaits()
	}
}
