package scsi

import "slices"

// Memory that commands read into for themselves: all VERIFY commands of a target share it.
const (
	scratchLen     = 256 << 10 // bytes, of one piece of a verification
	maxScratch     = 16        // pieces at a time
	maxScratchHost = maxScratch / 2
)

// scratch hands out that memory. A command has it for one piece and then queues again, so that a
// long VERIFY does not keep others out. Next is the oldest one of the initiator that holds least.
type scratch struct {
	free    [][]byte
	used    int
	waiting []*Task // oldest first; the state of each is a *verify
}

// want queues a task, which goes on in verify.start when it has memory.
func (s *scratch) want(t *Task) {
	s.waiting = append(s.waiting, t)
	s.serve()
}

// give takes back the memory of a task.
func (s *scratch) give(b []byte, h *host) {
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
		t.state.multi.(*verify).start(t, b)
	}
}

func (s *scratch) take() []byte {
	n := len(s.free)
	if n == 0 {
		return make([]byte, scratchLen)
	}
	b := s.free[n-1]
	s.free = s.free[:n-1]
	return b
}
