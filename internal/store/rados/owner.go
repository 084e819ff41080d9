package rados

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
)

// Owner describes the process that has an array, to who finds it taken.
type Owner struct {
	Host    string `json:"host,omitempty"`
	Machine string `json:"machine,omitempty"` // of any number of hosts with that name, which one
	Boot    string `json:"boot,omitempty"`    // of the machine: another one means that the process is gone
	PID     int    `json:"pid,omitempty"`
	// Process tells a process from a later one with the same number: when it started.
	Process string `json:"process,omitempty"`
	// Link is where other nodes find who carries out their commands; "": nowhere.
	Link string `json:"link,omitempty"`
}

// Errors of a start that is refused.
var (
	ErrTaken    = errors.New("the array is open in another process")
	ErrCanceled = errors.New("the wait for the array was ended")
)

// cookie is the lock's: the name of this process, and behind it who it is, so that a lock says by itself
// who holds it, from the moment on at which it is held.
func (o Owner) cookie(name string) string {
	b, _ := json.Marshal(&o)
	return name + " " + string(b)
}

// owner returns who holds a lock; false: the lock does not say, and so nobody may be taken for dead.
func (l Locker) owner() (o Owner, known bool) {
	_, text, _ := strings.Cut(l.Cookie, " ")
	err := json.Unmarshal([]byte(text), &o)
	return o, err == nil && o != Owner{}
}

func (l Locker) String() string {
	if o, known := l.owner(); known {
		return fmt.Sprintf("process %d on %s", o.PID, o.Host)
	}
	return fmt.Sprintf("%s at %s, which does not say what it is", l.Client, l.Address)
}

// acquire takes possession of the array, and raises the epoch. A start that fails behind the lock gives it back.
func (s *Store) acquire() error {
	s.epoch = epochText(0)
	if err := s.makeHead(); err != nil {
		return fmt.Errorf("the array in the pool cannot be looked at: %w", err)
	}
	if err := s.lock(); err != nil {
		return err
	}
	err := s.raise()
	if err == nil {
		err = s.keepOut()
	}
	if err == nil {
		err = s.cluster.Watch(headObject, s.suspect)
	}
	s.enter()
	if s.released = err != nil; err == nil {
		s.emptyTrash()
	}
	s.leave()
	if err != nil {
		return errors.Join(fmt.Errorf("the array cannot be taken possession of: %w", err), s.cluster.Unlock(headObject, lockName, s.cookie))
	}
	return nil
}

// makeHead makes the head of a new array. Where this folder has served one already, there has to be one.
func (s *Store) makeHead() error {
	if s.opt.ID != "" {
		err := s.do(&Op{Object: headObject, Steps: []Step{{Kind: Read, Buf: make([]byte, 1)}}})
		if errors.Is(err, ErrNotFound) {
			return fmt.Errorf("there is none, and the data folder is that of the array %s; are pool and namespace right?", s.opt.ID)
		}
		return err
	}
	b, _ := json.Marshal(&head{Format: headFormat, ID: s.opt.NewID})
	err := s.do(&Op{Object: headObject, Steps: []Step{{Kind: Create, Exclusive: true}, {Kind: SetAttr, Name: epochAttr, Value: s.epoch},
		{Kind: Replace, Data: [][]byte{b}}}})
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// lock locks the head. An owner that is dead is fenced first: its operations are refused before the lock
// is broken, so that whoever finds the lock free has nobody to fear. All that is decided about an owner is
// decided about exactly that lock: another one, of somebody who has been faster, is looked at anew.
func (s *Store) lock() error {
	for {
		locked, err := s.tryLock()
		switch {
		case locked:
			return nil
		case err == nil: // it is another one's lock now
		case !s.opt.Standby || final(err):
			return err
		default:
			if s.hiccup(err); s.canceled() {
				return ErrCanceled
			}
			s.sleep(s.opt.Lease / renewals)
		}
	}
}

// tryLock locks the head if it is free, or else its owner is gone. Without an error, false says to look anew.
func (s *Store) tryLock() (bool, error) {
	err := s.cluster.Lock(headObject, lockName, s.cookie)
	if err == nil || !errors.Is(err, ErrBusy) {
		return err == nil, wrap("the array cannot be locked", err)
	}
	list, err := s.cluster.Lockers(headObject, lockName)
	if err != nil || len(list) == 0 { // it was given back meanwhile
		return false, wrap("the array's lock cannot be looked at", err)
	}
	if list[0].Cookie == s.cookie { // the answer to an earlier try was lost
		return true, nil
	}
	gone, err := s.gone(list[0])
	if err != nil || !gone {
		return false, err
	}
	return false, wrap("the array's last owner cannot be fenced", s.evict(list[0]))
}

// wrap says what an error is of; nil stays nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// gone reports whether who holds the lock may be fenced: because it is dead, or because its lease has run out.
// It waits for that where it may; without an error, false says that the lock is another one now.
func (s *Store) gone(l Locker) (bool, error) {
	if s.dead(l) {
		s.notice("the array's last owner has died: %s; it is fenced", l)
		return true, nil
	}
	if !s.opt.Standby || s.opt.Lease == 0 {
		return false, fmt.Errorf("%w: %s; stop that one", ErrTaken, l)
	}
	return s.outwait(l)
}

// dead reports whether who holds a lock is known not to run any more.
func (s *Store) dead(l Locker) bool {
	o, known := l.owner()
	return known && s.opt.Dead != nil && s.opt.Dead(o)
}

// readAll reads an object of any size.
func (s *Store) readAll(object string, guess int) ([]byte, error) {
	for {
		buf := make([]byte, guess)
		op := &Op{Object: object, Steps: []Step{{Kind: Read, Buf: buf}}}
		if err := s.do(op); err != nil {
			return nil, err
		}
		if n := op.Steps[0].N; n < uint64(guess) {
			return buf[:n], nil
		}
		guess *= 4
	}
}

// suspect is called when the cluster may have dropped this client. It asks: a slow cluster drops nobody.
func (s *Store) suspect(error) {
	s.enter()
	defer s.leave()
	if s.lost == nil {
		s.submit(&s.leaseLane, &Op{Object: headObject, Steps: []Step{s.guard(), {Kind: Read, Buf: make([]byte, 1)}}}, func(*Op) {})
	}
}

// noteLog notes the kind and place of a log that was made.
func (s *Store) noteLog() error {
	if s.head.Log != "" {
		return nil
	}
	var failed error
	over := false
	s.enter()
	s.head.Log, s.head.Home = s.opt.Log, ""
	if s.opt.Log == LogLocal {
		s.head.Home = s.opt.Home
	}
	s.change(func() { s.head.Log, s.head.Home = "", "" }, func(err error) { failed, over = err, true })
	s.leave()
	s.wait(func() bool { return over })
	return failed
}

// Region opens or creates the log, where the options say.
func (s *Store) Region(name string, l block.RegionLayout) (r block.Region, fresh bool, err error) {
	if s.opt.Log == LogLocal {
		r, fresh, err = s.opt.Local.Region(name, l)
	} else {
		r, fresh, err = s.openRegion(name, l)
	}
	if err != nil {
		return nil, false, err
	}
	if err := s.noteLog(); err != nil {
		return nil, false, fmt.Errorf("the kind of log cannot be noted: %w", err)
	}
	return r, fresh, nil
}
