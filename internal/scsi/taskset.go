// The task set of a unit as a list. enable.go decides which of its tasks run.

package scsi

const defaultMaxTasks = 4096

// taskSet is the one task set of a unit (TST=000b), in the order of arrival.
type taskSet struct {
	first, last *Task
	limit       int
	size        int
	blockers    int // tasks with state.blocks
	heads       int // those of them that are HEAD OF QUEUE
	paused      int // schedule does nothing
}

func (s *taskSet) push(t *Task) {
	t.state.prev, t.state.next = s.last, nil
	if s.last != nil {
		s.last.state.next = t
	} else {
		s.first = t
	}
	s.last = t
	s.size++
	t.state.member = true
}

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
	st.member = false
	s.size--
	if st.blocks {
		s.blockers--
		if t.Attr == AttrHeadOfQueue {
			s.heads--
		}
	}
}

func (u *Unit) tasks() []*Task {
	all := make([]*Task, 0, u.size)
	for t := u.first; t != nil; t = t.state.next {
		all = append(all, t)
	}
	return all
}
