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

// makeHead makes the head of a new array. Where this folder has served one already, there has to be one.
func (s *Store) makeHead() error {
	if s.opt.ID != "" {
		err := s.do(&Op{Object: headObject, Steps: []Step{{Kind: Read, Buf: make([]byte, 1)}}})
		if errors.Is(err, ErrNotFound) {
			return fmt.Errorf("there is none, but the data folder belongs to the array %s; are pool and namespace right?", s.opt.ID)
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
		case err == nil && s.canceled():
			return ErrCanceled
		case err == nil: // it is another one's lock now
		case !s.opt.Standby || final(err):
			return err
		default:
			if s.hiccup(err); s.canceled() {
				return ErrCanceled
			}
			s.pause()
		}
	}
}

// tryLock locks the head if it is free, or else its owner is gone. Without an error, false says to look anew. It reads the
// lease before it has the lock: whoever takes the array away from this process changes that, and raise fails then. One that
// changes meanwhile is a last owner's that was still renewing it, or was taken away already. Each try has a cookie of its
// own: who is about to break the lock of an earlier one does not break this one, and looks at its lease anew.
func (s *Store) tryLock() (bool, error) {
	before, err := s.readLease()
	if err != nil {
		return false, wrap("the array's lease cannot be read", err)
	}
	if s.leftToHeir(before) { // it is not tried, though it may be free by then
		held, err := s.replaceHolder()
		if err == nil && !held {
			s.pause()
		}
		return false, err
	}
	s.locks++
	s.cookie = s.opt.Self.cookie(fmt.Sprintf("%s.%d", s.opt.Cookie, s.locks))
	err = s.ask("the lock of "+headObject, func() error { return s.cluster.Lock(headObject, lockName, s.cookie) })
	if err == nil {
		now, err := s.readLease()
		if err == nil && now == before {
			s.enter()
			s.lease.text, s.locked = before, true
			s.standby = Standby{Taking: true, Epoch: leaseEpoch(before), Age: -1}
			s.leave()
			s.tellWaits()
			return true, nil
		}
		return false, wrap("the array's lease cannot be read", also(err, s.unlock(s.cookie)))
	}
	if !errors.Is(err, ErrBusy) {
		if !errors.Is(err, block.ErrFenced) { // nobody knows whether it is locked now: what is behind that on its way unlocks it
			_ = s.unlock(s.cookie)
		}
		return false, wrap("the array cannot be locked", err)
	}
	_, err = s.replaceHolder()
	return false, err
}

// replaceHolder waits until who holds the lock is gone, and fences it; false: nobody holds it, or has given it back meanwhile.
func (s *Store) replaceHolder() (bool, error) {
	list, err := s.lockers()
	if err != nil || len(list) == 0 {
		return false, wrap("the array's lock cannot be examined", err)
	}
	if strings.HasPrefix(list[0].Cookie, s.opt.Cookie+".") { // an earlier try's, whose answer was lost
		return true, wrap("the array's lock cannot be released", s.unlock(list[0].Cookie))
	}
	why, err := s.gone(list[0])
	if err != nil || why == "" {
		return true, err
	}
	if err := s.evict(list[0]); err != nil {
		return true, wrap("the array's last owner cannot be fenced", err)
	}
	s.notice("the array's last owner %s: %s; it is fenced", why, list[0])
	return true, nil
}

// lockers lists who holds the lock of the head.
func (s *Store) lockers() (list []Locker, err error) {
	err = s.ask("the lock of "+headObject, func() (err error) {
		list, err = s.cluster.Lockers(headObject, lockName)
		return err
	})
	return list, err
}

// unlock gives the lock of the head back; that somebody else has broken it is no error.
func (s *Store) unlock(cookie string) error {
	err := s.ask("the lock of "+headObject, func() error { return s.cluster.Unlock(headObject, lockName, cookie) })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// wrap says what an error is of; nil stays nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// also returns two errors as one of one line; nil: there is none.
func also(err, more error) error {
	if err == nil || more == nil {
		return errors.Join(err, more)
	}
	return fmt.Errorf("%w; and %w", err, more)
}

// gone returns why who holds the lock may be fenced: because it is dead, or because its lease has run out. It waits for
// that where it may; without an error, "" says that the lock is another one now.
func (s *Store) gone(l Locker) (why string, err error) {
	if s.dead(l) {
		return "has died", nil
	}
	if !s.opt.Standby || s.opt.Lease == 0 {
		return "", fmt.Errorf("%w: %s; stop that one, or write standby: true to wait for it", ErrTaken, l)
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
		s.submit(&s.leaseLane, s.inquiry(), func(*Op) {})
	}
}

// inquiry returns the operation that fails where this process is not the owner any more.
func (s *Store) inquiry() *Op {
	return &Op{Object: headObject, Steps: []Step{s.guard(), {Kind: Read, Buf: make([]byte, 1)}}}
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
	if err := s.waitFor("the head", func() bool { return over }); err != nil {
		return err
	}
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
		return nil, false, fmt.Errorf("the kind of log cannot be recorded: %w", err)
	}
	return r, fresh, nil
}
