package copymgr

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/testkit"
)

// lateArray is another array that has whatever is asked for, or not, and answers at once, or when the test says so.
type lateArray struct {
	rng     *rand.Rand
	prompt  bool     // it answers at once
	answers []func() // that are due
	units   []*lateUnit
	refs    []*lateRef
}

func (a *lateArray) later(answer func()) {
	if a.prompt || a.rng.IntN(8) == 0 {
		answer()
		return
	}
	a.answers = append(a.answers, answer)
}

// answer gives the i-th answer.
func (a *lateArray) answer(i int) {
	fn := a.answers[i]
	a.answers = append(a.answers[:i:i], a.answers[i+1:]...)
	fn()
}

func (a *lateArray) unit() *lateUnit {
	u := &lateUnit{of: a}
	a.units = append(a.units, u)
	return u
}

func (a *lateArray) ref() *lateRef {
	r := &lateRef{}
	a.refs = append(a.refs, r)
	return r
}

func (a *lateArray) Find(_ Initiator, want []Designator, answer func([]ArrayUnit)) {
	a.later(func() {
		out := make([]ArrayUnit, len(want))
		for i := range out {
			if a.rng.IntN(3) > 0 {
				out[i] = a.unit()
			}
		}
		answer(out)
	})
}

func (a *lateArray) Borrow(_ Initiator, _ TokenSum, answer func(ArrayUnit, block.Readable, uint32)) {
	a.later(func() {
		if a.rng.IntN(3) > 0 {
			answer(a.unit(), &lateRef{}, 0)
		} else {
			answer(nil, nil, uint32(sense.TokenUnknown))
		}
	})
}

type lateUnit struct {
	of    *lateArray
	watch func(Ending)
	left  bool
}

func (u *lateUnit) Volume() string        { return "far" }
func (u *lateUnit) Shift() uint8          { return 0 }
func (u *lateUnit) Watch(fn func(Ending)) { u.watch = fn }
func (u *lateUnit) Part()                 {}
func (u *lateUnit) Leave()                { u.left = true }
func (u *lateUnit) Describe(uint64)       {}
func (u *lateUnit) Count(byte, int64)     {}
func (u *lateUnit) EndToken()             {}

func (u *lateUnit) Check(_ block.Range, answer func(Answer)) {
	u.of.later(func() { answer(u.of.outcome()) })
}

func (u *lateUnit) Hold(_ block.Range, answer func(Answer)) {
	u.of.later(func() {
		a := u.of.outcome()
		if a.Status == block.OK {
			a.Ref = u.of.ref()
		}
		answer(a)
	})
}

func (a *lateArray) outcome() Answer {
	if a.rng.IntN(6) == 0 {
		return Answer{Status: block.Offline, Gone: true}
	}
	return Answer{}
}

type lateRef struct{ released bool }

func (*lateRef) Sectors() uint64                                { return 8 }
func (r *lateRef) Release()                                     { r.released = true }
func (*lateRef) States(uint64, uint64, func(block.Extent) bool) {}
func (*lateRef) Read(_, _ uint64, _ []byte, _ block.Origin, piece block.Piece) {
	piece.Served(block.Offline)
}

// copyFrom sends an EXTENDED COPY(LID4) of 8 blocks of a unit that the target does not have.
func (r *rig) copyFrom(n *server.Nexus, id uint32, immed bool) *server.Task {
	const flagsAt, typeAt, idAt, cscdsAt, segmentsAt = 15, 16, 20, 42, 44 // SPC-4 6.4.4
	be := binary.BigEndian
	list := make([]byte, copylist.Header4+copylist.CSCDLen)
	list[0] = 1
	be.PutUint16(list[2:], copylist.CSCDLen)
	list[typeAt] = 0xFF
	if immed {
		list[flagsAt] = 1
	}
	be.PutUint32(list[idAt:], id)
	be.PutUint16(list[cscdsAt:], copylist.CSCDLen)
	be.PutUint16(list[segmentsAt:], copylist.SegmentBlocksLen)
	c := list[copylist.Header4:]
	c[0], c[cscdCodeSet], c[cscdKind], c[cscdIDLen] = copylist.CSCDIdent, 1, 3, 8
	g := blocksSegment(8, 0, 0)
	be.PutUint16(g[copylist.SegmentSource:], 0)
	return r.submit(n, []byte{0x83, SACopyLID4, 15: 0}, append(list, g...))
}

