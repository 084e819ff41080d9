package rados

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

var le = binary.LittleEndian

// errAbandoned ends a read whose buffers were taken back.
var errAbandoned = errors.New("the read was abandoned")

// xfer is one transfer, with a part for each extent that it touches. They are used again.
type xfer struct {
	m     *medium
	io    *block.IO
	parts []*part
	out   int // parts under way; guarded by Store.mu
	err   error
	next  *xfer
}

// part is what a transfer has to do with one extent.
type part struct {
	op    Op
	steps [3]Step // that the object exists, where that is asked; the data; their checksums
	// extent is where it is. exists: the object map has it, so that its object has to be there.
	extent uint64
	exists bool
	x      *xfer
	at     uint64   // bytes of the transfer before it
	n      uint64   // bytes
	vec    [][]byte // of a write
	buf    []byte   // of a read: may be filled when nobody wants it any more
	sums   []byte
	ended  func(*Op)
}

// Submit starts transfers.
func (m *medium) Submit(ios []*block.IO) {
	s := m.s
	for _, io := range ios {
		x := s.newXfer(m, io)
		s.enter()
		if len(x.parts) == 0 {
			s.ends = append(s.ends, ending{io: io})
			s.freeXfer(x)
		}
		x.out = len(x.parts)
		for _, p := range x.parts {
			p.expect()
			s.submit(&s.dataLane, &p.op, p.ended)
		}
		s.leave()
	}
}

// newXfer returns a transfer that has not begun.
func (s *Store) newXfer(m *medium, io *block.IO) *xfer {
	s.mu.Lock()
	x := s.freeX
	if x != nil {
		s.freeX = x.next
	}
	s.mu.Unlock()
	if x == nil {
		x = &xfer{}
	}
	x.m, x.io, x.err, x.next = m, io, nil, nil
	c := block.Cursor{Vec: io.Vec}
	x.parts = x.parts[:0]
	for at := uint64(0); at < io.N; {
		off := (io.Off + at) % extentBytes
		n := min(io.N-at, extentBytes-off)
		p := x.add()
		p.at, p.n, p.op.first = at, n, nil
		p.extent = (io.Off + at) / extentBytes
		p.op.Object = m.mdisk.object(p.extent)
		p.sums = sized(p.sums, n/block.SectorSize*sumBytes)
		if io.Write {
			p.vec = c.Take(p.vec[:0], int(n))
			p.fillSums()
			p.steps[0] = Step{Kind: Exists}
			p.steps[1] = Step{Kind: Write, Off: off, Data: p.vec}
			p.steps[2] = Step{Kind: Write, Off: sumAt(off), Data: [][]byte{p.sums}}
		} else {
			p.buf = sized(p.buf, n)
			p.steps[1] = Step{Kind: Read, Off: off, Buf: p.buf}
			p.steps[2] = Step{Kind: Read, Off: sumAt(off), Buf: p.sums}
			p.op.first = p.arrived
		}
		p.op.Steps = p.steps[1:]
		at += n
	}
	return x
}

// add returns the next part.
func (x *xfer) add() *part {
	if n := len(x.parts); n < cap(x.parts) && x.parts[:n+1][n] != nil {
		x.parts = x.parts[:n+1]
		return x.parts[n]
	}
	p := &part{x: x}
	p.ended = p.end
	x.parts = append(x.parts, p)
	return p
}

// sized returns a buffer of n bytes, b if it is large enough. One that is much too large is given up.
func sized(b []byte, n uint64) []byte {
	if uint64(cap(b)) < n || cap(b) > 64<<10 && uint64(cap(b)) > 4*n {
		return make([]byte, n)
	}
	return b[:n]
}

// fillSums makes the checksums of a write: those that it came with, or its data's.
func (p *part) fillSums() {
	io := p.x.io
	if first := p.at / block.SectorSize; uint64(len(io.Sums)) == io.N/block.SectorSize {
		for i := range p.n / block.SectorSize {
			le.PutUint32(p.sums[i*sumBytes:], stored(io.Sums[first+i]))
		}
		return
	}
	crc32c.EachSector(p.vec, func(i int, crc uint32) { le.PutUint32(p.sums[i*sumBytes:], stored(crc)) })
}

// stored is a checksum as it is stored.
func stored(crc uint32) uint32 {
	if crc == 0 {
		return 1
	}
	return crc
}

// expect decides what has to be there. Preconditions: mu is held, the part has not begun.
func (p *part) expect() {
	here := p.x.m.here
	p.exists = has(here.sure, p.extent)
	if p.x.io.Write && p.exists && !has(here.seen, p.extent) {
		p.op.Steps = p.steps[:]
	}
}

// arrived is told that a part of a read has ended. It is called without mu: who holds the executor need
// not wait for checksums.
func (p *part) arrived(op *Op) {
	switch {
	case op.Err == ErrNotFound && p.exists:
		op.Err = p.missing()
	case op.Err == nil || op.Err == ErrNotFound:
		op.Err = p.deliver(op.Err == ErrNotFound)
	}
}

