package link

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// A link between two arrays is a connection that the array of a copy's destination makes to the owner of the source's. Units
// that are found get numbers from the one that copies, which it does not use twice. A piece is asked for by its place in what
// is held: no address of a pool leaves the array that has it.

const (
	copyVersion = 1

	// Bounds of what one link can have the other end hold.
	copyUnits    = 4096     // units that are lent
	copyPieces   = 256      // under way
	copyWindow   = 16 << 20 // bytes of pieces under way
	copyPieceLen = 1 << 20  // of one
	copyCalls    = 4096     // questions under way
	copyRuns     = 1 << 18  // of one reference
	copyAllRuns  = 1 << 20  // of all references that the array that copies keeps
	copyWants    = 64       // units of one question
	copyOut      = 64 << 20 // bytes of messages that wait to be written

	maxInitiator = 512 // bytes of the name of an initiator, or of its port
	maxDesignID  = 255
	maxVolume    = 255
)

// copyHello is what an array says that copies, and copyWelcome what the other one answers.
type copyHello struct {
	name    string // for people
	process incarnation
}

func (h *copyHello) append(b []byte) []byte {
	at := len(b)
	b = be.AppendUint16(appendHead(b, kindCopyHello), copyVersion)
	b = append(appendString(b, h.name), h.process[:]...)
	return appendLength(b, at)
}

func parseCopyHello(body []byte) (h copyHello, err error) {
	c := cursor{b: body}
	if v := c.u16(); v != copyVersion && !c.bad {
		return h, fmt.Errorf("the other array speaks version %d of copies between arrays, this one %d; run the same program on both", v, copyVersion)
	}
	h.name = printable(c.bytes())
	copy(h.process[:], c.take(len(h.process)))
	if len(h.name) > maxName {
		return h, broke("a name of %d bytes", len(h.name))
	}
	return h, c.end(kindCopyHello)
}

type copyWelcome struct {
	array         string
	epoch         uint64 // of its owner
	node          string // for people
	units, pieces uint32
	window        uint32 // bytes of pieces
}

func (w *copyWelcome) append(b []byte) []byte {
	at := len(b)
	b = be.AppendUint16(appendHead(b, kindCopyWelcome), copyVersion)
	b = appendString(be.AppendUint64(appendString(b, w.array), w.epoch), w.node)
	b = be.AppendUint32(be.AppendUint32(be.AppendUint32(b, w.units), w.pieces), w.window)
	return appendLength(b, at)
}

func parseCopyWelcome(body []byte) (w copyWelcome, err error) {
	c := cursor{b: body}
	if v := c.u16(); v != copyVersion && !c.bad {
		return w, fmt.Errorf("the other array speaks version %d of copies between arrays, this one %d; run the same program on both", v, copyVersion)
	}
	w = copyWelcome{array: string(c.bytes()), epoch: c.u64(), node: printable(c.bytes()), units: c.u32(), pieces: c.u32(), window: c.u32()}
	switch {
	case c.bad:
	case len(w.array) > maxArray || len(w.node) > maxName:
		return w, broke("names of %d and %d bytes", len(w.array), len(w.node))
	case w.units == 0 || w.pieces == 0 || w.window < copyPieceLen:
		return w, broke("a window of %d units, %d pieces and %d bytes", w.units, w.pieces, w.window)
	}
	return w, c.end(kindCopyWelcome)
}

// finding asks for units. They get the numbers from first on.
type finding struct {
	call  uint32
	first uint64
	who   scsi.CopyInitiator
	want  []scsi.CopyDesignator
}

func (f *finding) append(b []byte) []byte {
	at := len(b)
	b = be.AppendUint64(be.AppendUint32(appendHead(b, kindFind), f.call), f.first)
	b = append(appendString(appendString(b, f.who.Name), f.who.Port), byte(len(f.want)))
	for _, w := range f.want {
		b = append(append(b, w.CodeSet, w.Kind, byte(len(w.ID))), w.ID...)
	}
	return appendLength(b, at)
}

func (c *cursor) initiator() (who scsi.CopyInitiator, err error) {
	who = scsi.CopyInitiator{Name: string(c.bytes()), Port: string(c.bytes())}
	if len(who.Name) > maxInitiator || len(who.Port) > maxInitiator {
		return who, broke("names of an initiator of %d and %d bytes", len(who.Name), len(who.Port))
	}
	return who, nil
}

func parseFinding(body []byte) (f finding, err error) {
	c := cursor{b: body}
	f.call, f.first = c.u32(), c.u64()
	if f.who, err = c.initiator(); err != nil {
		return f, err
	}
	n := int(c.u8())
	if n == 0 && !c.bad || n > copyWants {
		return f, broke("a question for %d units", n)
	}
	for range n {
		w := scsi.CopyDesignator{CodeSet: c.u8(), Kind: c.u8()}
		w.ID = append([]byte(nil), c.take(int(c.u8()))...)
		f.want = append(f.want, w)
	}
	return f, c.end(kindFind)
}

