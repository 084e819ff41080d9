// Handlers of VERIFY and WRITE AND VERIFY. They read into memory that all of them share: a
// command has a part of it for one piece of its range, then queues again, so that a long VERIFY
// neither holds much nor keeps others out. Whoever ends gives it back, or leaves the queue
// (release).

package scsi

import (
	"bytes"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// Values of BYTCHK (SBC-4 5.36).
const (
	bytchkMedium = 0 // the medium is read, nothing is compared
	bytchkAll    = 1 // Data-Out is compared block by block
	bytchkOne    = 3 // one block of Data-Out is compared with each block
)

// verify is the state of VERIFY and WRITE AND VERIFY: it reads the range piece by
// piece, into memory that it has for that piece only, and compares.
type verify struct {
	rest    block.Range // what is not yet read
	from    uint64      // sectors that are
	data    [][]byte    // what to compare with; nil only reads
	each    bool        // data is one block, to be compared with each
	scratch []byte      // while a piece is read; nil while the command waits for memory
	vec     [1][]byte
}

// release implements continuation.
func (v *verify) release(t *Task) {
	s := &t.state.n.t.scratch
	if b := v.scratch; b != nil {
		v.scratch = nil
		s.give(b, t.state.n.host)
		return
	}
	s.forget(t)
}

// doVerify serves VERIFY(10), (12), (16).
func doVerify(t *Task) {
	mode := t.CDB[1] >> 1 & 3
	if mode == 2 {
		t.fault(sense.InCDB(1, 2))
		return
	}
	bytes, ok := t.transfer(block.OpRead)
	if !ok {
		return
	}
	v := &verify{rest: t.state.req.Range}
	switch {
	case bytes == 0:
	case mode == bytchkAll:
		if !t.dataOut(bytes) {
			return
		}
		v.rest, v.data = t.state.req.Range, t.state.req.Data
	case mode == bytchkOne:
		if !t.dataOut(t.state.u.blockSize()) {
			return
		}
		v.data, v.each = t.state.req.Data, true
	}
	t.verify(v)
}

// doWriteVerify serves WRITE AND VERIFY(10), (12), (16): what was written is read
// back, with BYTCHK=1 also compared.
func doWriteVerify(t *Task) {
	mode := t.CDB[1] >> 1 & 3
	if mode > bytchkAll {
		t.fault(sense.InCDB(1, 2))
		return
	}
	bytes, ok := t.transfer(block.OpWrite)
	if !ok || !t.dataOut(bytes) {
		return
	}
	st := &t.state
	st.req.Flags = block.FUA // the medium itself is to be verified
	v := &verify{rest: st.req.Range}
	if mode == bytchkAll {
		v.data = st.req.Data
	}
	st.continuation = v
	t.submit(func(t *Task) { t.verify(v) })
}

func (t *Task) verify(v *verify) {
	st := &t.state
	st.continuation = v
	if v.rest.Count == 0 {
		t.good()
		return
	}
	st.n.t.scratch.want(t)
}

// start reads the next piece into b.
func (v *verify) start(t *Task, b []byte) {
	v.scratch = b
	n := min(v.rest.Count, scratchLen>>block.SectorShift)
	v.vec[0] = b[:n<<block.SectorShift]
	r := &t.state.req
	r.Op, r.Flags, r.Data = block.OpRead, block.FUA, v.vec[:]
	r.Range = block.Range{Start: v.rest.Start, Count: n}
	t.submit(verifyRead)
}

func verifyRead(t *Task) {
	st := &t.state
	v := st.continuation.(*verify)
	got := v.vec[0]
	done := v.from << block.SectorShift
	if off := v.differs(got, done, st.u.blockSize()); off >= 0 {
		t.fault(sense.MiscompareVerify.WithInfo(done + uint64(off)))
		return
	}
	n := st.req.Range.Count
	v.rest.Start += n
	v.rest.Count -= n
	v.from += n
	b := v.scratch
	v.scratch = nil
	if v.rest.Count == 0 {
		st.n.t.scratch.give(b, st.n.host)
		t.good()
		return
	}
	// It queues before it gives its memory up, so that its turn counts.
	st.n.t.scratch.waiting = append(st.n.t.scratch.waiting, t)
	st.n.t.scratch.give(b, st.n.host)
}

// differs returns the offset in got of the first byte that is not as it should
// be, or -1. got stands at byte offset from of the range.
func (v *verify) differs(got []byte, from, blockSize uint64) int {
	if v.data == nil {
		return -1
	}
	step := uint64(len(got))
	if v.each {
		step = blockSize
	}
	for off := uint64(0); off < uint64(len(got)); off += step {
		at := from + off
		if v.each {
			at = 0
		}
		i := off
		for _, want := range sgl.Clip(v.data, at, step) {
			have := got[i : i+uint64(len(want))]
			if !bytes.Equal(have, want) {
				for j := range want {
					if have[j] != want[j] {
						return int(i) + j
					}
				}
			}
			i += uint64(len(want))
		}
	}
	return -1
}

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
		t.state.continuation.(*verify).start(t, b)
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
