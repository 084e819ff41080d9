package rados

import (
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// How metadata wait: for room in a pool that is full, and for shards that do not take what is committed. That is kept in
// memory until they do, so that there is a bound: who makes more waits.

// fullPause is the time between two tries while the pool is full, in nanoseconds.
const fullPause = 200e6

// metaHeld bounds the bytes of batches that have begun and are not in all shards. One alone may have more.
var metaHeld = 2 * metaLimit

// room reports whether a batch may begin. Preconditions: mu is held.
func (m *meta) room(b *metaBatch) bool {
	held := 0
	for _, o := range m.batches {
		if o.state != metaWaits {
			held += o.Bytes
		}
	}
	if held == 0 || held+b.Bytes <= metaHeld {
		m.crowded = false
		return true
	}
	if !m.crowded && slices.ContainsFunc(m.shards[:], func(d shard) bool { return d.failed }) {
		m.crowded = true
		m.s.say("%d MiB of changes of the metadata cannot be written to their place, and further ones wait; see: ceph health detail", held>>20)
	}
	return false
}

// giveUp notes that what is committed does not get into a shard for now. What waits for the memory that it takes fails.
// Preconditions: mu is held.
func (m *meta) giveUp(err error) {
	m.stuck = true
	first := slices.IndexFunc(m.batches, func(b *metaBatch) bool { return b.state == metaWaits && b.err == nil })
	if first < 0 || m.room(m.batches[first]) {
		return
	}
	for _, b := range m.batches[first:] {
		if b.state == metaWaits && b.err == nil {
			b.err = err
		}
	}
	m.work()
}

// unstick tries again what did not get into shards, when there is more. Preconditions: mu is held.
func (m *meta) unstick() {
	if m.stuck {
		for k := range m.shards {
			m.feed(k)
		}
	}
}

// later calls fn, with mu held, when there may be room in a pool that was full. Preconditions: mu is held.
func (m *meta) later(fn func()) {
	m.pauses++
	m.s.cluster.After(fullPause, func() {
		m.s.enter()
		defer m.s.leave()
		m.pauses--
		fn()
	})
}

// full reports whether to try again what has failed for lack of room. Preconditions: mu is held.
func (m *meta) full(err error) bool { return errors.Is(err, block.ErrFull) && m.again(err) }

// again reports whether to try again what has failed, as in a pool that is full. When the array starts or stops that has
// an end. Preconditions: mu is held.
func (m *meta) again(err error) bool {
	m.s.giveReserve(err)
	impatient := m.s.closing || m.s.stopping || slices.ContainsFunc(m.batches, func(b *metaBatch) bool { return b.now && b.done != nil })
	if err == nil || m.hopeless && impatient {
		return false
	}
	m.hopeless = false // nobody waits for the end any more
	if impatient && !m.counting {
		m.counting = true
		m.count(m.s.opt.Patience, m.progress)
	}
	return true
}

// found notes that an operation has found room. Preconditions: mu is held.
func (m *meta) found() {
	m.progress++
	m.hopeless = false
}

// count counts patience down, in nanoseconds, and ends it when nothing has found room since. Preconditions: mu is held.
func (m *meta) count(left int64, was uint64) {
	m.s.cluster.After(fullPause, func() {
		m.s.enter()
		defer m.s.leave()
		switch left -= fullPause; {
		case m.progress != was:
			m.counting = false
		case left > 0:
			m.count(left, was)
		default:
			m.counting, m.hopeless = false, true
		}
	})
}
