// The way to the copy managers of another array, on the side of a unit here that one of them reads. Whoever
// sends what comes in here has a secret, and no more: nothing of it is trusted but in whose name it comes.

package copysource

import (
	"crypto/sha256"
	"crypto/subtle"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Initiator is on whose behalf another array asks: its name, and that of the port that the command came from.
type Initiator struct{ Name, Port string }

// Designator is a unit that a copy names (SPC-5 7.7.6).
type Designator struct {
	CodeSet, Kind byte // Kind includes the association
	ID            []byte
}

// TokenSum stands for a ROD token on the way to another array: who has not made the token does not learn it.
type TokenSum [sha256.Size]byte

// LinkEnding is an Ending between arrays.
type LinkEnding struct {
	Status byte   // of SAM, that the unit answers
	Sense  uint32 // 0xKKAAQQ
	Gone   bool   // it cannot be reached any more
}

// Answer is how a step at another array has ended.
type Answer struct {
	Status block.Status
	Gone   bool   // the unit cannot be reached
	SAM    byte   // where Status is not OK: what the unit answers
	Sense  uint32 // 0xKKAAQQ
	Ref    block.Readable
}

// Lent is the part that a unit here has in an operation of another array. Its methods, and those that make one, are called
// with the executor of the target held.
type Lent struct {
	g   *Guest
	ref block.Readable // what is held
}

// Lend lends a unit to another array, on behalf of an initiator that has a session here and sees it; nil: there is none.
// ended hears, with the executor held, that the unit has ended its part, and with what.
func (m *Store) Lend(who Initiator, want Designator, ended func(LinkEnding)) *Lent {
	if !m.serves() {
		return nil
	}
	w := &Wanted{CodeSet: want.CodeSet, Kind: want.Kind, ID: want.ID, Uses: server.UsesRead}
	g := m.Invite(Caller{Initiator: who.Name, Port: who.Port}, w, told(ended))
	if g == nil {
		return nil
	}
	g.lent = true
	return &Lent{g: g}
}

// LendToken puts a token to use for another array. Without a Lent, why is the sense code.
func (m *Store) LendToken(who Initiator, sum TokenSum, ended func(LinkEnding)) (l *Lent, why uint32) {
	if !m.serves() {
		return nil, uint32(sense.TokenUnknown)
	}
	g, ref, code := m.Redeem(Caller{Initiator: who.Name, Port: who.Port}, func(q *Token) bool {
		own := q.digest()
		return subtle.ConstantTimeCompare(own[:], sum[:]) == 1
	}, told(ended))
	if g == nil {
		return nil, uint32(code)
	}
	r, ok := ref.(block.Readable)
	if !ok {
		g.Leave()
		return nil, uint32(sense.TokenUnknown)
	}
	return &Lent{g, r}, 0
}

// told is an Ending on its way to another array.
func told(ended func(LinkEnding)) func(Ending) {
	return func(e Ending) { ended(LinkEnding{Status: e.Status, Sense: uint32(e.Why)}) }
}

// digest is what stands for the token in messages to other arrays.
func (k *Token) digest() TokenSum {
	if k.sum == (TokenSum{}) {
		k.sum = sha256.Sum256(k.Bytes[:])
	}
	return k.sum
}

// serves reports whether this process may answer for the array.
func (m *Store) serves() bool {
	serving := m.t.Options().Serving
	return serving == nil || serving()
}

// Volume is the name by which the unit is counted, Shift log2 of sectors per logical block.
func (l *Lent) Volume() string { return l.g.x.Unit().Volume() }
func (l *Lent) Shift() uint8   { return l.g.x.Unit().Shift() }

// Check asks whether the unit would serve a read, and answers from inside.
func (l *Lent) Check(r block.Range, answer func(Answer)) {
	l.step(&Step{Kind: Check, Span: r}, answer)
}

// Hold makes a reference to what the unit has now. It stays until Release, Leave, or the end of the unit's part.
func (l *Lent) Hold(r block.Range, answer func(Answer)) {
	g := l.g
	if g.under != nil || g.ref != nil || g.token != nil || r.Count == 0 { // no copy asks that
		answer(Answer{Status: block.Resources, SAM: sam.StatusBusy})
		return
	}
	l.step(&Step{Kind: Hold, Span: r}, answer)
}

func (l *Lent) step(q *Step, answer func(Answer)) {
	m := l.g.s
	if !m.serves() {
		answer(Answer{Status: block.Offline, Gone: true})
		return
	}
	m.t.Enter()
	defer m.t.Leave()
	l.g.Serve(q, func(r Reply) {
		a := Answer{Status: r.Status, Gone: r.Gone, SAM: r.SAM, Sense: uint32(r.Sense.Code)}
		if r.Ref != nil {
			if l.ref, _ = r.Ref.(block.Readable); l.ref == nil { // it is no array's
				l.g.release()
				a = Answer{Status: block.Unsupported, Gone: true}
			}
		}
		a.Ref = l.ref
		answer(a)
	})
}

// Held is what the unit holds for the operation, nil if it is nothing.
func (l *Lent) Held() block.Readable {
	if l.g.ref == nil && l.g.token == nil { // it was given back, or a fence took it
		l.ref = nil
	}
	return l.ref
}

// Read reads sectors [off, off+n) of what is held; see block.Readable.
func (l *Lent) Read(off, n uint64, buf []byte, p block.Piece) {
	r, origin := l.Held(), block.OriginXCopy
	if l.g.token != nil {
		origin = block.OriginODX
	}
	if r == nil || !l.g.s.serves() {
		p.Served(block.Offline)
		return
	}
	r.Read(off, n, buf, origin, p)
}

// Release gives back what is held. The unit keeps its part.
func (l *Lent) Release() {
	if l.g.under == nil && l.g.token == nil {
		l.g.release()
	}
}

// Leave ends the unit's part: the operation needs it no more.
func (l *Lent) Leave() {
	if !l.g.left {
		l.g.Leave()
	}
}

// Describe counts what an offload describes.
func (l *Lent) Describe(bytes uint64) { l.g.x.Unit().Describe(counters.XCopySource, bytes) }

// Count counts that an operation has ended with a SAM status, after took ns.
func (l *Lent) Count(status byte, took int64) {
	const longest = 1 << 50 // two weeks
	l.g.Count(counters.XCopySource, status, min(max(took, 0), longest))
}

// EndToken makes the token invalid that the unit has in use.
func (l *Lent) EndToken() { l.g.EndToken(sense.TokenDeleted) }
