package rados

import "strings"

// An owner that leaves can say who is to have the array next: its heir. It writes that behind the lease, before it gives the
// lock back:
//
//	LEASE to:NAME
//
// Whoever finds the lock free and another one named waits for half the time of a lease before it tries to get it. That is for
// the sake of order alone: the lock, the lease and the epoch guard the array as they do without an heir.
const heirMark = " to:"

// heirOf returns whom a lease names; "": nobody.
func heirOf(lease string) string {
	_, name, _ := strings.Cut(lease, heirMark)
	return name
}

// HandTo has Close say that the array is for the process whose Options.Name that is, which has no blanks. Safe for concurrent use.
func (s *Store) HandTo(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heir = name
}

// nameHeir writes who is to have the array next. Where that does not succeed anybody may. Preconditions: nothing else is under
// way, and the lease is renewed no more.
func (s *Store) nameHeir() {
	s.enter()
	if s.heir != "" && s.lost == nil && !s.abandoned && s.opt.Lease > 0 {
		s.submit(&s.leaseLane, &Op{Object: headObject, trial: true, Steps: append([]Step{s.guard(), {Kind: Guard, Name: leaseAttr, Value: s.lease.text}},
			setLease(s.lease.text+heirMark+s.heir)...)}, func(*Op) {})
	}
	s.leave()
	s.wait(func() bool { return s.lost != nil || s.abandoned || s.leaseLane.ops == 0 })
}

// legacy is what a start knows of an array that is handed to somebody.
type legacy struct {
	lease string // that says so
	since int64  // when it was seen first
}

// leftToHeir reports whether the array is handed to somebody else who may still come, whether or not its owner has given the lock
// back yet.
func (s *Store) leftToHeir(lease string) bool {
	heir := heirOf(lease)
	if heir == "" || heir == s.opt.Name || s.opt.Lease == 0 {
		return false
	}
	now := s.now()
	if s.legacy.lease != lease {
		s.legacy = legacy{lease, now}
	}
	return now-s.legacy.since < s.opt.Lease/2
}

// pause waits until it is time to look at the array again: soon, where its owner is about to leave.
func (s *Store) pause() {
	ns := s.opt.Lease / renewals
	if s.opt.Eager != nil && s.opt.Eager() {
		ns /= 20
	}
	s.sleep(ns)
}