// redeem sends a WRITE USING TOKEN of 8 blocks with a token that the target does not have.
func (r *rig) redeem(n *server.Nexus, id uint32, immed bool) *server.Task {
	be := binary.BigEndian
	list := make([]byte, writeHead+rangeLen)
	be.PutUint16(list, uint16(len(list)-2))
	if immed {
		list[tokenFlags] = tokenImmed
	}
	be.PutUint32(list[writeToken:], copylist.RODPointInTime)
	be.PutUint16(list[writeToken+copysource.TokenLengthAt:], copysource.TokenLength)
	list[writeRanges+1], list[writeHead+11] = rangeLen, 8
	cdb := []byte{0x83, SAWriteToken, 15: 0}
	be.PutUint32(cdb[tokenListID:], id)
	return r.submit(n, cdb, list)
}

// TestQuestionsAreCounted: whatever becomes of searches and operations, and whenever other arrays answer, a manager knows how many
// questions each of them has not answered, and on whose behalf. At the end there is none, and nothing of the other arrays is kept.
func TestQuestionsAreCounted(t *testing.T) {
	base := testkit.Seed(t)
	left, most := 0, 0
	for seed := base; seed < base+60; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t)
		r.dev.keen = rng.IntN(2) == 0
		near, far := &lateArray{rng: rng, prompt: rng.IntN(2) == 0}, &lateArray{rng: rng}
		arrays := []*lateArray{near, far}
		for _, a := range arrays {
			r.m.Link(a)
		}
		names := []string{"a", "b", "c"}
		nexuses := make([]*server.Nexus, len(names))
		for i, name := range names {
			nexuses[i] = r.login(name)
		}
		check := func() {
			t.Helper()
			r.exec.RunUntil(r.exec.Now() + 1)
			for i, p := range r.m.peers {
				sum := 0
				for host, n := range p.unanswered.Each() {
					if sum += n; n < 1 || n > maxStepsOfHost {
						t.Fatalf("seed %d: array %d has %d questions of initiator %d", seed, i, n, host)
					}
				}
				if due := len(arrays[i].answers); p.unanswered.All() != due || sum != due {
					t.Fatalf("seed %d: array %d has to answer %d questions, and %d are counted: %v", seed, i, due, p.unanswered.All(), maps.Collect(p.unanswered.Each()))
				}
				most = max(most, p.unanswered.All())
			}
		}
		for range 400 {
			i := rng.IntN(len(names))
			n, a := nexuses[i], arrays[rng.IntN(2)]
			switch op := rng.IntN(24); {
			case op < 7:
				r.copyFrom(n, rng.Uint32N(40), rng.IntN(2) == 0)
			case op < 12:
				r.redeem(n, rng.Uint32N(40), rng.IntN(2) == 0)
			case op < 16:
				if len(a.answers) > 0 && seed%2 == 0 {
					a.answer(rng.IntN(len(a.answers)))
				}
			case op < 20:
				if len(r.dev.reqs) > 0 {
					r.dev.end(rng.IntN(len(r.dev.reqs)), block.OK)
				}
			case op == 20:
				n.Manage(sam.AbortTaskSet, 0, 0, func(sam.TMFResponse) {})
			case op == 21 && rng.IntN(3) == 0:
				n.Manage(sam.LogicalUnitReset, 0, 0, func(sam.TMFResponse) {})
			case op == 22 && rng.IntN(3) == 0:
				n.Close(func() {})
				nexuses[i] = r.login(names[i])
			case op == 23 && rng.IntN(8) == 0:
				r.exec.RunUntil(r.exec.Now() + patience + grace)
			case len(a.units) > 0 && rng.IntN(4) == 0:
				if u := a.units[rng.IntN(len(a.units))]; u.watch != nil && !u.left {
					u.watch(Ending{Gone: true})
					u.watch = nil
				}
			}
			check()
			for _, n := range nexuses {
				n.ITLs()[0].Attentions().Clear(1<<32 - 1)
			}
		}
		for _, n := range nexuses {
			n.Close(func() {})
		}
		for check(); len(r.dev.reqs)+len(near.answers)+len(far.answers) > 0; check() {
			for _, a := range arrays {
				if len(a.answers) > 0 {
					a.answer(rng.IntN(len(a.answers)))
				}
			}
			if len(r.dev.reqs) > 0 {
				r.dev.end(0, block.OK)
			}
		}
		for id, h := range r.m.hosts {
			if h != (hostUse{}) {
				t.Errorf("seed %d: initiator %d has %+v", seed, id, h)
			}
		}
		for _, a := range arrays {
			for _, u := range a.units {
				if left++; !u.left {
					t.Fatalf("seed %d: a unit is kept", seed)
				}
			}
			for _, x := range a.refs {
				if !x.released {
					t.Fatalf("seed %d: a reference is kept", seed)
				}
			}
		}
		for i, p := range r.m.peers {
			if len(p.waiting) > 0 {
				t.Fatalf("seed %d: %d searches wait for array %d, and all are over", seed, len(p.waiting), i)
			}
		}
		if len(r.m.operations) != 0 {
			t.Fatalf("seed %d: %d operations are left", seed, len(r.m.operations))
		}
	}
	if left < 100 || most < maxSearchesOfHost {
		t.Errorf("the test does not get there: %d units, %d questions at a time", left, most)
	}
}

