package rados

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// The replicated log: the parts of the NVRAM lie in objects of 4 MiB, all of which are there from the
// beginning, so that a write needs no room. The array works in memory; a Commit writes what was announced
// and appended in place, in a message of two steps:
//
//  1. pages and descriptors: one guarded operation on each object that they are in, all at a time;
//  2. the records, in their order, and with the last of them the whole state: one operation on the object
//     that they are in. Where they are in several, one operation after the other.
//
// The second step of a message waits for that of the one before. So what is there when the process dies
// is what a Region has to leave then: records up to some moment, each with what it counts, and a state
// that says nothing of others. Who takes over finds no loss of power, but a process that has died.
//
// The state is 4 KiB. It has a place behind the 4 MiB of each object of the log, with a number; the one
// with the highest number counts:
//
//	0 number u64 | 8 CRC32C of the number and the state u32 | 12 0 u32 | 16 state
const (
	stateAt     = extentBytes
	stateHeader = 16

	// messages is how many are on their way at a time: one in each of their steps. A third would do nothing but wait behind
	// them, and what is committed meanwhile would not go with one message, but with two.
	messages = 2
)

// regionHead is what the object with a region's name holds, as JSON. The object is made first, and this is written
// last: without it there is no region yet.
type regionHead struct {
	Layout block.RegionLayout `json:"layout"`
}

// fits refuses a log of another size.
func (h *regionHead) fits(l block.RegionLayout) error {
	if h.Layout == l {
		return nil
	}
	return refused("the write cache in the pool has %d bytes, the configuration asks for %d: %w; restore the former cache size",
		h.Layout.Size(), l.Size(), block.ErrSize)
}

// span is bytes [off, end) of a part.
type span struct{ off, end int }

// record is bytes of the log that one call of Append has written, or several in a row.
type record struct {
	span
	first, last uint64 // their numbers, in the order of the calls
}

// region is the array's end. What has no guard is only touched on the executor.
type region struct {
	s      *Store
	name   string
	layout block.RegionLayout
	parts  block.RegionMemory
	log    []byte // a copy of the log

	announced [block.NumParts][]span
	records   []record // of the log, in the order of Append
	appended  uint64   // calls of Append
	state     bool     // the state was announced
	counted   []byte   // the counters as they were sent last; nil: nobody knows
	countedAt int64    // when
	number    uint64   // of the last state sent
	waiting   []func(error)
	flush     bool       // one of those who wait flushes
	out       int        // messages under way
	queue     []*message // in their order; guarded by Store.mu
	failed    int        // messages that have failed and whose contents are not announced again; guarded by Store.mu
	broken    bool       // there are such messages, or some behind them in the queue, which fail too; guarded by Store.mu
}

// message is what is on its way together. What has no guard is constant once it has begun.
type message struct {
	dones []func(error)
	// What it brings, to be collected again if it fails.
	announced [block.NumParts][]span
	records   []record
	state     bool
	counters  bool

	first  []*Op // step 1
	second []*Op // step 2, what is left of it; guarded by Store.mu
	left   int   // operations of step 1 that have not ended; guarded by Store.mu
	busy   bool  // step 2 is under way; guarded by Store.mu
	ended  bool  // guarded by Store.mu
	err    error // guarded by Store.mu until it has ended
}

func (r *region) object(p block.Part, i int) string {
	return fmt.Sprintf("%s.%d.%05x", r.name, p, i)
}

// regionObject is one of a region's objects, and the memory that it is for.
type regionObject struct {
	name string
	part block.Part
	mem  []byte
}

// objects lists all objects of a region, those of the log first.
func (r *region) objects() (list []regionObject) {
	for _, p := range []block.Part{block.PartLog, block.PartDescriptors, block.PartPages, block.PartCounters} {
		mem := r.log
		if p != block.PartLog {
			mem = r.parts.Part(p)
		}
		for i := 0; i*extentBytes < len(mem); i++ {
			list = append(list, regionObject{r.object(p, i), p, mem[i*extentBytes : min((i+1)*extentBytes, len(mem))]})
		}
	}
	return list
}

