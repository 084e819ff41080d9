package link

import (
	"bufio"
	"net"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// copyLink is one link of a CopyClient.
type copyLink struct {
	c          *CopyClient
	conn, raw  net.Conn
	br         *bufio.Reader // of the reader
	buf        []byte        // likewise
	wake, quit chan struct{}

	// Of the welcome.
	mostUnits, mostPieces int
	window                int64

	// What follows is guarded by c.mu.
	dead     bool
	out      []byte // for the writer
	calls    map[uint32]*copyCall
	lastCall uint32
	units    map[uint64]*copyUnit
	asked    int // units that were asked for, of which nothing was heard
	lastUnit uint64
	pieces   map[uint32]*copyPiece // that were sent
	turns    ring[*copyUser]       // those with pieces that wait for the window
	last     uint32                // number of a piece
	bytes    int64                 // of those that were sent
	runs     int                   // of references
	users    map[string]*copyUser  // by name of the initiator
}

// copyUser is what one initiator's copies have of a link, as much of each as they leave to others (block.Left).
type copyUser struct {
	name  string
	units int // that were found, or asked for
	runs  int // of references
	calls int // questions under way

	// Of the window (copywindow.go). What was sent stays until it is answered, also of a copy that has ended.
	pieces  int // that were sent
	bytes   int64
	waiting ring[*copyPiece]
	turning bool // it is in turns
}

// idle reports whether it has nothing of the link.
func (u *copyUser) idle() bool {
	return u.units == 0 && u.runs == 0 && u.calls == 0 && u.pieces == 0 && u.waiting.len() == 0
}

// copyCall is a question that was not answered. One of find, token and step is there.
type copyCall struct {
	find  func([]scsi.CopyUnit)
	token func(scsi.CopyUnit, block.Readable, uint32)
	step  func(scsi.CopyAnswer)

	by    *copyUser
	unit  *copyUnit // of a step
	first uint64    // number of the first unit that is asked for
	n     int       // of them
	hold  uint64    // sectors that a hold asks for
	runs  []block.Extent
	over  bool // there are too many of them
}

func newCopyLink(c *CopyClient, conn, raw net.Conn) *copyLink {
	return &copyLink{c: c, conn: conn, raw: raw, buf: make([]byte, maxBody), wake: make(chan struct{}, 1), quit: make(chan struct{}),
		calls: map[uint32]*copyCall{}, units: map[uint64]*copyUnit{}, pieces: map[uint32]*copyPiece{},
		users: map[string]*copyUser{}}
}

// sent has the writer send what was appended to out. Preconditions: mu is held.
func (l *copyLink) sent() {
	if len(l.out) > copyOut {
		l.raw.Close() // nobody reads there
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// begin numbers a question. Preconditions: mu is held, there is room.
func (l *copyLink) begin(k *copyCall) uint32 {
	for l.lastCall++; l.calls[l.lastCall] != nil; l.lastCall++ {
	}
	k.by.calls++
	l.calls[l.lastCall] = k
	return l.lastCall
}

// Find implements scsi.CopyArray.
func (c *CopyClient) Find(who scsi.CopyInitiator, want []scsi.CopyDesignator, answer func([]scsi.CopyUnit)) {
	if !c.seek(who, want, answer) {
		answer(make([]scsi.CopyUnit, len(want)))
	}
}

func (c *CopyClient) seek(who scsi.CopyInitiator, want []scsi.CopyDesignator, answer func([]scsi.CopyUnit)) bool {
	if len(who.Name) > maxInitiator || len(who.Port) > maxInitiator || len(want) == 0 || len(want) > copyWants {
		return false
	}
	for _, w := range want {
		if len(w.ID) > maxDesignID {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.link
	if l == nil || !l.room(who.Name, len(want)) {
		return false
	}
	first := l.lastUnit + 1
	call := l.begin(&copyCall{find: answer, by: l.expect(who.Name, len(want)), first: first, n: len(want)})
	f := finding{call: call, first: first, who: who, want: want}
	l.out = f.append(l.out)
	l.sent()
	return true
}

// room reports whether a question of an initiator may be asked that brings so many units. Preconditions: mu is held.
func (l *copyLink) room(who string, units int) bool {
	u := l.users[who]
	if u == nil {
		u = &copyUser{}
	}
	return l.mayAsk(u) && block.Left(u.units, len(l.units)+l.asked, l.mostUnits) >= units
}

// mayAsk reports whether there is room for one more question on behalf of an initiator. Preconditions: mu is held.
func (l *copyLink) mayAsk(u *copyUser) bool { return block.Left(u.calls, len(l.calls), copyCalls) > 0 }

// expect counts and numbers units that an initiator asks for. Preconditions: mu is held, there is room.
func (l *copyLink) expect(who string, units int) *copyUser {
	u := l.users[who]
	if u == nil {
		u = &copyUser{name: who}
		l.users[who] = u
	}
	u.units += units
	l.lastUnit += uint64(units)
	l.asked += units
	return u
}

// gives takes units and runs back that an initiator had. Preconditions: mu is held.
func (l *copyLink) gives(u *copyUser, units, runs int) {
	u.units -= units
	u.runs -= runs
	if l.runs -= runs; u.idle() && l.users[u.name] == u {
		delete(l.users, u.name)
	}
}

// Borrow implements scsi.CopyArray.
func (c *CopyClient) Borrow(who scsi.CopyInitiator, sum scsi.CopyTokenSum, answer func(scsi.CopyUnit, block.Readable, uint32)) {
	c.mu.Lock()
	l := c.link
	ok := l != nil && l.room(who.Name, 1) && len(who.Name) <= maxInitiator && len(who.Port) <= maxInitiator
	if ok {
		by := l.expect(who.Name, 1)
		t := borrowing{unit: l.lastUnit, who: who, sum: sum}
		t.call = l.begin(&copyCall{token: answer, by: by, first: t.unit, n: 1})
		l.out = t.append(l.out)
		l.sent()
	}
	c.mu.Unlock()
	if !ok {
		answer(nil, nil, scsi.CopyTokenUnknown)
	}
}

// write sends what there is until the link ends.
func (l *copyLink) write() {
	t := time.NewTicker(l.c.times.ping)
	defer t.Stop()
	var b []byte
	for {
		select {
		case <-l.quit:
			return
		case <-l.wake:
		case <-t.C:
		}
		l.c.mu.Lock()
		b, l.out = l.out, b[:0]
		l.c.mu.Unlock()
		if len(b) == 0 {
			b = appendPing(b, 0)
		}
		for rest := b; len(rest) > 0; {
			n := min(len(rest), chunkLen)
			l.raw.SetWriteDeadline(time.Now().Add(writeTime))
			if _, err := l.conn.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		if cap(b) > chunkLen {
			b = nil
		}
	}
}

// read takes what the other array sends until the link ends.
func (l *copyLink) read() error {
	for {
		k, body, err := readMessage(l.br, l.buf)
		if err != nil {
			return err
		}
		switch k {
		case kindPing:
			_, err = parseLong(k, body)
		case kindFound:
			err = l.heardFound(body)
		case kindRuns:
			err = l.heardRuns(body)
		case kindAnswer:
			err = l.heardAnswer(body)
		case kindData:
			err = l.heardData(body)
		case kindEnded:
			err = l.heardEnded(body)
		default:
			err = broke("a message of kind %d", k)
		}
		if err != nil {
			return err
		}
	}
}

// answered takes a question away that was answered, with what it was to bring. Preconditions: mu is held, it is there.
func (l *copyLink) answered(id uint32) {
	k := l.calls[id]
	delete(l.calls, id)
	k.by.calls--
	l.asked -= k.n
	l.gives(k.by, k.n, len(k.runs))
}

// admit notes a unit that was found. Preconditions: mu is held.
func (l *copyLink) admit(by *copyUser, id uint64, f foundUnit) *copyUnit {
	u := &copyUnit{l: l, by: by, id: id, volume: f.volume, shift: f.shift}
	l.units[id] = u
	l.users[by.name] = by // that answered has taken away
	by.units++
	return u
}

func (l *copyLink) heardFound(body []byte) error {
	id, found, err := parseFound(body)
	if err != nil {
		return err
	}
	l.c.mu.Lock()
	k := l.calls[id]
	if k == nil || k.find == nil || len(found) != k.n { // its end comes with that of the link
		l.c.mu.Unlock()
		return broke("%d units in answer to question %d", len(found), id)
	}
	l.answered(id)
	units := make([]scsi.CopyUnit, len(found))
	for i, f := range found {
		if f.ok {
			units[i] = l.admit(k.by, k.first+uint64(i), f)
		}
	}
	l.c.mu.Unlock()
	k.find(units)
	return nil
}

func (l *copyLink) heardRuns(body []byte) error {
	c := cursor{b: body}
	id := c.u32()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	k := l.calls[id]
	switch {
	case k == nil || k.find != nil || k.step != nil && k.hold == 0:
		return broke("runs for question %d", id)
	case k.over || len(body) > block.Left(k.by.runs, l.runs, copyAllRuns): // each run has a byte at least
		k.over = true
		l.gives(k.by, 0, len(k.runs))
		k.runs = nil
		return nil
	}
	before := len(k.runs)
	_, runs, err := parseRuns(body, k.runs, copyRuns)
	if err != nil {
		return err
	}
	k.runs = runs
	l.gives(k.by, 0, before-len(runs))
	return nil
}

func (l *copyLink) heardAnswer(body []byte) error {
	e, err := parseStepEnd(body)
	if err != nil {
		return err
	}
	l.c.mu.Lock()
	k := l.calls[e.call]
	if err = l.fits(k, &e); err != nil {
		l.c.mu.Unlock()
		return err
	}
	l.answered(e.call)
	u := k.unit
	if k.token != nil && e.unit.ok {
		u = l.admit(k.by, k.first, e.unit)
	}
	var ref *copyRef
	a := scsi.CopyAnswer{Status: block.Status(e.status), Gone: e.gone, SAM: e.sam, Sense: e.sense}
	if e.held {
		ref = &copyRef{u: u, sectors: e.sectors, runs: k.runs, token: k.token != nil}
		l.gives(u.by, 0, -len(k.runs))
		u.ref = ref
		a.Ref = ref
	}
	l.c.mu.Unlock()
	switch {
	case k.step != nil && k.over && ref != nil: // it is too much for this side
		ref.Release()
		k.step(scsi.CopyAnswer{Status: block.Resources, SAM: scsi.StatusBusy})
	case k.step != nil:
		k.step(a)
	case k.over && ref != nil:
		u.Leave()
		k.token(nil, nil, scsi.CopyTokenUnknown)
	case ref != nil:
		k.token(u, ref, 0)
	default:
		k.token(nil, nil, e.sense)
	}
	return nil
}

// fits tells what is wrong with an answer. Preconditions: mu is held.
func (l *copyLink) fits(k *copyCall, e *stepEnd) error {
	if k == nil || k.find != nil {
		return broke("an answer to question %d", e.call)
	}
	var held uint64
	if n := len(k.runs); n > 0 {
		held = k.runs[n-1].End()
	}
	ok := e.status == byte(block.OK)
	switch {
	case e.held != (ok && (k.token != nil && e.unit.ok || k.hold > 0)):
	case k.step != nil && e.unit.ok, k.token != nil && e.unit.ok != e.held, k.token != nil && !e.held && e.sense == 0:
	case e.held && (e.sectors == 0 || e.sectors > 1<<50 || !k.over && held != e.sectors || k.hold > 0 && e.sectors != k.hold):
	case !e.held && len(k.runs) > 0:
	default:
		return nil
	}
	return broke("an answer to question %d that does not fit it", e.call)
}

func (l *copyLink) heardEnded(body []byte) error {
	id, why, err := parseEnded(body)
	if err != nil {
		return err
	}
	l.c.mu.Lock()
	u := l.units[id]
	if u == nil && id > l.lastUnit {
		err = broke("an end of unit %d", id)
	}
	l.c.mu.Unlock()
	if u != nil {
		u.end(why)
	}
	return err
}

// end ends all that was under way, when nobody reads or writes any more: units first, so that an operation hears why.
func (l *copyLink) end() {
	c := l.c
	c.mu.Lock()
	l.dead = true
	c.link = nil
	units, calls, pieces := l.units, l.calls, l.pieces
	l.units, l.calls, l.pieces, l.out = nil, nil, nil, nil
	waiting := l.unsent()
	c.mu.Unlock()
	if len(units) > 0 {
		c.broken.Add(1)
	}
	for _, u := range units {
		u.end(scsi.CopyEnding{Gone: true})
	}
	for _, k := range calls {
		switch {
		case k.find != nil:
			k.find(make([]scsi.CopyUnit, k.n))
		case k.token != nil:
			k.token(nil, nil, scsi.CopyTokenUnknown)
		default:
			k.step(scsi.CopyAnswer{Status: block.Offline, Gone: true})
		}
	}
	for _, x := range pieces {
		x.p.Served(block.Offline)
	}
	for _, x := range waiting {
		x.p.Served(block.Offline)
	}
}
