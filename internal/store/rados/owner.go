package rados

import (
	"encoding/json"
	"errors"
	"fmt"

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
// that it may have left in a network, and than a node takes to be noticed.
const blocklistSeconds = 24 * 3600

// ErrTaken is the error of an array that another process has.
var ErrTaken = errors.New("the array is open in another process")

// acquire takes possession of the array, and raises the epoch.
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
	s.emptyTrash()
	return nil
}

// makeHead makes the head of a new array.
func (s *Store) makeHead() error {
	b, _ := json.Marshal(&head{Format: headFormat})
	err := s.do(&Op{Object: headObject, Steps: []Step{{Kind: Create, Exclusive: true}, {Kind: SetAttr, Name: epochAttr, Value: s.epoch},
		{Kind: Replace, Data: [][]byte{b}}}})
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// lock locks the head. An owner that is dead is fenced first: its operations are refused before the lock
// is broken, so that whoever finds the lock free has nobody to fear.
func (s *Store) lock() error {
	err := s.cluster.Lock(headObject, lockName, s.cookie)
	for try := 0; errors.Is(err, ErrBusy) && try < 3; try++ {
		if err := s.readHead(); err != nil {
			return err
		}
		if s.opt.Dead == nil || !s.opt.Dead(s.head.Owner) {
			o := s.head.Owner
			return fmt.Errorf("%w: process %d on %s; stop that one", ErrTaken, o.PID, o.Host)
		}
		if err := s.evict(); err != nil {
			return fmt.Errorf("the array's last owner, which has died, cannot be fenced: %w", err)
		}
		err = s.cluster.Lock(headObject, lockName, s.cookie)
	}
	if err != nil {
		return fmt.Errorf("the array cannot be locked: %w", err)
	}
	return nil
}

// evict fences who has the lock, and breaks it.
func (s *Store) evict() error {
	list, err := s.cluster.Lockers(headObject, lockName)
	if err != nil {
		return err
	}
	for _, l := range list {
		s.notice("the array's last owner has died: %s at %s is fenced", l.Client, l.Address)
		if err := s.cluster.Blocklist(l.Address, blocklistSeconds); err != nil {
			return err
		}
	}
	if err := s.cluster.LatestMap(); err != nil {
		return err
	}
	for _, l := range list {
		if err := s.cluster.BreakLock(headObject, lockName, l); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
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

// raise makes this process the owner: who had read the head before it fails from here on.
func (s *Store) raise() error {
	if err := s.readHead(); err != nil {
		return err
	}
	was := epochText(s.head.Epoch)
	s.head.Epoch++
	s.head.Owner = s.opt.Self
	if s.head.Mdisks == nil {
		s.head.Mdisks = map[string]mdisk{}
	}
	b, err := json.Marshal(&s.head)
	if err != nil {
		return err
	}
	s.epoch = epochText(s.head.Epoch)
	return s.do(&Op{Object: headObject, Steps: []Step{{Kind: Guard, Name: epochAttr, Value: was},
		{Kind: SetAttr, Name: epochAttr, Value: s.epoch}, {Kind: Replace, Data: [][]byte{b}}}})
}

// suspect is called when the cluster may have dropped this client. It asks: a slow cluster drops nobody.
func (s *Store) suspect(error) {
	s.enter()
	defer s.leave()
	if s.lost == nil {
		s.submit(&s.logLane, &Op{Object: headObject, Steps: []Step{s.guard(), {Kind: Read, Buf: make([]byte, 1)}}}, func(*Op) {})
	}
}

// checkLog compares the kind and the place of the log with those that the array has. fresh: it has none.
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
	if err := s.checkLog(); err != nil {
		return nil, false, err
	}
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