// knownArray is another array that has all tokens, or none, and answers at once, or when the test says so.
type knownArray struct {
	lateArray
	has bool
}

func (a *knownArray) Borrow(_ Initiator, _ TokenSum, answer func(ArrayUnit, block.Readable, uint32)) {
	later := func() {
		if a.has {
			answer(a.unit(), a.ref(), 0)
		} else {
			answer(nil, nil, uint32(sense.TokenUnknown))
		}
	}
	if a.prompt {
		later()
		return
	}
	a.answers = append(a.answers, later)
}

// TestSearchesWait: an initiator whose copies a near array answers leaves questions behind at an array that is slow. When these are
// as many as it may have, a copy from there waits until one is answered, and ends as without them; one that has waited for too long
// is told that the array cannot be reached, and is not asked for later.
func TestSearchesWait(t *testing.T) {
	for _, answers := range []bool{true, false} {
		r := newRig(t)
		near, far := &knownArray{has: true}, &knownArray{}
		near.prompt = true
		r.m.Link(near)
		r.m.Link(far)
		n := r.login("a")
		run := func() { r.exec.RunUntil(r.exec.Now() + 1) }
		ends := func(task *server.Task) {
			t.Helper()
			if run(); len(r.dev.reqs) != 1 || len(r.m.operations) != 1 {
				t.Fatalf("%d requests of %d operations", len(r.dev.reqs), len(r.m.operations))
			}
			r.dev.end(0, block.OK)
			if run(); task.Status != sam.StatusGood {
				t.Fatalf("a copy ends with %02x, %x", task.Status, task.Sense)
			}
		}
		id := uint32(0)
		redeem := func() *server.Task { id++; return r.redeem(n, id, false) }
		for range maxSearchesOfHost + 8 {
			ends(redeem())
		}
		if len(far.answers) != maxSearchesOfHost {
			t.Fatalf("the slow array has %d questions", len(far.answers))
		}
		near.has = false
		task := redeem()
		if run(); r.m.hosts[n.HostID()].searches != 1 {
			t.Fatalf("a copy from the slow array does not wait, it ends with %02x, %x", task.Status, task.Sense)
		}
		if !answers {
			r.exec.RunUntil(r.exec.Now() + patience + grace)
			run()
			if want := byte(0x0D); task.Status != sam.StatusCheckCondition || task.Sense[12] != want {
				t.Errorf("a copy that nobody answers ends with %02x, %x", task.Status, task.Sense)
			}
			for len(far.answers) > 0 {
				far.answer(0)
				run()
			}
			if all := r.m.peers[1].unanswered.All(); all != 0 {
				t.Errorf("%d questions are counted, and all were answered", all)
			}
			continue
		}
		far.answer(0)
		run()
		far.has = true
		far.answer(len(far.answers) - 1)
		ends(task)
	}
}
