package link

import (
	"sort"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// copyUnit is a unit of another array that copies from here use: a scsi.CopyUnit.
type copyUnit struct {
	l      *copyLink
	by     *copyUser
	id     uint64
	volume string
	shift  uint8

	// What follows is guarded by CopyClient.mu.
	watch  func(scsi.CopyEnding)
	ended  bool
	why    scsi.CopyEnding
	parted bool
	left   bool
	ref    *copyRef // the last that it was asked for
}

var _ scsi.CopyUnit = (*copyUnit)(nil)

func (u *copyUnit) Volume() string { return u.volume }
func (u *copyUnit) Shift() uint8   { return u.shift }

func (u *copyUnit) Watch(fn func(scsi.CopyEnding)) {
	mu := &u.l.c.mu
	mu.Lock()
	ended := u.ended
	if !ended {
		u.watch = fn
	}
	mu.Unlock()
	if ended {
		fn(u.why)
	}
}

// end notes that the unit has ended its part, for the first time alone.
func (u *copyUnit) end(why scsi.CopyEnding) {
	mu := &u.l.c.mu
	mu.Lock()
	fn := u.watch
	if u.ended {
		fn = nil
	} else {
		u.ended, u.why = true, why
	}
	mu.Unlock()
	if fn != nil {
		fn(why)
	}
}

// say sends a message, unless there is nobody who takes it. Preconditions: mu is held.
func (u *copyUnit) say(k kind, v, w uint64) {
	if !u.l.dead && !u.left {
		u.l.out = appendUnit(u.l.out, k, u.id, v, w)
		u.l.sent()
	}
}

func (u *copyUnit) tell(k kind, v, w uint64) {
	u.l.c.mu.Lock()
	defer u.l.c.mu.Unlock()
	u.say(k, v, w)
}

func (u *copyUnit) Check(r block.Range, answer func(scsi.CopyAnswer)) { u.step(kindCheck, r, answer) }
func (u *copyUnit) Hold(r block.Range, answer func(scsi.CopyAnswer))  { u.step(kindHold, r, answer) }

func (u *copyUnit) step(k kind, r block.Range, answer func(scsi.CopyAnswer)) {
	l := u.l
	l.c.mu.Lock()
	ok := !l.dead && !u.left && l.mayAsk(u.by)
	if ok {
		c := &copyCall{step: answer, by: u.by, unit: u}
		if k == kindHold {
			c.hold = r.Count
		}
		s := step{call: l.begin(c), unit: u.id, r: r}
		l.out = s.append(l.out, k)
		l.sent()
	}
	l.c.mu.Unlock()
	if !ok {
		answer(scsi.CopyAnswer{Status: block.Offline, Gone: true})
	}
}

func (u *copyUnit) Part() {
	u.l.c.mu.Lock()
	defer u.l.c.mu.Unlock()
	if !u.parted {
		u.parted = true
		u.say(kindPart, 0, 0)
	}
}

func (u *copyUnit) Leave() {
	u.l.c.mu.Lock()
	var dropped []*copyPiece
	if u.ref != nil {
		dropped = u.ref.release()
	}
	u.say(kindLeave, 0, 0)
	if !u.left && !u.l.dead {
		u.l.gives(u.by, 1, 0)
	}
	u.left, u.ended = true, true
	delete(u.l.units, u.id)
	u.l.c.mu.Unlock()
	cancel(dropped)
}

func (u *copyUnit) Describe(bytes uint64)         { u.tell(kindDescribe, bytes, 0) }
func (u *copyUnit) Count(status byte, took int64) { u.tell(kindCount, uint64(status), uint64(took)) }
func (u *copyUnit) EndToken()                     { u.tell(kindEndToken, 0, 0) }

// copyRef is what a unit of another array holds: a block.Readable. Its runs are constant.
type copyRef struct {
	u        *copyUnit
	sectors  uint64
	runs     []block.Extent
	token    bool // it goes with its unit
	released bool // guarded by CopyClient.mu
}

var _ block.Readable = (*copyRef)(nil)

func (r *copyRef) Sectors() uint64 { return r.sectors }

func (r *copyRef) States(off, n uint64, fn func(block.Extent) bool) {
	first := sort.Search(len(r.runs), func(i int) bool { return r.runs[i].End() > off })
	for _, x := range r.runs[first:] {
		if x.Start >= off+n {
			return
		}
		end := min(x.End(), off+n)
		x.Start = max(x.Start, off)
		x.Count = end - x.Start
		if !fn(x) {
			return
		}
	}
}

// Read asks for a piece. The origin is known at the other end, which has made the reference.
func (r *copyRef) Read(off, n uint64, buf []byte, _ block.Origin, p block.Piece) {
	l := r.u.l
	l.c.mu.Lock()
	ok := !l.dead && !r.u.left && !r.released && n > 0 && n<<block.SectorShift == uint64(len(buf)) && len(buf) <= copyPieceLen
	if ok {
		l.want(&copyPiece{of: r, head: pieceHead{unit: r.u.id, off: off, length: uint32(n)}, buf: buf, p: p})
	}
	l.c.mu.Unlock()
	if !ok {
		p.Served(block.Offline)
	}
}

func (r *copyRef) Release() {
	r.u.l.c.mu.Lock()
	dropped := r.release()
	r.u.l.c.mu.Unlock()
	cancel(dropped)
}

// release is Release, but for the pieces that have not been sent, which the caller cancels. Preconditions: mu is held.
func (r *copyRef) release() (dropped []*copyPiece) {
	if r.released {
		return nil
	}
	r.released = true
	by := r.u.by
	if !r.token {
		r.u.say(kindRelease, 0, 0)
	}
	for range by.waiting.len() {
		x := *by.waiting.first()
		if by.waiting.pop(); x.of == r {
			dropped = append(dropped, x)
		} else {
			by.waiting.push(x)
		}
	}
	l := r.u.l
	if l.gives(by, 0, len(r.runs)); len(dropped) > 0 {
		l.withdrawn(by)
	}
	return dropped
}

// cancel ends pieces that were not sent.
func cancel(dropped []*copyPiece) {
	for _, x := range dropped {
		x.p.Served(block.Cancelled)
	}
}