// foundUnit is one answer to a finding.
type foundUnit struct {
	ok     bool
	shift  byte
	volume string
}

func appendFound(b []byte, call uint32, found []foundUnit) []byte {
	at := len(b)
	b = append(be.AppendUint32(appendHead(b, kindFound), call), byte(len(found)))
	for _, f := range found {
		b = appendString(append(b, bit(f.ok), f.shift), f.volume)
	}
	return appendLength(b, at)
}

func (c *cursor) found() (f foundUnit, err error) {
	f = foundUnit{ok: c.u8()&1 != 0, shift: c.u8(), volume: string(c.bytes())}
	if f.shift != 0 && f.shift != 3 || len(f.volume) > maxVolume {
		return f, broke("a unit with blocks of 512 << %d bytes and a name of %d", f.shift, len(f.volume))
	}
	return f, nil
}

func parseFound(body []byte) (call uint32, found []foundUnit, err error) {
	c := cursor{b: body}
	call = c.u32()
	for range int(c.u8()) {
		f, err := c.found()
		if err != nil {
			return call, nil, err
		}
		found = append(found, f)
	}
	return call, found, c.end(kindFound)
}

// borrowing puts a token to use. Its unit gets a number.
type borrowing struct {
	call uint32
	unit uint64
	who  scsi.CopyInitiator
	sum  scsi.CopyTokenSum
}

func (t *borrowing) append(b []byte) []byte {
	at := len(b)
	b = be.AppendUint64(be.AppendUint32(appendHead(b, kindToken), t.call), t.unit)
	b = append(appendString(appendString(b, t.who.Name), t.who.Port), t.sum[:]...)
	return appendLength(b, at)
}

func parseBorrowing(body []byte) (t borrowing, err error) {
	c := cursor{b: body}
	t.call, t.unit = c.u32(), c.u64()
	if t.who, err = c.initiator(); err != nil {
		return t, err
	}
	copy(t.sum[:], c.take(len(t.sum)))
	return t, c.end(kindToken)
}

// step is a check or a hold.
type step struct {
	call uint32
	unit uint64
	r    block.Range
}

func (s *step) append(b []byte, k kind) []byte {
	at := len(b)
	b = be.AppendUint64(be.AppendUint32(appendHead(b, k), s.call), s.unit)
	return appendLength(be.AppendUint64(be.AppendUint64(b, s.r.Start), s.r.Count), at)
}

func parseStep(k kind, body []byte) (s step, err error) {
	c := cursor{b: body}
	s = step{call: c.u32(), unit: c.u64(), r: block.Range{Start: c.u64(), Count: c.u64()}}
	return s, c.end(k)
}

// stepEnd is an answer to a check, a hold, or a borrowing. What is held, the runs before it have said.
type stepEnd struct {
	call    uint32
	status  byte
	gone    bool
	sam     byte
	sense   uint32
	held    bool
	sectors uint64
	unit    foundUnit // of a borrowing
}

func (e *stepEnd) append(b []byte) []byte {
	at := len(b)
	b = append(be.AppendUint32(appendHead(b, kindAnswer), e.call), e.status, bit(e.gone), e.sam)
	b = be.AppendUint64(append(be.AppendUint32(b, e.sense), bit(e.held)), e.sectors)
	b = appendString(append(b, bit(e.unit.ok), e.unit.shift), e.unit.volume)
	return appendLength(b, at)
}

func parseStepEnd(body []byte) (e stepEnd, err error) {
	c := cursor{b: body}
	e = stepEnd{call: c.u32(), status: c.u8(), gone: c.u8()&1 != 0, sam: c.u8(), sense: c.u32(), held: c.u8()&1 != 0, sectors: c.u64()}
	if e.unit, err = c.found(); err != nil {
		return e, err
	}
	switch {
	case e.status > byte(block.Offline):
		return e, broke("an answer with status %d", e.status)
	case e.sense != 0 && !fails(uint64(e.sense)):
		return e, broke("an answer with sense code %06x", e.sense)
	case e.unit.ok && e.sectors&(1<<e.unit.shift-1) != 0:
		return e, broke("a token for %d sectors, and blocks of 512 << %d bytes", e.sectors, e.unit.shift)
	}
	return e, c.end(kindAnswer)
}

// fails reports whether a sense code is one of a command that has failed. Hosts take those of other keys for a success, or know
// no such key.
func fails(code uint64) bool {
	const notReady, miscompare = 0x02, 0x0E
	key := code >> 16
	return notReady <= key && key <= miscompare
}

// Runs: the number of a call, then for each run its length in sectors, shifted by two bits, with its state, as varints.

