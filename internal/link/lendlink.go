package link

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/buffers"
	"github.com/arraysim/arraysim/internal/scsi"
)

// copyStats count what was read for copies of another array.
type copyStats struct{ links, pieces, bytes atomic.Uint64 }

// lendLink is one link of an array that copies from this one. Its reader hands what comes to the executors of the
// units, and never waits for one, but that what these have is bounded (lender.go): behind that nothing is read.
type lendLink struct {
	s         *Server
	to        *lending
	conn, raw net.Conn // raw is below TLS: to close it waits for nothing
	br        *bufio.Reader
	buf       []byte
	from      []*lender
	wake      chan struct{}
	quit      chan struct{}
	killed    chan struct{} // closed by the first kill
	dead      atomic.Bool

	mu       sync.Mutex // may be taken with an executor held; nothing is called with it held
	err      error      // guarded by mu: why it ends
	units    map[uint64]*lentUnit
	lastUnit uint64
	calls    int
	pieces   int   // whose data is not about to be written
	bytes    int64 // of them
	out      []lendOut
	queued   int // bytes of messages in out, without data
}

// lentUnit is a unit that is lent. What is not constant is guarded by mu.
type lentUnit struct {
	id    uint64
	from  *lender        // once it is found
	lent  *scsi.CopyLent // nil: it is looked for
	known bool           // the other end has heard that it was found
	ended *scsi.CopyEnding
}

// lendOut is a message, and the data behind it.
type lendOut struct {
	b []byte
	p *lentPiece
}

// lentPiece is a part of a reference that is read for another array: a block.Piece.
type lentPiece struct {
	l   *lendLink
	id  uint32
	n   int // bytes
	buf *buffers.Buffer
}

func newLendLink(s *Server, to *lending, conn, raw net.Conn, buf []byte) *lendLink {
	l := &lendLink{s: s, to: to, conn: conn, raw: raw, buf: buf, from: s.lenders(), wake: make(chan struct{}, 1),
		quit: make(chan struct{}), killed: make(chan struct{}), units: map[uint64]*lentUnit{}}
	l.br = bufio.NewReaderSize(timely{conn, raw, s.times.silent}, 64<<10)
	return l
}

// kill ends the link; the first error is kept. Anybody may call it.
func (l *lendLink) kill(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
		close(l.killed)
	}
	l.mu.Unlock()
	l.dead.Store(true)
	l.raw.Close()
}

// serve runs the link to its end, and gives back what it holds.
func (l *lendLink) serve() error {
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.kill(l.write())
	}()
	l.kill(l.read())
	close(l.quit)
	<-written
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.units {
		if x := u.lent; x != nil {
			block.Send(u.from.exec, x.Leave)
		}
	}
	l.units = nil
	for _, o := range l.out {
		if o.p != nil {
			o.p.buf.Put()
		}
	}
	l.out = nil
	return l.err
}

// put sends a message, with the data of a piece or without, whatever executor is held. Preconditions: mu is held.
func (l *lendLink) put(b []byte, p *lentPiece) {
	if l.units == nil || l.queued > copyOut { // it has ended, or is about to
		if p != nil {
			p.buf.Put()
		}
		return
	}
	l.out = append(l.out, lendOut{b, p})
	if l.queued += len(b); l.queued > copyOut {
		l.raw.Close() // nobody reads there
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next takes a message from the queue. The window has room for another piece from here on.
func (l *lendLink) next() (o lendOut, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.out) == 0 {
		l.out = nil
		return o, false
	}
	o = l.out[0]
	l.out[0] = lendOut{}
	l.out = l.out[1:]
	l.queued -= len(o.b)
	if p := o.p; p != nil {
		l.pieces--
		l.bytes -= int64(p.n)
	}
	return o, true
}

// write sends what there is until the link ends, and looks whether the executors take messages.
func (l *lendLink) write() error {
	t := time.NewTicker(l.s.times.ping)
	defer t.Stop()
	w := bufio.NewWriterSize(l.conn, 32<<10)
	probes := make([]probe, len(l.from))
	for {
		idle := true
		for {
			select { // there may be no end of what is to be sent
			case <-t.C:
				if !l.look(probes) {
					return errHeld
				}
			default:
			}
			o, ok := l.next()
			if !ok {
				break
			}
			idle = false
			l.raw.SetWriteDeadline(time.Now().Add(writeTime))
			_, err := w.Write(o.b)
			if p := o.p; p != nil {
				if err == nil && p.n > 0 {
					_, err = w.Write(p.buf.B[:p.n])
				}
				p.buf.Put()
			}
			if err != nil {
				return err
			}
		}
		l.raw.SetWriteDeadline(time.Now().Add(writeTime))
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-l.quit:
			return nil
		case <-l.wake:
			continue
		case <-t.C:
		}
		if idle {
			if _, err := w.Write(appendPing(nil, 0)); err != nil {
				return err
			}
		}
		if !l.look(probes) {
			return errHeld
		}
	}
}

// look looks whether the executors take messages; false: one does not.
func (l *lendLink) look(probes []probe) bool {
	busy := l.busy()
	for i := range probes {
		if !probes[i].look(l.from[i].exec, busy, l.s.times.held) {
			return false
		}
	}
	return true
}

// busy reports whether anything is lent or asked.
func (l *lendLink) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.units) > 0 || l.calls > 0
}

// probe looks whether an executor takes messages.
type probe struct {
	asked    time.Time
	answered *atomic.Bool // nil: it was not asked
}

