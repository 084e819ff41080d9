// Memory that commands read into for themselves: all commands of a target that compare share it. A
// command has a piece of it at a time and then queues again, so that a long one does not keep others
// out, and an initiator has at most half of it.

package server

import "slices"

// Memory that commands read into for themselves: all VERIFY commands of a target share it.
const (
	ScratchLen     = 256 << 10 // bytes, of one piece of a verification
	maxScratch     = 16        // pieces at a time
	maxScratchHost = maxScratch / 2
)

// scratch hands out that memory. A command has it for one piece and then queues again, so that a
// long VERIFY does not keep others out. Next is the oldest one of the initiator that holds least.
type scratch struct {
	free    [][]byte
	used    int
	waiting []*Task // oldest first; each has a borrower
}

// Borrower is the continuation of a task that waits for a piece of scratch memory, or has one.
type Borrower interface {
	Continuation
	// Start goes on with the piece. The task gives it back.
	Start(t *Task, b []byte)
}

// want queues a task, which goes on in its borrower when it has memory.
func (s *scratch) want(t *Task) {
	s.waiting = append(s.waiting, t)
	s.serve()
}

// Borrow queues the task, whose continuation is a borrower, for a piece of scratch memory.
func (t *Task) Borrow() { t.state.n.t.scratch.want(t) }

// GiveBack gives back the task's piece.
func (t *Task) GiveBack(b []byte) { t.state.n.t.scratch.give(b, t.state.n.host) }

// BorrowAgain queues the task again and gives its piece back. It queues before it gives its memory
// up, so that its turn counts.
func (t *Task) BorrowAgain(b []byte) {
	s := &t.state.n.t.scratch
	s.waiting = append(s.waiting, t)
	s.give(b, t.state.n.host)
}

// StopBorrowing takes the task, which ends, out of the queue.
func (t *Task) StopBorrowing() { t.state.n.t.scratch.forget(t) }

// give takes back the memory of a task.
func (s *scratch) give(b []byte, h *Host) {
	s.free = append(s.free, b)
	s.used--
	h.scratch--
	s.serve()
}

// forget takes a task that ends out of the queue.
func (s *scratch) forget(t *Task) {
	if i := slices.Index(s.waiting, t); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
}

func (s *scratch) serve() {
	for s.used < maxScratch {
		next := -1
		for i, t := range s.waiting {
			h := t.state.n.host
			if h.scratch < maxScratchHost && (next < 0 || h.scratch < s.waiting[next].state.n.host.scratch) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		t := s.waiting[next]
		s.waiting = slices.Delete(s.waiting, next, next+1)
		b := s.take()
		s.used++
		t.state.n.host.scratch++
		t.state.continuation.(Borrower).Start(t, b)
	}
}

func (s *scratch) take() []byte {
	n := len(s.free)
	if n == 0 {
		return make([]byte, ScratchLen)
	}
	b := s.free[n-1]
	s.free = s.free[:n-1]
	return b
}
