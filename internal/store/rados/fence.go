package rados

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Who is fenced stays so for as long as anything of it may arrive. What arrives late is of a process that is dead, and
// then bounded by what a network keeps, or of one that was stopped, and then by nothing: it sends it when it goes on,
// whenever that is. So whoever is on the head's list is blocklisted again by each start. An entry goes when both are
// known: the process is gone for good, which a start on the same machine can tell, and it was fenced 30 days ago. The
// start that drops it has blocklisted it for 30 days more, by the monitors' clock, so that a wrong clock of a node
// shortens nothing.
const (
	// deadSeconds is for how long one is refused that is known to be dead, and unsureSeconds another one.
	deadSeconds   = 30 * 24 * 3600
	unsureSeconds = 365 * 24 * 3600
	// mostFenced bounds the list. Those who leave it for that are refused for the rest of their time.
	mostFenced = 1024
)

// fenced is one that was replaced.
type fenced struct {
	Address string `json:"address"`
	Owner   Owner  `json:"owner,omitzero"`
	// Since is when it was fenced, by the clock of who did: seconds since 1970. 0: long ago.
	Since int64 `json:"since,omitempty"`
	// Dead: it is known not to run any more.
	Dead bool `json:"dead,omitempty"`
}

// UnmarshalJSON also reads what the list was before: addresses.
func (f *fenced) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &f.Address)
	}
	type plain fenced
	return json.Unmarshal(b, (*plain)(f))
}

// wallTime is the time of the day in nanoseconds since 1970, for what is shown and for what is old.
func (s *Store) wallTime() int64 {
	if s.opt.Wall != nil {
		return s.opt.Wall()
	}
	return time.Now().UnixNano()
}

// wall is the same in seconds, which only says when an entry is old.
func (s *Store) wall() int64 { return s.wallTime() / 1e9 }

// evict fences who has a lock, and breaks exactly that one.
func (s *Store) evict(l Locker) error {
	if l.Address == "" {
		return fmt.Errorf("the cluster does not say where %s is; stop it, and run: rados lock break", l)
	}
	if err := s.refuseAll([]string{l.Address}, unsureSeconds); err != nil {
		return err
	}
	if err := s.latestMap(); err != nil {
		return err
	}
	o, _ := l.owner()
	s.evicted = append(s.evicted, fenced{Address: l.Address, Owner: o})
	err := s.ask("the lock of "+headObject, func() error { return s.cluster.BreakLock(headObject, lockName, l) })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// refuseAll has the cluster refuse clients for so many seconds.
func (s *Store) refuseAll(addresses []string, seconds int) error {
	return s.ask("a monitor", func() error { return s.cluster.Blocklist(addresses, seconds) })
}

// latestMap waits for the newest map of the OSDs.
func (s *Store) latestMap() error { return s.ask("a monitor", s.cluster.LatestMap) }

// noteFenced brings the head's list up to date: with those that this start has fenced, with the last owner that has not
// given the array back, whoever fenced that, and with what is known of their deaths.
func (s *Store) noteFenced() {
	h := &s.head
	list := s.evicted
	if h.Address != "" {
		list = append(list, fenced{Address: h.Address, Owner: h.Owner})
	}
	for _, f := range list {
		f.Since = s.wall()
		if !slices.ContainsFunc(h.Fenced, func(o fenced) bool { return o.Address == f.Address }) {
			h.Fenced = append(h.Fenced, f)
		}
	}
	for i := range h.Fenced {
		f := &h.Fenced[i]
		f.Dead = f.Dead || s.opt.Dead != nil && f.Owner != Owner{} && s.opt.Dead(f.Owner)
	}
	for len(h.Fenced) > mostFenced { // of the dead nothing comes but what is on its way
		oldest := max(0, slices.IndexFunc(h.Fenced, func(f fenced) bool { return f.Dead }))
		h.Fenced = slices.Delete(h.Fenced, oldest, oldest+1)
	}
}

// keepOut has all who were fenced refused for longer, and then forgets those of whom nothing can come. The lease is
// renewed meanwhile: a slow monitor must not cost the array. Nothing may be read of it before this has ended.
func (s *Store) keepOut() error {
	s.mu.Lock()
	var dead, unsure []string
	for _, f := range s.head.Fenced {
		if f.Dead {
			dead = append(dead, f.Address)
		} else {
			unsure = append(unsure, f.Address)
		}
	}
	s.mu.Unlock()
	if len(dead)+len(unsure) == 0 {
		return nil
	}
	for _, x := range []struct {
		list    []string
		seconds int
	}{{dead, deadSeconds}, {unsure, unsureSeconds}} {
		if len(x.list) == 0 {
			continue
		}
		if err := s.refuseAll(x.list, x.seconds); err != nil {
			return err
		}
	}
	if err := s.latestMap(); err != nil {
		return err
	}
	s.enter()
	defer s.leave()
	kept := slices.DeleteFunc(slices.Clone(s.head.Fenced), func(f fenced) bool { return f.Dead && s.wall()-f.Since >= deadSeconds })
	if len(kept) < len(s.head.Fenced) {
		s.head.Fenced = kept
		s.change(nil, nil)
	}
	return nil
}

// errOvertaken is the error of a start that was too slow.
var errOvertaken = fmt.Errorf("%w: another process has taken it over meanwhile; start this one again", ErrGuard)

// raise makes this process the owner: who had read the head before it fails from here on, and the lease is renewed. It
// fails where somebody has taken the lease away since before this process had the lock, though the lock may still be there
// and nobody blocklisted yet. An array that is not to be opened here is left as it is.
func (s *Store) raise() error {
	h, err := s.readHead()
	if err == nil {
		err = s.suits(&h)
	}
	if err != nil {
		return err
	}
	s.enter()
	s.standby.Epoch = h.Epoch // as that of a new array, whose lease does not say it
	s.leave()
	s.tellWaits()
	list, err := s.lockers()
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].Cookie != s.cookie {
		return errOvertaken
	}
	s.head = h
	s.noteFenced()
	was := epochText(s.head.Epoch)
	s.head.Epoch++
	s.head.Owner, s.head.Address = s.opt.Self, list[0].Address
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
	sent, found := s.clocks(), s.lease.text
	s.lease.text = s.leaseText(0)
	op := func() *Op {
		return &Op{Object: headObject, trial: true, Steps: append([]Step{{Kind: Guard, Name: epochAttr, Value: was},
			{Kind: Guard, Name: leaseAttr, Value: found}, {Kind: SetAttr, Name: epochAttr, Value: s.epoch}, {Kind: Replace, Data: [][]byte{even(b)}}},
			setLease(s.lease.text)...)}
	}
	err = s.do(op())
	for tries := 0; s.roomFor(tries, err); tries++ {
		sent = s.clocks()
		err = s.do(op())
	}
	if errors.Is(err, ErrGuard) {
		err = errOvertaken
	}
	if err == nil {
		s.extend(sent)
		s.enter()
		s.from, s.replaced = s.wallTime(), len(s.evicted)
		s.renewLater()
		s.leave()
	}
	return err
}

// roomFor waits for room for the head where an error says that it found none, and reports whether to try again. tries is how
// often that was done before.
func (s *Store) roomFor(tries int, err error) bool {
	var over, again bool
	s.enter()
	waits := s.makeRoom(tries, err, func(useful bool) { over, again = true, useful })
	s.leave()
	return waits && s.waitFor("the room of the reserve", func() bool { return over }) == nil && again
}