// look returns false where a message has not been taken for so long.
func (p *probe) look(x block.Executor, ask bool, held time.Duration) bool {
	switch {
	case p.answered != nil && !p.answered.Load():
		return time.Since(p.asked) < held
	case ask:
		done := new(atomic.Bool)
		p.asked, p.answered = time.Now(), done
		block.Send(x, func() { done.Store(true) })
	default:
		p.answered = nil
	}
	return true
}

// read carries out messages until the link ends.
func (l *lendLink) read() error {
	for {
		k, body, err := readMessage(l.br, l.buf)
		if err != nil {
			return err
		}
		switch k {
		case kindPing:
			_, err = parseLong(k, body)
		case kindFind:
			err = l.find(body)
		case kindToken:
			err = l.borrow(body)
		case kindCheck, kindHold:
			err = l.step(k, body)
		case kindPiece:
			err = l.piece(body)
		case kindRelease, kindPart, kindLeave, kindDescribe, kindCount, kindEndToken:
			err = l.say(k, body)
		default:
			err = broke("a message of kind %d", k)
		}
		if err != nil {
			return err
		}
	}
}

// unit finds a unit that is lent.
func (l *lendLink) unit(id uint64) (*lentUnit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.units[id]
	if u == nil || u.lent == nil {
		return nil, broke("unit %d is not lent", id)
	}
	return u, nil
}

// step carries out a check or a hold.
func (l *lendLink) step(k kind, body []byte) error {
	s, err := parseStep(k, body)
	if err != nil {
		return err
	}
	u, err := l.unit(s.unit)
	if err != nil {
		return err
	}
	if err = l.begin(); err != nil {
		return err
	}
	cost := costHold
	if k == kindCheck {
		cost = 1
	}
	l.post(u.from, cost, func() {
		if k == kindCheck {
			u.lent.Check(s.r, func(a scsi.CopyAnswer) { l.answer(s.call, u, a, foundUnit{}, false) })
		} else {
			u.lent.Hold(s.r, func(a scsi.CopyAnswer) { l.answer(s.call, u, a, foundUnit{}, a.Status == block.OK) })
		}
	})
	return nil
}

// begin counts a question.
func (l *lendLink) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls >= copyCalls {
		return broke("more than %d questions", copyCalls)
	}
	l.calls++
	return nil
}

// answer sends the answer to a question, with what is held. Preconditions: the unit's executor is held.
func (l *lendLink) answer(call uint32, u *lentUnit, a scsi.CopyAnswer, found foundUnit, held bool) {
	e := stepEnd{call: call, status: byte(a.Status), gone: a.Gone, sam: a.SAM, sense: a.Sense, held: held, unit: found}
	var b []byte
	if held {
		ref := u.lent.Held()
		ok := ref != nil
		if ok {
			b, ok = appendRuns(nil, call, ref)
			e.sectors = ref.Sectors()
		}
		if !ok { // it was given back meanwhile, or has too many runs
			u.lent.Release()
			b, e.held, e.sectors = nil, false, 0
			e.status, e.sam = byte(block.Resources), scsi.StatusBusy
		}
	}
	refused := found.ok && !e.held
	if refused {
		e.unit, e.sense = foundUnit{}, scsi.CopyTokenUnknown
	}
	l.mu.Lock()
	l.calls--
	if refused {
		delete(l.units, u.id)
	}
	l.put(e.append(b), nil)
	l.mu.Unlock()
	if refused { // behind mu: what a unit gives back may let others go on, who have something to send
		u.lent.Leave()
	}
}

// piece reads a part of what a unit holds.
func (l *lendLink) piece(body []byte) error {
	h, err := parsePieceHead(body)
	if err != nil {
		return err
	}
	u, err := l.unit(h.unit)
	if err != nil {
		return err
	}
	p := &lentPiece{l: l, id: h.id, n: int(h.length) * block.SectorSize}
	l.mu.Lock()
	over := l.pieces >= copyPieces || l.pieces > 0 && l.bytes+int64(p.n) > copyWindow
	if !over {
		l.pieces++
		l.bytes += int64(p.n)
	}
	l.mu.Unlock()
	if over {
		return broke("more pieces than the window has room for")
	}
	p.buf = buffers.Get(p.n)
	if !l.post(u.from, 1, func() { u.lent.Read(h.off, uint64(h.length), p.buf.B[:p.n], p) }) {
		p.buf.Put()
	}
	return nil
}

// Unwanted implements block.Piece.
func (p *lentPiece) Unwanted() bool { return p.l.dead.Load() }

// Served implements block.Piece.
func (p *lentPiece) Served(s block.Status) {
	l := p.l
	n := p.n
	if s == block.OK {
		l.to.stats.pieces.Add(1)
		l.to.stats.bytes.Add(uint64(n))
	} else {
		n = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= int64(p.n - n)
	p.n = n
	l.put(appendData(nil, p.id, s, uint32(n)), p)
}

// say carries out what is not answered.
func (l *lendLink) say(k kind, body []byte) error {
	id, v, w, err := parseUnit(k, body)
	if err != nil {
		return err
	}
	u, err := l.unit(id)
	if err != nil {
		return err
	}
	x := u.lent
	fn := x.Leave
	switch k {
	case kindRelease:
		fn = x.Release
	case kindLeave:
		l.mu.Lock()
		delete(l.units, id)
		l.mu.Unlock()
	case kindDescribe:
		fn = func() { x.Describe(v) }
	case kindCount:
		fn = func() { x.Count(byte(v), int64(w)) }
	case kindEndToken:
		fn = x.EndToken
	}
	if !l.post(u.from, 1, fn) && k == kindLeave {
		block.Send(u.from.exec, fn) // the end of the link does not find it any more
	}
	return nil
}