// end is told that a part has ended. The first write to an extent ends when the object map has it. Preconditions: mu is
// held.
func (p *part) end(op *Op) {
	here := p.x.m.here
	switch {
	case p.x.io.Write && op.Err == ErrNotFound && p.exists:
		p.replace()
		return
	case p.x.io.Write && op.Err == nil:
		put(here.seen, p.extent, true)
		if !has(here.sure, p.extent) {
			here.note(p.extent, true, p.over)
			return
		}
	}
	p.over(op.Err)
}

// replace makes an object again that has to be there and is not: the sectors of this write are good, all others have wrong
// checksums, so that what is lost is not taken for zeros. Preconditions: mu is held.
func (p *part) replace() {
	s := p.x.m.s
	s.say("the object %s of mdisk %s is missing, and its data is lost", p.op.Object, p.x.m.name)
	op := &Op{Object: p.op.Object, Steps: append([]Step{{Kind: Create, Exclusive: true}, {Kind: Write, Off: extentBytes, Data: [][]byte{lostSums}}}, p.steps[1:]...)}
	s.submit(&s.dataLane, op, func(op *Op) {
		if op.Err != ErrExists {
			p.over(op.Err)
			return
		}
		p.op.Steps = p.steps[1:] // another write did that
		s.submit(&s.dataLane, &p.op, p.ended)
	})
}

// lostSums are checksums that no data have.
var lostSums = bytes.Repeat([]byte{0xff}, extentBytes/block.SectorSize*sumBytes)

// missing is the error of a read of what is lost.
func (p *part) missing() error {
	e := &block.ChecksumError{Medium: p.x.m.name}
	first := (p.x.io.Off + p.at) / block.SectorSize
	for i := range p.n / block.SectorSize {
		e.Sectors, e.Sums = append(e.Sectors, first+i), append(e.Sums, 0)
	}
	return e
}

// over ends a part. Preconditions: mu is held.
func (p *part) over(err error) {
	x := p.x
	x.fail(err)
	s := x.m.s
	if x.out--; x.out == 0 {
		s.ends = append(s.ends, ending{io: x.io, err: x.err})
		s.freeXfer(x)
	}
}

// fail notes an error. Of several wrong checksums all sectors are noted.
func (x *xfer) fail(err error) {
	sum, ok := err.(*block.ChecksumError)
	have, had := x.err.(*block.ChecksumError)
	switch {
	case ok && had:
		have.Sectors, have.Sums = append(have.Sectors, sum.Sectors...), append(have.Sums, sum.Sums...)
	case x.err == nil || had && err != nil:
		x.err = err
	}
}

// freeXfer keeps a transfer for the next one. Preconditions: mu is held.
func (s *Store) freeXfer(x *xfer) {
	if s.interrupted { // the cluster may still have it
		x.io = nil
		return
	}
	for _, p := range x.parts {
		clear(p.vec)
		p.op.Steps = nil
	}
	x.io, x.next = nil, s.freeX
	s.freeX = x
}

// deliver brings what was read to the reader, if it still wants it and it has its checksums.
func (p *part) deliver(missing bool) error {
	if missing {
		clear(p.buf)
		clear(p.sums)
	} else {
		clear(p.buf[p.steps[1].N:])
		clear(p.sums[p.steps[2].N:])
	}
	m, io := p.x.m, p.x.io
	if err := p.verify(); err != nil {
		return err
	}
	m.vecs.RLock()
	defer m.vecs.RUnlock()
	if io.Vec == nil && io.N > 0 {
		return errAbandoned
	}
	c := block.Cursor{Vec: io.Vec}
	c.Skip(int(p.at))
	c.CopyFrom(p.buf)
	return nil
}

// verify compares what was read with its checksums.
func (p *part) verify() error {
	var want [32]uint32
	good := true
	buf, sums := p.buf, p.sums
	for len(buf) > 0 && good {
		n := min(len(buf)/block.SectorSize, len(want))
		for i := range n {
			if want[i] = le.Uint32(sums[i*sumBytes:]); want[i] == 0 {
				want[i] = crc32c.Zeros
			}
		}
		good = crc32c.Verify(buf[:n*block.SectorSize], want[:n])
		buf, sums = buf[n*block.SectorSize:], sums[n*sumBytes:]
	}
	if good {
		return nil
	}
	return p.badSectors()
}

// badSectors lists the sectors that do not have their checksums; nil: all do.
func (p *part) badSectors() error {
	var bad *block.ChecksumError
	first := (p.x.io.Off + p.at) / block.SectorSize
	for i := range p.n / block.SectorSize {
		crc := crc32.Checksum(p.buf[i*block.SectorSize:(i+1)*block.SectorSize], castagnoli)
		want := le.Uint32(p.sums[i*sumBytes:])
		if want == stored(crc) || want == 0 && crc == crc32c.Zeros {
			continue
		}
		if bad == nil {
			bad = &block.ChecksumError{Medium: p.x.m.name}
		}
		bad.Sectors, bad.Sums = append(bad.Sectors, first+i), append(bad.Sums, want)
	}
	if bad == nil {
		return nil
	}
	return bad
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
