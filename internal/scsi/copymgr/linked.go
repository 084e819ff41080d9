// The way to the copy managers of another array, on the side of the operation. What the other array has
// is only ever read: a copy that writes there is that array's to carry out. Package link moves the messages.

package copymgr

import (
	"crypto/sha256"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// What moves between arrays.
type (
	Initiator  = copysource.Initiator
	Designator = copysource.Designator
	TokenSum   = copysource.TokenSum
	Ending     = copysource.LinkEnding
	Answer     = copysource.Answer
)

// Array is the way to another array. Its methods, and those of an ArrayUnit, may be called with whatever executor held. They
// return at once, and each answer is called once, by any goroutine that holds no executor of the caller's, or from inside.
type Array interface {
	// Find looks for units that the initiator may read there: one for each that is wanted, nil for those that it does not see.
	Find(who Initiator, want []Designator, answer func([]ArrayUnit))
	// Borrow puts a token to use. Without a unit, why is the sense code.
	Borrow(who Initiator, sum TokenSum, answer func(u ArrayUnit, ref block.Readable, why uint32))
}

// ArrayUnit is a unit of another array that has a part in an operation here.
type ArrayUnit interface {
	Volume() string
	Shift() uint8 // log2 of sectors per logical block
	// Watch registers who hears, once, that the unit has ended its part.
	Watch(fn func(Ending))
	// Check asks whether the unit would serve a read, Hold makes a reference to what it has now.
	Check(r block.Range, answer func(Answer))
	Hold(r block.Range, answer func(Answer))
	// Part says that no further step uses the unit, Leave that the operation is over. Both give back what it holds.
	Part()
	Leave()
	// Describe counts what an offload describes, Count that an operation has ended with a SAM status, after took ns.
	Describe(bytes uint64)
	Count(status byte, took int64)
	// EndToken deletes the token that was borrowed.
	EndToken()
}

// Link has a manager look for units and tokens in another array. It is called before the manager has a command.
func (m *Manager) Link(a Array) {
	m.peers = append(m.peers, &peer{partner: &linkedArray{m, a}})
}

// linkedArray is another array, for one manager here.
type linkedArray struct {
	m *Manager
	a Array
}

// linkedUnit is a unit of another array in an operation here.
type linkedUnit struct {
	ArrayUnit
	of   *linkedArray
	who  string // the name of the initiator that copies
	mine far
}

// foreign is a reference of another array, as devices of this one read it.
type foreign struct {
	block.Readable
	account
}

// account is what one initiator's copies use of another array. See block.Remote.
type account struct {
	of  *linkedArray
	who string
}

func (f foreign) Home() block.Executor { return f.of.m.t.Exec() }
func (f foreign) Account() any         { return f.account }

// admit takes a unit of the other array for an initiator, and hears what ends it.
func (p *linkedArray) admit(who string, u ArrayUnit) *linkedUnit {
	l := &linkedUnit{ArrayUnit: u, of: p, who: who, mine: far{volume: u.Volume(), shift: u.Shift()}}
	u.Watch(func(e Ending) {
		c := interruption{g: l, status: e.Status, why: sense.Code(e.Sense), gone: e.Gone}
		if e.Gone {
			c.status, c.why = sam.StatusCheckCondition, sense.CopyNotReachable
		}
		p.m.tell(func() { l.mine.interrupt(c) })
	})
	return l
}

func (p *linkedArray) find(who copysource.Caller, want []*copysource.Wanted, answer func([]farUnit)) {
	out := make([]farUnit, len(want))
	var names []Designator
	var at []int
	for i, w := range want {
		if w.Uses == server.UsesRead && !who.Fabric {
			names, at = append(names, Designator{CodeSet: w.CodeSet, Kind: w.Kind, ID: w.ID}), append(at, i)
		}
	}
	if len(names) == 0 {
		p.m.tell(func() { answer(out) })
		return
	}
	p.a.Find(Initiator{Name: who.Initiator, Port: who.Port}, names, func(found []ArrayUnit) {
		for k, u := range found {
			if u != nil {
				out[at[k]] = p.admit(who.Initiator, u)
			}
		}
		p.m.tell(func() { answer(out) })
	})
}

func (p *linkedArray) borrow(who copysource.Caller, token []byte, answer func(farToken)) {
	if who.Fabric {
		p.m.tell(func() { answer(farToken{why: sense.TokenUnknown}) })
		return
	}
	p.a.Borrow(Initiator{Name: who.Initiator, Port: who.Port}, sha256.Sum256(token), func(u ArrayUnit, ref block.Readable, why uint32) {
		k := farToken{why: sense.Code(why)}
		if u != nil {
			k = farToken{g: p.admit(who.Initiator, u), ref: foreign{ref, account{p, who.Initiator}}, sectors: ref.Sectors()}
		}
		p.m.tell(func() { answer(k) })
	})
}

func (l *linkedUnit) far() *far        { return &l.mine }
func (l *linkedUnit) partner() partner { return l.of }

// ask has a step carried out. Nothing is written at the other array, so that nobody ever has to wait for its answer.
func (l *linkedUnit) ask(q *question, answer func(copysource.Reply), _ func()) {
	m := l.of.m
	heard := func(a Answer) {
		r := copysource.Reply{Status: a.Status, Gone: a.Gone, SAM: a.SAM, Sense: sense.Data{Code: sense.Code(a.Sense)}}
		if a.Ref != nil {
			r.Ref = foreign{a.Ref, account{l.of, l.who}}
		}
		m.tell(func() { answer(r) })
	}
	switch q.Kind {
	case copysource.Check:
		l.Check(q.Span, heard)
	case copysource.Hold:
		l.Hold(q.Span, heard)
	default: // it was found for reads alone
		heard(Answer{Status: block.Unsupported, Gone: true})
	}
}

func (l *linkedUnit) cancel(*question)                            {}
func (l *linkedUnit) dismiss()                                    { l.Leave() }
func (l *linkedUnit) part()                                       { l.Part() }
func (l *linkedUnit) describe(_ counters.Op, bytes uint64)        { l.Describe(bytes) }
func (l *linkedUnit) book(_ counters.Op, status byte, took int64) { l.Count(status, took) }
func (l *linkedUnit) endToken(sense.Code)                         { l.EndToken() }
