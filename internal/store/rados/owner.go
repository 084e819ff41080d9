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
}

// blocklistSeconds is for how long an owner that was replaced is refused: much longer than any operation
// that it may have left in a network, and than a node takes to be noticed. Each start renews it.
const blocklistSeconds = 30 * 24 * 3600

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
		err = s.cluster.Watch(headObject, s.suspect)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the array cannot be taken possession of: %w", err), s.cluster.Unlock(headObject, lockName, s.cookie))
	}
	s.enter()
	defer s.leave()
	s.renewLater()
	s.emptyTrash()
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
		err := s.cluster.Lock(headObject, lockName, s.cookie)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrBusy) {
			return fmt.Errorf("the array cannot be locked: %w", err)
		}
		list, err := s.cluster.Lockers(headObject, lockName)
		if err != nil {
			return fmt.Errorf("the array's lock cannot be looked at: %w", err)
		}
		if len(list) == 0 { // it was given back meanwhile
			continue
		}
		gone, err := s.gone(list[0])
		if err == nil && gone {
			if err = s.evict(list[0]); err != nil {
				err = fmt.Errorf("the array's last owner cannot be fenced: %w", err)
			}
		}
		if err != nil {
			return err
		}
	}
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

// evict fences who has a lock, and breaks exactly that one.
func (s *Store) evict(l Locker) error {
	if err := s.cluster.Blocklist(l.Address, blocklistSeconds); err != nil {
		return err
	}
	if err := s.cluster.LatestMap(); err != nil {
		return err
	}
	s.evicted = append(s.evicted, l.Address)
	if err := s.cluster.BreakLock(headObject, lockName, l); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// mostFenced is how many of those that were fenced the head names.
const mostFenced = 16

// keepOut notes who was fenced in the head, and renews that of earlier ones: what they have left somewhere must
// not be let in when it comes after the blocklist has forgotten them.
func (s *Store) keepOut() error {
	h := &s.head
	for _, address := range h.Fenced {
		if err := s.cluster.Blocklist(address, blocklistSeconds); err != nil {
			return err
		}
	}
	if len(h.Fenced) > 0 {
		if err := s.cluster.LatestMap(); err != nil {
			return err
		}
	}
	h.Fenced = append(h.Fenced, s.evicted...)
	h.Fenced = h.Fenced[max(0, len(h.Fenced)-mostFenced):]
	return nil
}

// readHead reads the head object.
func (s *Store) readHead() error {
	b, err := s.readAll(headObject, 64<<10)
	if err != nil {
		return err
	}
	var h head
	if err := json.Unmarshal(b, &h); err != nil {
		return fmt.Errorf("the object %q is not the head of an array: %w", headObject, err)
	}
	if h.Format != headFormat {
		return fmt.Errorf("the array has format %d, this program reads format %d; use the version that wrote it", h.Format, headFormat)
	}
	s.head = h
	return nil
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

// raise makes this process the owner: who had read the head before it fails from here on. An array that is not to
// be opened here is left as it is.
func (s *Store) raise() error {
	if err := s.readHead(); err != nil {
		return err
	}
	if err := s.checkLog(); err != nil {
		return err
	}
	if h := &s.head; s.opt.ID != "" && h.ID != s.opt.ID {
		return fmt.Errorf("it is the array %s, and the data folder is that of %s; are pool and namespace right?", h.ID, s.opt.ID)
	}
	if err := s.keepOut(); err != nil {
		return fmt.Errorf("those that were fenced before: %w", err)
	}
	was := epochText(s.head.Epoch)
	s.head.Epoch++
	s.head.Owner = s.opt.Self
	if s.head.ID == "" {
		s.head.ID = s.opt.NewID
	}
	if s.head.Mdisks == nil {
		s.head.Mdisks = map[string]mdisk{}
	}
	b, err := json.Marshal(&s.head)
	if err != nil {
		return err
	}
	s.epoch = epochText(s.head.Epoch)
	sent := s.now()
	s.lease.text = s.leaseText(0)
	err = s.do(&Op{Object: headObject, trial: true, Steps: append([]Step{{Kind: Guard, Name: epochAttr, Value: was},
		{Kind: SetAttr, Name: epochAttr, Value: s.epoch}, {Kind: Replace, Data: [][]byte{b}}}, setLease(s.lease.text)...)})
	if err == nil {
		s.extend(sent)
	}
	return err
}

// suspect is called when the cluster may have dropped this client. It asks: a slow cluster drops nobody.
func (s *Store) suspect(error) {
	s.enter()
	defer s.leave()
	if s.lost == nil {
		s.submit(&s.leaseLane, &Op{Object: headObject, Steps: []Step{s.guard(), {Kind: Read, Buf: make([]byte, 1)}}}, func(*Op) {})
	}
}

// checkLog compares the kind and the place of the log with those that the array has.
func (s *Store) checkLog() error {
	h := &s.head
	switch {
	case h.Log == "":
		return nil
	case h.Log != s.opt.Log:
		return fmt.Errorf("the array has a %s log; write log: %s", h.Log, h.Log)
	case h.Log == LogLocal && h.Home != s.opt.Home:
		return fmt.Errorf("the array's log is in the data folder %s, and with it what it has acknowledged; start it there", h.Home)
	}
	return nil
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
