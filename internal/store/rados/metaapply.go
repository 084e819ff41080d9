package rados

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// shard is one of the objects with entries. One operation is under way there at a time.
type shard struct {
	queue []shardWork
	busy  bool
	// failed: the operation under way has failed before.
	failed bool
}

type shardWork struct {
	op *Op
	b  *metaBatch // whose last operation on this shard it is, else nil
}

func shardObject(i int) string { return fmt.Sprintf("%s.%02x", metaName, i) }

func shardOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % metaShards)
}

// apply brings a committed batch to the shards. Preconditions: mu is held.
func (m *meta) apply(b *metaBatch) {
	newest := map[string]int{} // of a key that is there twice, the last entry counts
	for i := range b.pairs {
		newest[b.pairs[i].Key] = i
	}
	var sets, dels [metaShards][]Pair
	for i, p := range b.pairs {
		if newest[p.Key] != i {
			continue
		}
		if k := shardOf(p.Key); p.Value != nil {
			sets[k] = append(sets[k], p)
		} else {
			dels[k] = append(dels[k], Pair{Key: p.Key})
		}
	}
	for k := range metaShards {
		works := m.works(k, sets[k], dels[k])
		if len(works) == 0 {
			continue
		}
		b.left++
		works[len(works)-1].b = b
		m.shards[k].queue = append(m.shards[k].queue, works...)
	}
	b.applied = true
	for k := range metaShards {
		m.feed(k)
	}
}

// works returns the operations that bring entries to a shard.
func (m *meta) works(k int, sets, dels []Pair) (list []shardWork) {
	for len(sets)+len(dels) > 0 {
		op := &Op{Object: shardObject(k), Steps: []Step{m.s.guard()}}
		i, size := 0, 0
		for ; i < len(sets) && size < applyBytes; i++ {
			size += len(sets[i].Key) + len(sets[i].Value)
		}
		if i > 0 {
			op.Steps = append(op.Steps, Step{Kind: OmapSet, Pairs: sets[:i]})
		}
		j := 0
		for ; j < len(dels) && size < applyBytes; j++ {
			size += len(dels[j].Key)
		}
		if j > 0 {
			op.Steps = append(op.Steps, Step{Kind: OmapRemove, Pairs: dels[:j]})
		}
		sets, dels = sets[i:], dels[j:]
		list = append(list, shardWork{op: op})
	}
	return list
}

// feed starts the next operation on a shard. Preconditions: mu is held.
func (m *meta) feed(k int) {
	d := &m.shards[k]
	if d.busy || len(d.queue) == 0 {
		return
	}
	w := d.queue[0]
	d.busy, m.stuck = true, false
	m.s.submit(&m.s.logLane, w.op, func(op *Op) {
		d.busy = false
		if op.Err != nil {
			m.delayed(k, op.Err)
			return
		}
		m.found()
		d.failed = false
		m.inPlace()
		d.queue = d.queue[1:]
		if w.b != nil {
			w.b.left--
			m.settle()
		}
		m.feed(k)
		m.work()
	})
}

// delayed is told that an operation on a shard has failed. What it brings is committed: it is in memory, and the root has
// it, so that it is tried again until the cluster takes it, or the store is closed and the next start goes on. An error
// that says that the array has a new owner has ended the store before. Preconditions: mu is held.
func (m *meta) delayed(k int, err error) {
	d := &m.shards[k]
	if m.s.lost != nil {
		return
	}
	if !m.again(err) {
		m.giveUp(err)
		return
	}
	if !errors.Is(err, block.ErrFull) && m.s.metaLate.what == "" {
		m.s.metaLate = trouble{fmt.Sprintf("a change of the metadata cannot be written to its place: %v", err), m.s.wallTime()}
		m.s.say("%s; it is tried again", m.s.metaLate.what)
	}
	d.failed, d.busy = true, true
	m.later(func() {
		d.busy = false
		m.feed(k)
	})
}

// inPlace says that changes get to their place again, where one did not and none is tried again now. Preconditions: mu is held.
func (m *meta) inPlace() {
	if m.s.metaLate.what != "" && !slices.ContainsFunc(m.shards[:], func(d shard) bool { return d.failed }) {
		m.s.metaLate = trouble{}
		m.s.say("changes of the metadata can be written to their place again")
	}
}

// settle notes which batches are in all shards. Preconditions: mu is held.
func (m *meta) settle() {
	for len(m.batches) > 0 && m.batches[0].applied && m.batches[0].left == 0 {
		m.applied = m.batches[0].Number
		m.batches = m.batches[1:]
	}
	if len(m.batches) == 0 {
		m.s.wantReserve()
	}
}
