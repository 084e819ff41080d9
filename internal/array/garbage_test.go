package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// TestWritesCollectInSteps: who finds a pool full collects no other pool's garbage, and of its own no more at once than
// one step of the background does; it fails only when that is over.
func TestWritesCollectInSteps(t *testing.T) {
	const nodes, slots = 64, 256
	for _, row := range []struct {
		name string
		own  bool
		cmd  func(v *Volume) *block.Request
	}{
		{"a write, and another pool's", false, func(*Volume) *block.Request { return write(0, 8) }},
		{"a write", true, func(*Volume) *block.Request { return write(0, 8) }},
		{"an anchor, and another pool's", false, func(*Volume) *block.Request { return unmap(block.Anchor, rng(0, 8)) }},
		{"an anchor", true, func(*Volume) *block.Request { return unmap(block.Anchor, rng(0, 8)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, Options{}, false)
			r.pool("a", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 20}}}, 0)
			r.pool("b", PoolSpec{}, 64<<20)
			r.volume("thick", "a", 4<<20, false)
			v, litter := r.volume("v", "a", 1<<20, true), r.volume("litter", map[bool]string{true: "a", false: "b"}[row.own], 1<<30, true)
			for at := uint64(0); at < 1<<21; at += 1 << 15 { // each in another node
				mustOK(t, r.do(litter, &block.Request{Op: block.OpWriteSame, Range: rng(at, 8)}))
			}
			before := r.a.arena.Nodes()
			mustOK(t, r.do(litter, unmap(0, rng(0, 1<<21))))
			if n := r.a.arena.Nodes(); n < before || n < nodes {
				t.Fatalf("%d nodes of %d are left at once", n, before)
			}
			last := r.a.arena.Nodes()
			look := func(most int) {
				n := r.a.arena.Nodes()
				if last-n > most {
					t.Errorf("%d nodes are collected in one step", last-n)
				}
				last = n
			}
			q := row.cmd(v)
			ended := false
			q.Done = func(*block.Request) { ended = true }
			v.Submit([]*block.Request{q})
			if row.own {
				look(extent.GarbageStep/slots + 1)
			} else {
				look(0)
			}
			if waits := request.Doing(q) != ""; waits != row.own {
				t.Errorf("the command waits: %v", waits)
			}
			for r.clock.Step() {
				look(extent.GarbageStep/slots + 1)
			}
			if !ended || q.Status != block.NoSpace || r.a.arena.HasGarbage() {
				t.Errorf("the command has ended: %v, %v; garbage is left: %v", ended, q.Status, r.a.arena.HasGarbage())
			}
			r.check()
		})
	}
}
