package store

import (
	"errors"
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

// keepTransfers is the number of transfers that are kept for later ones, keepFollowers that of the places
// for those that follow one.
const (
	keepTransfers = 4096
	keepFollowers = 64
)

// smallBatch is the number of bytes that are written at once where nothing waits
// for a disk: handing them over would cost more.
const smallBatch = 64 << 10

// nearShare is what part of its bytes a small write counts that the mapping has: it is a copy, and two calls less.
// A batch of the destager, 256 pages, is so done at once. As goroutines do it, each write has a place in the queue,
// with which all that follow are compared.
const nearShare = 16

// Submit does at once what cannot wait, and begins the rest. Transfers of an mdisk that touch the
// same sectors keep their order; class and deadline are not looked at.
func (m *fileMedium) Submit(ios []*block.IO) {
	s := m.s
	if s.opt.Later != nil {
		m.submitLater(ios)
		return
	}
	budget := uint64(smallBatch)
	begin, try := s.begin[:0], s.try[:0]
	s.begin, s.try = nil, nil // Done may call Submit
	var beside *group
	for _, io := range ios {
		ends := s.closed || m.gone // start refuses it; Done of the one before may have removed the mdisk
		// Long writes have goroutines of their own.
		if s.aside != nil && !ends && (!io.Write || io.N <= smallBatch) && s.aside.Crowded() && !m.way(io.Write).full() {
			if x := s.take(m, io); m.enter(x) { // else it is held
				if beside = s.join(beside, x); s.aside.Long(io.N) {
					beside = beside.begin()
				}
			}
			continue
		}
		cost, near := io.N, io.Write && m.inView(io)
		if near && io.N <= smallBatch {
			cost /= nearShare
		}
		if s.instant && !ends && (!io.Write || cost <= budget) && !m.clashes(io) {
			if io.Write {
				budget -= cost
				io.Err = m.writeAtOnce(io, near)
			} else {
				io.Err = m.readAtOnce(io)
			}
			if io.Err == nil || io.Write {
				io.Done(io)
				continue
			}
		}
		x := s.take(m, io)
		switch {
		case !m.enter(x): // it is held
		case io.Write || s.instant || ends || m.waits:
			begin = append(begin, x)
		default:
			try = append(try, x)
		}
	}
	if len(try) > 0 {
		begin = s.tryNow(m, try, begin)
	}
	s.start(begin)
	if beside != nil {
		beside.begin()
	}
	s.begin, s.try = emptied(begin), emptied(try)
}

func emptied(list []*xfer) []*xfer {
	clear(list)
	return list[:0]
}

// tryNow does what the page cache can answer, and appends the rest to begin.
func (s *Files) tryNow(m *fileMedium, try, begin []*xfer) []*xfer {
	hits := 0
	if m.rings && s.ring != nil && s.ring.misses < ringTries && len(try) >= ringBatch {
		hits = s.ring.readNow(m, try)
	} else {
		for i, x := range try {
			if x.findSums(); m.readNow(x) {
				try[i], try[hits] = try[hits], x
				hits++
			}
		}
	}
	for _, x := range try[:hits] {
		io := x.io
		io.Err = nil
		if !x.known {
			m.heat(io)
		}
		m.remove(x)
		s.give(x)
		io.Done(io)
	}
	begin = append(begin, try[hits:]...)
	return m.advance(begin)
}

// start hands over what has begun.
func (s *Files) start(list []*xfer) {
	for i, x := range list {
		if x.err = x.refused(); x.err != nil {
			s.over(list[i : i+1])
			list[i] = nil
			continue
		}
		x.m.users.Add(1)
		if x.near = x.io.Write && x.m.inView(x.io); x.io.Write {
			x.m.hot.drop(x.io.Off, x.io.N)
			continue
		}
		x.buf = s.bufs.get(x.io.N)
		x.list[0] = x.buf[:x.io.N]
		x.inner.Off, x.inner.N, x.inner.Vec = x.io.Off, x.io.N, x.list[:]
		x.findSums()
	}
	if s.ring != nil {
		list = s.ring.begin(list)
	}
	for _, x := range list {
		if x != nil {
			x.toPool()
		}
	}
}

var errAbandoned = errors.New("nobody is waiting for it any longer")

// refused says why a transfer does not begin: while it was held its files may have been closed.
func (x *xfer) refused() error {
	switch {
	case x.m.s.closed:
		return ErrClosed
	case x.m.gone || !x.io.Write && x.io.Vec == nil:
		return errAbandoned
	}
	return nil
}

// toPool has a goroutine carry a transfer out.
func (x *xfer) toPool() {
	l := &x.m.reads
	if x.io.Write {
		l = &x.m.writes
	}
	if !x.m.s.pool.put(l, job{x: x}) {
		x.err = ErrClosed
		x.end()
	}
}

// do carries a transfer out, by calls that wait for the disk.
func (x *xfer) do() {
	switch {
	case x.near && x.m.transferInView(x.io, &x.own):
		x.err = nil
	case x.io.Write:
		x.err = x.m.transferOften(x.io, &x.own)
	case x.known && readFull(x.m.f, x.list[:], int64(x.io.Off)) == nil && x.m.verify(&x.inner, x.own.list[0]) == nil:
		x.err = nil
		x.copyOut()
	default:
		x.mistrust()
		x.err = x.m.transferOften(&x.inner, &x.own)
		x.copyOut()
	}
	x.end()
}

// end ends one transfer.
func (x *xfer) end() {
	one := [1]*xfer{x}
	x.m.s.ended(one[:])
}

// mistrust is told that a read has failed by checksums from memory, or perhaps because of them: it is to
// be done by those of the file, and what is in memory is to be dropped.
func (x *xfer) mistrust() {
	x.stale = x.stale || x.known
	x.known = false
}

// findSums takes the checksums of a read from memory, if they are there.
func (x *xfer) findSums() {
	x.known = false
	if x.io.Class == block.ClassScrub {
		return
	}
	if sums := x.m.hot.find(x.io.Off, x.io.N); sums != nil {
		x.known = true
		copy(x.own.sized(x.io.N)[0], sums)
	}
}

// copyOut gives the reader what was read, if it was not abandoned meanwhile: all of it, also where
// checksums do not match, or nothing. The buffer of a read that failed holds what others have read.
func (x *xfer) copyOut() {
	var sum *block.ChecksumError
	if x.err != nil && !errors.As(x.err, &sum) {
		return
	}
	x.m.vecs.Lock()
	defer x.m.vecs.Unlock()
	from := x.list[0]
	for _, to := range x.io.Vec {
		from = from[copy(to, from):]
	}
}

// Abandon gives the buffers of a read back.
func (m *fileMedium) Abandon(io *block.IO) {
	m.vecs.Lock()
	io.Vec = nil
	m.vecs.Unlock()
}

// ended takes transfers from whoever carried them out.
func (s *Files) ended(list []*xfer) {
	for _, x := range list {
		_ = x.m.release()
	}
	s.over(list)
}

// over has transfers finished. Those that end while the executor is at work are finished together.
func (s *Files) over(list []*xfer) {
	s.endMu.Lock()
	first := len(s.done) == 0
	s.done = append(s.done, list...)
	s.endMu.Unlock()
	if first {
		s.exec.Post(s.finishFn)
	}
}

// finish ends transfers on the executor, and begins what they held up.
func (s *Files) finish() {
	s.endMu.Lock()
	done := s.done
	s.done, s.spare = s.spare[:0], nil
	s.endMu.Unlock()
	begin := s.begin[:0]
	s.begin = nil
	for _, x := range done {
		io, m := x.io, x.m
		m.remove(x)
		begin = m.advance(begin)
		if x.stale {
			m.hot.drop(io.Off, io.N)
		}
		switch io.Err = x.err; {
		case io.Write && io.Err != nil:
			m.hot.drop(io.Off, io.N)
		case io.Write && s.instant:
			m.hold(io, nil)
			m.hot.put(io.Off, x.own.list[0])
		case !io.Write && io.Err == nil && !x.known && !x.near:
			m.hold(io, x.own.list[0])
			m.heat(io)
		}
		s.give(x)
		io.Done(io)
	}
	s.start(begin)
	s.begin = emptied(begin)
	s.spare = emptied(done)
}

// take returns a transfer for an operation.
func (s *Files) take(m *fileMedium, io *block.IO) *xfer {
	x := s.free
	if x == nil {
		x = &xfer{}
	} else {
		s.free = x.next
		s.freeCount--
	}
	x.m, x.io, x.next = m, io, nil
	return x
}

// give takes a transfer back that has ended.
func (s *Files) give(x *xfer) {
	if x.buf != nil {
		s.bufs.put(x.buf)
	}
	x.m, x.io, x.buf, x.list[0], x.inner.Vec, x.err = nil, nil, nil, nil, nil, nil
	x.known, x.stale, x.near = false, false, false
	if cap(x.followers) > keepFollowers {
		x.followers = nil
	}
	if s.freeCount == keepTransfers {
		return
	}
	s.freeCount++
	x.next = s.free
	s.free = x
}

// buffers are those that reads wait with, by powers of two; they are used again. They are memory of
// Go's heap, which stays where it is, and which the xfer keeps reachable.
type buffers struct {
	free [maxBuffer - minBuffer + 1][][]byte
	kept uint64 // bytes of them
}

const (
	minBuffer  = 12       // log2 of the smallest
	maxBuffer  = 20       // of the largest that is kept
	keepBuffer = 16 << 20 // bytes that are kept
)

// get returns a buffer of at least n bytes, which holds anything.
func (b *buffers) get(n uint64) []byte {
	k := max(bits.Len64(max(n, 1)-1), minBuffer)
	if k > maxBuffer {
		return make([]byte, n)
	}
	if list := b.free[k-minBuffer]; len(list) > 0 {
		buf := list[len(list)-1]
		b.free[k-minBuffer] = list[:len(list)-1]
		b.kept -= uint64(len(buf))
		return buf
	}
	return make([]byte, 1<<k)
}

// put takes a buffer back.
func (b *buffers) put(buf []byte) {
	k := bits.Len64(uint64(len(buf)) - 1)
	if k > maxBuffer || b.kept+uint64(len(buf)) > keepBuffer {
		return
	}
	b.kept += uint64(len(buf))
	b.free[k-minBuffer] = append(b.free[k-minBuffer], buf)
}
