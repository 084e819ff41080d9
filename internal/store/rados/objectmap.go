package rados

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
)

const (
	// mapPause is the time until a write of an object map that has failed is tried again, in nanoseconds.
	mapPause = 1e9
	// mapTries is how often a stop tries before it ends with an error.
	mapTries = 5
)

// An mdisk's object map has a bit for each extent, lowest first: 1 says that its object is there. It is set behind the
// first write to an extent, and before that one ends; it is cleared before the object is removed, unless it is known not to
// be set. So an object without a bit may be there, of a write that nobody was told of, and one with a bit has to be: where
// it is missing, what was read is lost, and not zeros. The map is as large as it will ever be from the beginning, so that a bit needs no room.
//
// Writes to extents that exist ask for the object once in the time of a process; what is removed behind its back later
// is found by reads alone.
type objectMap struct {
	s      *Store
	mdisk  mdisk
	bits   []byte // as they are to be; guarded by Store.mu
	sure   []byte // those of bits that are durable; guarded by Store.mu
	maybe  []byte // that may be durable, where a write has failed nobody knows; guarded by Store.mu
	seen   []byte // extents that this process has written to; guarded by Store.mu
	from   int    // bytes from here on ...
	to     int    // ... up to here are to be written; guarded by Store.mu
	busy   bool   // guarded by Store.mu
	waits  bool   // what has failed is tried again in a while; guarded by Store.mu
	late   error  // why the last write has failed; nil: it has not; guarded by Store.mu
	change []mapChange
}

// mapChange is a bit that is to become durable.
type mapChange struct {
	extent uint64
	set    bool
	done   func(error)
}

func has(bits []byte, extent uint64) bool { return bits[extent/8]&(1<<(extent%8)) != 0 }

func put(bits []byte, extent uint64, set bool) {
	if bits[extent/8] &^= 1 << (extent % 8); set {
		bits[extent/8] |= 1 << (extent % 8)
	}
}

// object returns the name of the map's object.
func (d mdisk) mapObject() string { return fmt.Sprintf("m%x.map", d.ID) }

// mapBytes is how long it is.
func (d mdisk) mapBytes() int { return int(d.extents()+7) / 8 }

func (s *Store) newMap(d mdisk, bits []byte) *objectMap {
	o := &objectMap{s: s, mdisk: d, bits: bits, sure: bytes.Clone(bits), maybe: bytes.Clone(bits), seen: make([]byte, len(bits))}
	s.maps[d.ID] = o
	return o
}

// makeMap makes the map of a new mdisk, which is empty whatever an earlier owner has left of that name, and calls done with
// mu held. Preconditions: mu is held.
func (s *Store) makeMap(d mdisk, done func(error)) {
	zeros := Step{Kind: Replace, Data: [][]byte{make([]byte, d.mapBytes())}}
	made := func(op *Op) {
		if op.Err == nil {
			s.newMap(d, make([]byte, d.mapBytes()))
		}
		done(op.Err)
	}
	s.submit(&s.logLane, &Op{Object: d.mapObject(), Steps: append(s.create(), zeros)}, func(op *Op) {
		if op.Err != ErrExists {
			made(op)
			return
		}
		s.submit(&s.logLane, &Op{Object: d.mapObject(), Steps: append(s.stamp(), zeros)}, made)
	})
}

