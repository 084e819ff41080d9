// The task set of a unit as a list: one for all I_T nexuses (TST=000b), in the order of arrival.
// It counts those that others wait for, so that the common case, nobody waits, costs nothing.
// enable.go decides which of its tasks run.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/sam"
)

// defaultMaxTasks is UnitOptions.MaxTasks where that is 0.
const defaultMaxTasks = 4096

// taskSet holds the unit's tasks from the state dormant on until they are completed.
type taskSet struct {
	first, last *Task
	limit, size int
	blockers    int // tasks whose attribute blocks others
	heads       int // those of them that are HEAD OF QUEUE
	paused      int // schedule does nothing
}

// Depth returns how many tasks the set holds.
func (s *taskSet) Depth() int { return s.size }

// full reports whether the unit takes no more tasks of an initiator, which leaves half of the set to others.
func (u *Unit) full(of *names.Initiator) bool {
	share, own, others := (u.limit+1)/2, 0, false
	if u.size >= share {
		for _, x := range append(u.t.detached, u.itls...) {
			if others = others || x.n.host != of && x.Attached(); x.n.host == of && x.u == u {
				own += x.tasks
			}
		}
	}
	return u.size >= u.limit || others && own >= share
}

// push adds a task that has been received.
func (s *taskSet) push(t *Task) {
	st := &t.state
	st.prev, st.next = s.last, nil
	if s.last != nil {
		s.last.state.next = t
	} else {
		s.first = t
	}
	s.last = t
	s.tally(t, 1)
}

// remove takes out a task that is completed.
func (s *taskSet) remove(t *Task) {
	st := &t.state
	if st.prev != nil {
		st.prev.state.next = st.next
	} else {
		s.first = st.next
	}
	if st.next != nil {
		st.next.state.prev = st.prev
	} else {
		s.last = st.prev
	}
	st.prev, st.next = nil, nil
	s.tally(t, -1)
}

func (s *taskSet) tally(t *Task, n int) {
	s.size += n
	if t.state.itl.tasks += n; t.Attr.Blocks() {
		s.blockers += n
	}
	if t.Attr == sam.AttrHeadOfQueue { // which blocks, too
		s.heads += n
	}
}

// tasks returns the tasks as they are now: those that walk through them end some.
func (s *taskSet) tasks() []*Task {
	all := make([]*Task, 0, s.size)
	for t := s.first; t != nil; t = t.state.next {
		all = append(all, t)
	}
	return all
}
