package rados

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	headObject = "array"
	lockName   = "owner"
	epochAttr  = "epoch"

	headFormat = 1
)

// head is what the head object holds, as JSON. It is replaced as a whole, guarded by the epoch.
type head struct {
	Format int `json:"format"`
	// ID tells the array from all others.
	ID    string `json:"id,omitempty"`
	Epoch int64  `json:"epoch"`
	Owner Owner  `json:"owner"` // the present one, or the last
	// Address is where the owner sends from, for Blocklist; "": it has given the array back.
	Address string `json:"address,omitempty"`
	// Fenced is those that were replaced: each start renews their blocklisting.
	Fenced []fenced `json:"fenced,omitempty"`
	// Log is the kind of log that the array has; Home is where it is, if that is local.
	Log  string `json:"log,omitempty"`
	Home string `json:"home,omitempty"`
	// Mdisks by name. NextID is never used again, so that what is left of an mdisk is never taken for a
	// part of another one.
	Mdisks map[string]mdisk `json:"mdisks,omitempty"`
	NextID uint64           `json:"next_id"`
	// Trash is mdisks that have no name any more and whose objects are to be removed.
	Trash []mdisk `json:"trash,omitempty"`
}

// mdisk is what the head says of one.
type mdisk struct {
	ID   uint64 `json:"id"`
	Size uint64 `json:"size"`
	// Map: its object map is there. Where not, it was made by a version before that.
	Map bool `json:"map,omitempty"`
}

// readHead reads the head object.
func (s *Store) readHead() (h head, err error) {
	b, err := s.readAll(headObject, 64<<10)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return h, refused("the object %q is not the head of an array: %w", headObject, err)
	}
	if h.Format != headFormat {
		return h, refused("the array has format %d, this program reads format %d; use the version that wrote it", h.Format, headFormat)
	}
	return h, nil
}

// suits compares the array with what this process was told of it: which one it is, the kind, the place and the size of
// its log.
func (s *Store) suits(h *head) error {
	switch {
	case h.Log != "" && h.Log != s.opt.Log:
		return refused("the array has a %s log; write log: %s", h.Log, h.Log)
	case h.Log == LogLocal && h.Home != s.opt.Home:
		return refused("the array's log, with acknowledged data, is in the data folder %s; start it there", h.Home)
	case s.opt.ID != "" && h.ID != s.opt.ID:
		return refused("it is the array %s, but the data folder belongs to %s; are pool and namespace right?", h.ID, s.opt.ID)
	case h.Log != LogReplicated || s.opt.Region == "":
		return nil
	}
	b, err := s.readAll(s.opt.Region, 4096)
	var r regionHead
	switch {
	case errors.Is(err, ErrNotFound), err == nil && len(b) == 0: // it is being made
		return nil
	case err != nil:
		return err
	case json.Unmarshal(b, &r) != nil:
		return refused("the object %q is not the head of a log", s.opt.Region)
	}
	return r.fits(s.opt.Layout)
}

// epochText is an epoch as the attribute has it: texts compare as the numbers do.
func epochText(n int64) string { return fmt.Sprintf("%016x", n) }

// guard is the step by which only the present owner writes.
func (s *Store) guard() Step { return Step{Kind: Guard, Name: epochAttr, Value: s.epoch} }

// stamp returns the steps that keep an earlier owner from writing to an object. It may have been stamped
// by any of them, or by none where one died while it made it.
func (s *Store) stamp() []Step {
	return []Step{{Kind: GuardAtMost, Name: epochAttr, Value: s.epoch}, {Kind: SetAttr, Name: epochAttr, Value: s.epoch}}
}

// create returns the steps that make an object which no earlier owner writes to; ErrExists says that there is
// one, which may be an earlier owner's: stamp it then.
func (s *Store) create() []Step {
	return []Step{{Kind: Create, Exclusive: true}, {Kind: SetAttr, Name: epochAttr, Value: s.epoch}}
}

// claim stamps an object, which it makes, without contents, if there is none. From then on an earlier owner's
// guarded operations change nothing there, and those that make it find it there, however late they come.
func (s *Store) claim(object string) error {
	for {
		err := s.do(&Op{Object: object, Steps: s.stamp()})
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		if err = s.do(&Op{Object: object, Steps: s.create()}); !errors.Is(err, ErrExists) {
			return err
		}
	}
}

// headWriter writes the head: one operation at a time, each with all changes up to then.
type headWriter struct {
	changes int // the number of the last one
	busy    bool
	tries   int // that found no room
	waiting []headChange
}

type headChange struct {
	number int
	undo   func()
	done   func(error)
}

func (w *headWriter) idle() bool { return !w.busy }

// change notes that s.head was changed, and calls done, with mu held, when that is durable. On an error
// undo, which may be nil, takes the change back before. Preconditions: mu is held.
func (s *Store) change(undo func(), done func(error)) {
	w := &s.headers
	w.changes++
	w.waiting = append(w.waiting, headChange{w.changes, undo, done})
	if !w.busy {
		s.writeHead()
	}
}

// writeHead writes what is to be written of the head. Preconditions: mu is held, none is being written.
func (s *Store) writeHead() {
	w := &s.headers
	b, err := json.Marshal(&s.head)
	if err != nil {
		panic("rados: internal error: " + err.Error())
	}
	number := w.changes
	w.busy = true
	op := &Op{Object: headObject, awaited: true, Steps: []Step{s.guard(), {Kind: Replace, Data: [][]byte{even(b)}}}}
	s.submit(&s.logLane, op, func(op *Op) {
		if s.makeRoom(w.tries, op.Err, func(useful bool) {
			if useful {
				s.writeHead()
			} else {
				s.headWritten(number, op.Err)
			}
		}) {
			w.tries++
			return
		}
		s.headWritten(number, op.Err)
	})
}

// headWritten tells those whose changes the head was written with, up to a number, how that has ended. Preconditions: mu is held.
func (s *Store) headWritten(number int, err error) {
	w := &s.headers
	w.tries = 0
	list := w.waiting
	w.waiting = nil
	var rest []headChange
	for _, c := range list {
		switch {
		case c.number > number:
			rest = append(rest, c)
			continue
		case err != nil && c.undo != nil:
			c.undo()
		}
		if c.done != nil {
			c.done(err)
		}
	}
	w.waiting = append(rest, w.waiting...) // done may have changed more
	if w.busy = false; len(w.waiting) > 0 {
		s.writeHead()
	}
}