// openMap keeps earlier owners from writing to the map of an mdisk, and reads it. For an mdisk that has none yet it makes
// one of what is there.
func (s *Store) openMap(name string, d mdisk) (*objectMap, error) {
	s.mu.Lock()
	o := s.maps[d.ID]
	s.mu.Unlock()
	if o != nil {
		return o, nil
	}
	if !d.Map {
		return s.findMap(name, d)
	}
	err := s.do(&Op{Object: d.mapObject(), Steps: s.stamp()})
	var b []byte
	if err == nil {
		b, err = s.readAll(d.mapObject(), d.mapBytes()+1)
	}
	switch {
	case errors.Is(err, ErrNotFound), err == nil && len(b) != d.mapBytes():
		return nil, fmt.Errorf("the object %s is missing or truncated: it says which extents mdisk %s has", d.mapObject(), name)
	case err != nil:
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newMap(d, b), nil
}

// findMap makes the map of an mdisk of an earlier version, by a look at all its objects.
func (s *Store) findMap(name string, d mdisk) (*objectMap, error) {
	s.notice("mdisk %s has no object map yet: each of its %d extents is examined", name, d.extents())
	bits := make([]byte, d.mapBytes())
	err := s.doAll(int(d.extents()), func(i int) *Op {
		return &Op{Object: d.object(uint64(i)), Steps: []Step{{Kind: Read, Buf: make([]byte, 1)}}}
	}, func(i int, op *Op) error {
		put(bits, uint64(i), op.Err == nil)
		return absent(i, op)
	})
	if err == nil {
		err = s.claim(d.mapObject())
	}
	if err == nil {
		err = s.do(&Op{Object: d.mapObject(), Steps: []Step{s.guard(), {Kind: Replace, Data: [][]byte{bits}}}})
	}
	if err != nil {
		return nil, err
	}
	var failed error
	over := false
	s.enter()
	d.Map = true
	s.head.Mdisks[name] = d
	s.change(func() {
		d.Map = false
		s.head.Mdisks[name] = d
	}, func(err error) { failed, over = err, true })
	o := s.newMap(d, bits)
	s.leave()
	if err := s.waitFor("the head", func() bool { return over }); err != nil {
		return nil, err
	}
	return o, failed
}

// note has a bit become durable, and calls done, with mu held, when it is. Preconditions: mu is held.
func (o *objectMap) note(extent uint64, set bool, done func(error)) {
	put(o.bits, extent, set)
	if !set { // an object that is missing from now on is no loss
		put(o.sure, extent, false)
		put(o.seen, extent, false)
	}
	o.widen(int(extent/8), int(extent/8)+1)
	o.change = append(o.change, mapChange{extent, set, done})
	if !o.busy {
		o.write()
	}
}

// widen adds bytes to those that are to be written.
func (o *objectMap) widen(from, to int) {
	if o.from < o.to {
		from, to = min(o.from, from), max(o.to, to)
	}
	o.from, o.to = from, to
}

// write writes what is to be written: one operation at a time, each with all changes up to then. Preconditions: mu is
// held.
func (o *objectMap) write() {
	list, from, sent := o.change, o.from, bytes.Clone(o.bits[o.from:o.to])
	o.change, o.busy, o.from, o.to = nil, true, 0, 0
	for i, b := range sent {
		o.maybe[from+i] |= b
	}
	op := &Op{Object: o.mdisk.mapObject(), Steps: []Step{o.s.guard(), {Kind: Write, Off: uint64(from), Data: [][]byte{sent}}}}
	o.s.submit(&o.s.logLane, op, func(op *Op) {
		if o.busy = false; op.Err == nil {
			for i, b := range sent {
				o.maybe[from+i] = b
				o.sure[from+i] |= b & o.bits[from+i]
			}
			if o.late != nil { // what had failed was written with it
				o.late = nil
				o.s.mapsInOrder()
			}
		} else {
			o.lateFor(op.Err)
			o.failed(list, from, from+len(sent))
		}
		if len(o.change) > 0 {
			o.write()
		}
		for _, c := range list {
			c.done(op.Err)
		}
	})
}

// failed is told that nobody knows whether bytes of the map were written. What they are to be is written again with the next
// change, or in a while: an object whose bit could not be set is there, though nobody was told of what was written to it, and
// one whose bit could not be cleared was not removed. What others want who wait is what counts. Preconditions: mu is held.
func (o *objectMap) failed(list []mapChange, from, to int) {
	for _, c := range list {
		if !c.set {
			put(o.bits, c.extent, has(o.maybe, c.extent))
		}
	}
	for _, c := range o.change {
		put(o.bits, c.extent, c.set)
	}
	if o.widen(from, to); o.waits {
		return
	}
	o.waits = true
	o.s.cluster.After(mapPause, func() {
		o.s.enter()
		defer o.s.leave()
		o.waits = false
		o.bring()
	})
}

// bring writes what has failed before, unless it is being written or the mdisk is gone. Preconditions: mu is held.
func (o *objectMap) bring() {
	if !o.busy && o.from < o.to && o.s.lost == nil && o.s.maps[o.mdisk.ID] == o {
		o.write()
	}
}

// lateFor notes that the cluster has not taken a write, and says so in one line for all maps. Preconditions: mu is held.
func (o *objectMap) lateFor(err error) {
	s := o.s
	if o.late = err; s.lost != nil || s.mapsLate.what != "" {
		return
	}
	s.mapsLate = trouble{fmt.Sprintf("the object map %s is not written: %v", o.mdisk.mapObject(), err), s.wallTime()}
	s.say("%s; it is tried again", s.mapsLate.what)
}

// mapsInOrder says that all object maps are as they are to be, where they are and were not. Preconditions: mu is held.
func (s *Store) mapsInOrder() {
	for _, o := range s.maps {
		if o.late != nil {
			return
		}
	}
	if s.mapsLate.what != "" {
		s.mapsLate = trouble{}
		s.say("the object maps are in order again")
	}
}

// bringMaps writes what has failed before of all object maps. Preconditions: mu is held.
func (s *Store) bringMaps() {
	for _, id := range slices.Sorted(maps.Keys(s.maps)) {
		s.maps[id].bring()
	}
}

// finishMaps brings all object maps for a stop, and waits until nothing is under way. It returns an error where the cluster does
// not take them, however often it is asked.
func (s *Store) finishMaps(idle func() bool) error {
	for tries := 1; ; tries++ {
		s.enter()
		if !s.abandoned {
			s.bringMaps()
		}
		s.leave()
		s.wait(idle)
		if err := s.lateMaps(); err == nil || tries == mapTries {
			return err
		}
		s.sleep(mapPause)
	}
}

// lateMaps returns why an object map is not as it is to be; nil: all are, or that is no matter of this process any more.
func (s *Store) lateMaps() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil || s.abandoned {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(s.maps)) {
		if o := s.maps[id]; o.late != nil {
			return fmt.Errorf("the object map %s could not be written, and remains as the last write left it: %w", o.mdisk.mapObject(), o.late)
		}
	}
	return nil
}