// openRegion opens or creates a replicated log.
func (s *Store) openRegion(name string, l block.RegionLayout) (block.Region, bool, error) {
	r := &region{s: s, name: name, layout: l}
	err := s.claim(name)
	var b []byte
	if err == nil {
		b, err = s.readAll(name, 4096)
	}
	if err != nil {
		return nil, false, fmt.Errorf("the log cannot be examined: %w", err)
	}
	fresh := len(b) == 0
	var h regionHead
	switch {
	case fresh:
	case json.Unmarshal(b, &h) != nil:
		return nil, false, fmt.Errorf("the object %q is not the head of a log", name)
	default:
		if err := h.fits(l); err != nil {
			return nil, false, err
		}
	}
	r.parts, r.log = l.Cut(alignedMemory(l.Size()))
	if fresh {
		err = r.create()
	} else {
		err = r.load()
	}
	if err != nil {
		return nil, false, fmt.Errorf("the log cannot be opened: %w", err)
	}
	return r, fresh, nil
}

// alignedMemory returns n bytes from a multiple of 4 KiB on, as the pages want it.
func alignedMemory(n int) []byte { return block.Table[byte](n + 4096)[:n] }

// create makes the objects with zeros, so that all of it is allocated.
func (r *region) create() error {
	s, list := r.s, r.objects()
	zeros := make([]byte, extentBytes)
	slot := r.sealed()
	err := s.doAll(len(list), func(i int) *Op { return &Op{Object: list[i].name, Steps: s.create()} }, present)
	if err != nil {
		return err
	}
	err = s.doAll(len(list), func(i int) *Op {
		o := &list[i]
		op := &Op{Object: o.name, Steps: append(s.stamp(), Step{Kind: Replace, Data: [][]byte{zeros[:len(o.mem)]}})}
		if o.part == block.PartLog {
			op.Steps = append(op.Steps, Step{Kind: Write, Off: stateAt, Data: [][]byte{slot}})
		}
		return op
	}, nil)
	if err != nil {
		return err
	}
	r.counted = make([]byte, r.layout.Counters)
	text, _ := json.Marshal(&regionHead{r.layout})
	return s.do(&Op{Object: r.name, Steps: []Step{s.guard(), {Kind: Replace, Data: [][]byte{text}}}})
}

// load keeps earlier owners from writing, to all of it, and then reads it.
func (r *region) load() error {
	s, list := r.s, r.objects()
	err := s.doAll(len(list), func(i int) *Op { return &Op{Object: list[i].name, Steps: s.stamp()} }, nil)
	if err != nil {
		return err
	}
	found := false
	err = s.doAll(len(list), func(i int) *Op {
		op := &Op{Object: list[i].name, Steps: []Step{{Kind: Read, Buf: list[i].mem}}}
		if list[i].part == block.PartLog {
			op.Steps = append(op.Steps, Step{Kind: Read, Off: stateAt, Buf: make([]byte, stateHeader+r.layout.State)})
		}
		return op
	}, func(i int, op *Op) error {
		if op.Err == nil && op.Steps[0].N < uint64(len(list[i].mem)) {
			return fmt.Errorf("the object %s is too short", list[i].name)
		}
		if op.Err == nil && list[i].part == block.PartLog {
			found = r.unseal(op.Steps[1].Buf[:op.Steps[1].N]) || found
		}
		return op.Err
	})
	if err == nil && !found {
		err = errors.New("none of its states can be read")
	}
	r.counted = bytes.Clone(r.parts.Counters)
	return err
}

// Memory returns the parts.
func (r *region) Memory() block.RegionMemory { return r.parts }

// Local is false: nothing survives that was not committed.
func (r *region) Local() bool { return false }

// Boot is always the same: the cluster keeps what it has, whatever power is lost.
func (r *region) Boot() uint64 { return 1 }

// Distrust has nothing to do: what the cluster has not acknowledged an earlier process has not heard of,
// and what is in memory was read from there.
func (r *region) Distrust() {}

// Announce notes what the next message takes: whole sectors of pages, whole descriptors.
func (r *region) Announce(part block.Part, off, n int) {
	if part == block.PartState {
		r.state = true
		return
	}
	unit := 64
	if part == block.PartPages {
		unit = block.SectorSize
	}
	s := span{off &^ (unit - 1), (off + n + unit - 1) &^ (unit - 1)}
	list := r.announced[part]
	if k := len(list) - 1; k >= 0 && list[k].off <= s.off && s.off <= list[k].end {
		list[k].end = max(list[k].end, s.end)
		return
	}
	r.announced[part] = append(list, s)
}

// Append notes a record for the next message. It becomes one with the record before it alone: that
// which a message brings again lies in front of others that may come back still.
func (r *region) Append(at int, b []byte) {
	copy(r.log[at:at+len(b)], b)
	r.appended++
	if k := len(r.records) - 1; k >= 0 && r.records[k].end == at && r.records[k].last == r.appended-1 {
		r.records[k].end, r.records[k].last = at+len(b), r.appended
		return
	}
	r.records = append(r.records, record{span{at, at + len(b)}, r.appended, r.appended})
}

