package copymgr

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/testkit"
)

// known is what a host may expect to hear of one copy.
type known struct {
	id     uint32
	op     *operation
	sa     byte
	ended  bool
	failed bool // with an error, or somebody ended it
}

// resultsRig is a target of some initiators, with what each may expect to be kept of its copies.
type resultsRig struct {
	*rig
	testing.TB
	rng     *rand.Rand
	seed    uint64
	nexuses []*server.Nexus
	kept    [][]known // by nexus, the oldest first
}

// receive asks for the status (5) or the token (7) of a copy and returns what is answered, nil for
// a fault.
func (r *resultsRig) receive(i int, sa byte, id uint32) []byte {
	cdb := []byte{0x84, sa, 15: 0}
	binary.BigEndian.PutUint32(cdb[listIDOf:], id)
	task := r.submit(r.nexuses[i], cdb, nil)
	r.exec.RunUntil(r.exec.Now() + 1)
	if task.Status != sam.StatusGood {
		return nil
	}
	return slices.Concat(task.DataIn...)
}

// start begins a copy or makes a token, and notes what it takes the place of: the result of the
// same identifier, and the oldest that is over where there are too many. What does not begin takes
// nothing's place.
func (r *resultsRig) start(i int, id uint32) {
	n, running := r.nexuses[i], slices.Clone(r.m.operations)
	immed, sa := r.rng.IntN(2) == 0, byte(SACopyLID4)
	if r.rng.IntN(3) == 0 {
		sa = SAPopulateToken
		r.populate(n, id, immed)
	} else {
		r.copy(n, id, immed, 1+r.rng.IntN(3))
	}
	last := len(r.m.operations) - 1
	if last < 0 || slices.Contains(running, r.m.operations[last]) {
		return
	}
	list := slices.DeleteFunc(r.kept[i], func(k known) bool { return k.id == id })
	if len(list) >= maxHeld {
		for at, k := range list {
			if k.op.state == over {
				list = slices.Delete(list, at, at+1)
				break
			}
		}
	}
	r.kept[i] = append(list, known{id: id, op: r.m.operations[last], sa: sa})
}

// settle lets everything go on, and notes which copies somebody has ended.
func (r *resultsRig) settle() {
	r.exec.RunUntil(r.exec.Now() + 1)
	for i, n := range r.nexuses {
		n.ITLs()[0].Attentions().Clear(1<<32 - 1)
		for j := range r.kept[i] {
			if k := &r.kept[i][j]; !k.ended && k.op.state == over {
				k.ended, k.failed = true, true
			}
		}
	}
}

// end ends a request of some operation.
func (r *resultsRig) end() {
	at, s := r.rng.IntN(len(r.dev.reqs)), block.OK
	if r.rng.IntN(5) == 0 {
		s = block.MediumRead
	}
	var k *known
	for i := range r.kept {
		for j := range r.kept[i] {
			if &r.kept[i][j].op.req == r.dev.reqs[at] {
				k = &r.kept[i][j]
			}
		}
	}
	wanted := k != nil && !k.op.cancelled()
	if r.dev.end(at, s); k != nil && k.op.state == over {
		k.ended, k.failed = true, s != block.OK || !wanted
	}
}

// check asks for all that a nexus may expect.
func (r *resultsRig) check(i int) {
	for _, k := range r.kept[i] {
		b := r.receive(i, 5, k.id)
		if b == nil || b[statusAction] != k.sa {
			r.Fatalf("-seed %d: the status of copy %d of %d that are kept for initiator %d is %x", r.seed, k.id, len(r.kept[i]), i, b)
		}
		running := b[statusStatus] == copyForeground || b[statusStatus] == copyBackground
		failed := b[statusStatus] == copyError || b[statusStatus] == copyTerminated
		if running == k.ended || failed != k.failed {
			r.Fatalf("-seed %d: copy %d of initiator %d has status %02x; it runs: %v, failed: %v", r.seed, k.id, i, b[statusStatus], !k.ended, k.failed)
		}
		if b = r.receive(i, 7, k.id); b == nil {
			r.Fatalf("-seed %d: nothing is known of a token of copy %d", r.seed, k.id)
		}
		token := len(b) > statusSense && binary.BigEndian.Uint32(b[statusSense+int(b[statusSenseLen]):]) > 0
		if want := k.sa == SAPopulateToken && !running && !failed; token != want {
			r.Fatalf("-seed %d: copy %d of initiator %d has a token: %v, want %v", r.seed, k.id, i, token, want)
		}
	}
}

// TestResultsAreKeptUntilTheyMayGo: whatever hosts do, what is known of a copy stays known to the
// initiator that has sent it, until another one of the same identifier begins, the unit is reset,
// or later copies need the room.
func TestResultsAreKeptUntilTheyMayGo(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+60; seed++ {
		r := &resultsRig{rig: newRig(t), TB: t, rng: rand.New(rand.NewPCG(seed, 0)), seed: seed, kept: make([][]known, 3)}
		for _, name := range []string{"a", "b", "c"}[:1+r.rng.IntN(3)] {
			r.nexuses = append(r.nexuses, r.login(name))
		}
		r.dev.keen = r.rng.IntN(2) == 0
		ids := 4 + r.rng.Uint32N(2*maxHeld) // few: identifiers come again; many: results need room
		pace := 1 + r.rng.IntN(8)           // of 10 steps, those that begin copies
		ends := 1 + r.rng.IntN(5)           // requests that one of the others ends at most: with few, copies find no room
		for range 250 {
			i := r.rng.IntN(len(r.nexuses))
			switch op := r.rng.IntN(10); {
			case op < pace:
				r.start(i, r.rng.Uint32N(ids))
			case op < 9:
				for range r.rng.IntN(1 + ends) {
					if len(r.dev.reqs) > 0 {
						r.end()
					}
				}
			case r.rng.IntN(4) > 0:
			case r.rng.IntN(2) == 0:
				r.nexuses[i].Manage(sam.AbortTaskSet, 0, 0, func(sam.TMFResponse) {})
			default:
				r.nexuses[i].Manage(sam.LogicalUnitReset, 0, 0, func(sam.TMFResponse) {})
				clear(r.kept) // for all initiators
			}
			r.settle()
			if r.rng.IntN(20) == 0 {
				r.check(i)
			}
		}
		for i := range r.nexuses {
			r.check(i)
		}
		for len(r.dev.reqs) > 0 {
			r.end()
			r.settle()
		}
		for i := range r.nexuses {
			r.check(i)
		}
	}
}