// appendRuns makes the messages with the runs of a reference, and tells whether these are few enough.
func appendRuns(b []byte, call uint32, ref block.Readable) (out []byte, ok bool) {
	at, total := len(b), 0
	b = be.AppendUint32(appendHead(b, kindRuns), call)
	put := func(n uint64, s block.State) {
		if total++; len(b)-at > maxBody-binary.MaxVarintLen64 {
			b = appendLength(b, at)
			at = len(b)
			b = be.AppendUint32(appendHead(b, kindRuns), call)
		}
		b = binary.AppendUvarint(b, n<<2|uint64(s))
	}
	var n uint64
	var state block.State
	ref.States(0, ref.Sectors(), func(x block.Extent) bool {
		if x.State != state && n > 0 {
			put(n, state)
			n = 0
		}
		n, state = n+x.Count, x.State
		return total < copyRuns
	})
	if n > 0 {
		put(n, state)
	}
	return appendLength(b, at), total <= copyRuns
}

// parseRuns appends the runs of a message to those that came before. most bounds all of them.
func parseRuns(body []byte, runs []block.Extent, most int) (call uint32, _ []block.Extent, err error) {
	c := cursor{b: body}
	call = c.u32()
	var at uint64
	if len(runs) > 0 {
		at = runs[len(runs)-1].End()
	}
	for len(c.b) > 0 {
		v, n := binary.Uvarint(c.b)
		count := v >> 2
		switch {
		case n <= 0, count == 0, at+count < at, at+count > 1<<50:
			return call, runs, broke("runs that are none")
		case len(runs) >= most:
			return call, runs, broke("more than %d runs", most)
		}
		c.b = c.b[n:]
		runs = append(runs, block.Extent{Range: block.Range{Start: at, Count: count}, State: block.State(v & 3)})
		at += count
	}
	return call, runs, c.end(kindRuns)
}

// pieceHead asks for sectors of what a unit holds.
type pieceHead struct {
	id     uint32
	unit   uint64
	off    uint64
	length uint32 // sectors
}

func (p *pieceHead) append(b []byte) []byte {
	at := len(b)
	b = be.AppendUint64(be.AppendUint32(appendHead(b, kindPiece), p.id), p.unit)
	return appendLength(be.AppendUint32(be.AppendUint64(b, p.off), p.length), at)
}

func parsePieceHead(body []byte) (p pieceHead, err error) {
	c := cursor{b: body}
	p = pieceHead{id: c.u32(), unit: c.u64(), off: c.u64(), length: c.u32()}
	if p.length == 0 || p.length > copyPieceLen/block.SectorSize {
		return p, broke("a piece of %d sectors", p.length)
	}
	return p, c.end(kindPiece)
}

// appendData is the head of a piece's data. Bytes follow where the status is OK, and none else.
func appendData(b []byte, id uint32, s block.Status, bytes uint32) []byte {
	at := len(b)
	return appendLength(be.AppendUint32(append(be.AppendUint32(appendHead(b, kindData), id), byte(s)), bytes), at)
}

func parseData(body []byte) (id uint32, s block.Status, bytes uint32, err error) {
	c := cursor{b: body}
	id, s, bytes = c.u32(), block.Status(c.u8()), c.u32()
	if s > block.Offline || s != block.OK && bytes != 0 {
		return id, s, bytes, broke("a piece of %d bytes with status %d", bytes, s)
	}
	return id, s, bytes, c.end(kindData)
}

// appendUnit makes a message that says something of a unit, with two numbers: of describe the bytes, of count the SAM status
// and the time; of the others they are 0.
func appendUnit(b []byte, k kind, unit, v, w uint64) []byte {
	at := len(b)
	return appendLength(be.AppendUint64(be.AppendUint64(be.AppendUint64(appendHead(b, k), unit), v), w), at)
}

func parseUnit(k kind, body []byte) (unit, v, w uint64, err error) {
	c := cursor{b: body}
	unit, v, w = c.u64(), c.u64(), c.u64()
	return unit, v, w, c.end(k)
}

// parseEnded reads how a unit has ended its part. That is the end of a host's command here, which has not been carried out: what
// a host would take for a success is none of it.
func parseEnded(body []byte) (unit uint64, why scsi.CopyEnding, err error) {
	unit, status, code, err := parseUnit(kindEnded, body)
	if err != nil {
		return unit, why, err
	}
	switch status {
	case scsi.StatusCheckCondition:
		if !fails(code) {
			return unit, why, broke("an end of unit %d with sense code %06x", unit, code)
		}
	case scsi.StatusBusy, scsi.StatusReservationConflict, scsi.StatusTaskSetFull, scsi.StatusTaskAborted:
		code = 0
	default:
		return unit, why, broke("an end of unit %d with status %02x", unit, status)
	}
	return unit, scsi.CopyEnding{Status: byte(status), Sense: uint32(code)}, nil
}
