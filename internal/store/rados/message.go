package rados

import (
	"cmp"
	"errors"
	"slices"
)

// errBehind is the error of a message behind one that has failed: it must not arrive alone.
var errBehind = errors.New("an earlier write failed")

// Commit sends what there is, now or with the next message.
func (r *region) Commit(done func(error)) {
	r.waiting = append(r.waiting, done)
	r.send()
}

// Flush is Commit, and sends the counters, too.
func (r *region) Flush(done func(error)) {
	r.flush = true
	r.Commit(done)
}

// FlushNow sends what there is and waits.
func (r *region) FlushNow() error {
	r.flush = true
	m := r.collect()
	r.begin(m)
	if err := r.s.waitFor("the log", func() bool { return m.ended }); err != nil {
		return err
	}
	return m.err
}

// send sends a message if there is one to send and not too many are under way.
func (r *region) send() {
	r.s.mu.Lock()
	broken := r.broken
	r.s.mu.Unlock()
	if len(r.waiting) > 0 && r.out < messages && !broken {
		r.begin(r.collect())
	}
}

// begin puts a message on its way. It is called on the executor.
func (r *region) begin(m *message) {
	s := r.s
	r.out++
	s.enter()
	defer s.leave()
	r.queue = append(r.queue, m)
	switch {
	case s.lost != nil: // also what brings nothing: who hears of its end takes this process for the owner
		m.err = s.lost
		r.proceed()
		return
	case r.broken:
		m.err = errBehind
		r.proceed()
		return
	}
	m.left = len(m.first)
	for _, op := range m.first {
		op.awaited = true
		s.submit(&s.logLane, op, func(op *Op) {
			if m.left--; op.Err != nil && m.err == nil {
				m.err = op.Err
			}
			r.proceed()
		})
	}
	r.proceed()
}

// proceed goes on with the message at the front of the queue, and ends those that are done. Preconditions:
// mu is held.
func (r *region) proceed() {
	for len(r.queue) > 0 {
		m := r.queue[0]
		if m.left > 0 || m.busy {
			return
		}
		if r.broken && m.err == nil {
			if m.err = errBehind; r.s.lost != nil {
				m.err = r.s.lost
			}
		}
		if m.err != nil || len(m.second) == 0 {
			r.queue = r.queue[1:]
			r.end(m)
			continue
		}
		op := m.second[0]
		op.awaited = true
		m.second, m.busy = m.second[1:], true
		r.s.submit(&r.s.logLane, op, func(op *Op) {
			m.busy, m.err = false, op.Err
			r.proceed()
		})
		return
	}
}

// end is told that a message has arrived, or failed. Preconditions: mu is held.
func (r *region) end(m *message) {
	m.ended, m.first, m.second = true, nil, nil
	if m.err != nil {
		r.failed++
		r.broken = true
	}
	r.s.post(func(err error) {
		r.out--
		if err != nil {
			r.again(m)
		}
		for _, done := range m.dones {
			done(err)
		}
		r.send()
	}, m.err)
}

// again has the next message bring what one that has failed was to bring. Records keep the order of
// their calls of Append, whichever message they were in and whenever that has failed.
func (r *region) again(m *message) {
	for p := range m.announced {
		r.announced[p] = append(r.announced[p], m.announced[p]...)
	}
	r.records = append(r.records, m.records...)
	slices.SortFunc(r.records, func(x, y record) int { return cmp.Compare(x.first, y.first) })
	r.state = r.state || m.state
	if m.counters {
		r.counted = nil
	}
	r.s.enter()
	r.failed--
	r.broken = r.failed > 0 || len(r.queue) > 0
	r.s.leave()
}