// ReadLog reads the copy of the log.
func (r *region) ReadLog(at int, b []byte) error {
	copy(b, r.log[at:at+len(b)])
	return nil
}

// collect makes a message of what was announced and appended since the last one.
func (r *region) collect() *message {
	now := r.s.now()
	m := &message{dones: r.waiting, counters: r.flush || now-r.countedAt >= countersEvery}
	r.waiting, r.flush = nil, false
	for _, p := range []block.Part{block.PartPages, block.PartDescriptors} {
		m.announced[p] = merged(r.announced[p])
		m.first = r.writes(m.first, p, m.announced[p], r.parts.Part(p))
		r.announced[p] = nil
	}
	if m.counters {
		r.countedAt = now
		m.first = r.writes(m.first, block.PartCounters, r.changedCounters(), r.parts.Counters)
	}
	m.records, m.state = r.records, r.state || len(r.records) > 0
	r.records, r.state = nil, false
	for _, x := range m.records {
		m.second = r.writes(m.second, block.PartLog, []span{x.span}, r.log)
	}
	if m.state {
		if len(m.second) == 0 {
			m.second = []*Op{{Object: r.object(block.PartLog, 0), Steps: []Step{r.s.guard()}}}
		}
		r.number++
		last := m.second[len(m.second)-1]
		last.Steps = append(last.Steps, Step{Kind: Write, Off: stateAt, Data: [][]byte{r.sealed()}})
	}
	return m
}

// merged sorts spans and joins those that touch.
func merged(list []span) (out []span) {
	slices.SortFunc(list, func(x, y span) int { return cmp.Compare(x.off, y.off) })
	for _, s := range list {
		if k := len(out) - 1; k >= 0 && s.off <= out[k].end {
			out[k].end = max(out[k].end, s.end)
			continue
		}
		out = append(out, s)
	}
	return out
}

// writes adds the operations that write spans of a part, as it is now: one for all of them that follow
// each other in an object.
func (r *region) writes(ops []*Op, p block.Part, spans []span, mem []byte) []*Op {
	for _, s := range spans {
		for off := s.off; off < s.end; {
			i := off / extentBytes
			end := min(s.end, (i+1)*extentBytes)
			object := r.object(p, i)
			if k := len(ops) - 1; k < 0 || ops[k].Object != object {
				ops = append(ops, &Op{Object: object, Steps: []Step{r.s.guard()}})
			}
			op := ops[len(ops)-1]
			op.Steps = append(op.Steps, Step{Kind: Write, Off: uint64(off % extentBytes), Data: [][]byte{bytes.Clone(mem[off:end])}})
			off = end
		}
	}
	return ops
}

const (
	// countersUnit is how many bytes of counters are compared at a time.
	countersUnit = 4096
	// countersEvery is how old the counters are at most, in nanoseconds, that the next owner finds where this one dies. No call
	// asks for that: a Flush may be a long time ago.
	countersEvery = 1e9
)

// changedCounters returns where counters have changed since they were sent.
func (r *region) changedCounters() (out []span) {
	now := r.parts.Counters
	for at := 0; at < len(now); at += countersUnit {
		end := min(at+countersUnit, len(now))
		if r.counted != nil && bytes.Equal(r.counted[at:end], now[at:end]) {
			continue
		}
		out = append(out, span{at, end})
	}
	r.counted = append(r.counted[:0], now...)
	return merged(out)
}

// sealed returns the state as it is written.
func (r *region) sealed() []byte {
	b := make([]byte, stateHeader, stateHeader+r.layout.State)
	b = append(b, r.parts.State...)
	le.PutUint64(b, r.number)
	le.PutUint32(b[8:], stateSum(b))
	return b
}

func stateSum(b []byte) uint32 {
	return crc32c.Update(crc32c.Checksum(b[:8]), b[stateHeader:])
}

// unseal takes a state over if it is newer than what there is, and reports whether it is one.
func (r *region) unseal(b []byte) bool {
	if len(b) != stateHeader+r.layout.State || le.Uint32(b[8:]) != stateSum(b) {
		return false
	}
	if n := le.Uint64(b); n >= r.number {
		r.number = n
		copy(r.parts.State, b[stateHeader:])
	}
	return true
}
