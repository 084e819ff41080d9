package extent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestAuditsOfTwoSpaces: audits of the volumes of two spaces go on beside each other while windows are written, cloned and cut
// off and garbage is collected, volumes come and go, and some are ended early. Each finds what one at once does.
func TestAuditsOfTwoSpaces(t *testing.T) {
	seed := testkit.Seed(t)
	ended := 0
	for round := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, round))
		name := fmt.Sprintf("-seed %d, round %d", seed, round)
		a := NewArena(func() {})
		var spaces [2]*alloc.Space
		for i := range spaces {
			spaces[i] = alloc.New([]int{3}, alloc.Events{Freed: func(uint64) {}, Vacated: func(uint32) {}})
		}
		begin := func(s *alloc.Space) *Audit {
			return a.NewAudit(s, func(vol uint32, why string) { t.Fatalf("%s: volume %d: %s", name, vol, why) })
		}
		var maps []*Map
		next := uint32(0)
		var audits []*Audit
		for step := range 3000 {
			if len(maps) == 0 || len(maps) < 6 && rnd.IntN(100) == 0 {
				maps = append(maps, a.NewMap(Config{Space: spaces[rnd.IntN(2)], Volume: next, Sectors: 1 + rnd.Uint64N(1<<26), Drop: func(uint64, layout.Mask) {}}))
				next += uint32(rnd.IntN(3)) + 1
			}
			i := rnd.IntN(len(maps))
			m := maps[i]
			windows := m.Span() >> layout.WindowShift
			w := rnd.Uint64N(min(windows, 1+windows>>rnd.IntN(12)))
			at := w << layout.WindowShift
			switch rnd.IntN(10) {
			case 0, 1, 2, 3:
				phys, _, ok := m.InPlace(w, 0, 8)
				if !ok {
					phys, ok = m.Allocate(w)
					phys <<= layout.WindowShift
				}
				if ok {
					m.SetData(block.Range{Start: at, Count: 8 + rnd.Uint64N(121)}, phys)
				}
			case 4, 5: // what lies on a grain of another volume, and on the next one
				from := maps[rnd.IntN(len(maps))]
				if from.space == m.space {
					h := from.Hold([]block.Range{{Start: rnd.Uint64N(from.Span() - 200), Count: 200}}, 1000)
					h.Runs(0, 200, func(x Run) bool {
						if x.State == block.Data && at+x.Start+x.Count <= m.Span() {
							m.SetData(block.Range{Start: at + x.Start, Count: x.Count}, x.Phys)
						}
						return true
					})
					h.Release()
				}
			case 6:
				m.SetState(at, min(m.Span(), at+1+rnd.Uint64N(1<<(7+rnd.IntN(16)))), []block.State{block.Unmapped, block.Zero}[rnd.IntN(2)])
			case 7:
				a.Collect(rnd.IntN(600))
			case 8:
				if rnd.IntN(20) == 0 {
					m.Abandon()
					m.Clear()
					m.Remove()
					maps = slices.Delete(maps, i, i+1)
				} else if rnd.IntN(20) == 0 && m.levels < 4 {
					m.Grow(m.Span() + 1)
				}
			case 9:
				if len(audits) < 4 {
					audits = append(audits, begin(spaces[rnd.IntN(2)]))
				}
			}
			audits = slices.DeleteFunc(audits, func(u *Audit) bool {
				if more := u.Step(rnd.IntN(800)); more {
					if rnd.IntN(200) == 0 {
						u.End()
						return true
					}
					return false
				}
				for rnd.IntN(2) == 0 && a.Collect(1000) {
				}
				for _, why := range u.Compare() {
					t.Fatalf("%s, step %d: %s", name, step, why)
				}
				if !a.HasGarbage() {
					now := begin(u.space)
					for now.Step(1000) {
					}
					for g := range uint64(u.space.Grains()) {
						if got, want := u.found.Of(g), now.found.Of(g); got != want {
							t.Fatalf("%s, step %d: grain %d has %d references, and %d at once", name, step, g, got, want)
						}
					}
					now.End()
					ended++
				}
				u.End()
				return true
			})
		}
	}
	if ended < 200 {
		t.Errorf("%d audits have come to their end: the test shows too little", ended)
	}
}

// TestEndedAuditIsForgotten: nothing keeps what an audit has found when it has ended and what was cut off meanwhile is collected.
func TestEndedAuditIsForgotten(t *testing.T) {
	r := newRigOf(t)
	v := r.add(4*node.Fanout*layout.WindowSectors, false)
	for w := range uint64(4 * node.Fanout) {
		if w%node.Fanout < 2 {
			r.write(v, w, 0, 8)
		}
	}
	u := r.audit()
	for r.arena.HasGarbage() || u.leaf < 3 {
		u.Step(1)
	}
	r.do(v, 0, uint64(len(v.sectors)), sector{})
	if g := &r.arena.garbage[0]; g.list[0].audited == nil {
		t.Fatal("nothing of what the audit has found was cut off")
	}
	u.End()
	for r.arena.Collect(1) {
	}
	list := r.arena.garbage[:1][0].list // to be used again
	for i, c := range list[:cap(list)] {
		if c.audited != nil {
			t.Errorf("entry %d of the list of garbage keeps what an audit has found", i)
		}
	}
}
