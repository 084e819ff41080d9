package array

import (
	"bytes"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/copying"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// TestCopyBuffersAreBounded: many copies of scattered sectors wait for an mdisk that does not
// answer. Each has a piece, and what buffers these have is bounded; those that the policy has wait for
// their read have none. When the mdisk answers, all copies end well, and few buffers are kept.
func TestCopyBuffersAreBounded(t *testing.T) {
	const pieces, many, more = 8, 200, copying.MaxLent + 100
	for _, c := range []struct {
		name        string
		pol         Policy
		copies      int
		least, most int // buffers, while the mdisk does not answer and afterwards
	}{
		{"more pieces than buffers", Policy{}, many, copying.MaxLent - pieces, copying.MaxLent + many},
		{"more copies than buffers", Policy{}, more, more, copying.MaxLent + more},
		{"few reads", Policy{CopyReads: 4}, many, 4, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := stuckRig(t, Options{Policy: c.pol})
			r.pool("p", PoolSpec{}, 64<<20)
			r.pool("q", PoolSpec{}, 64<<20)
			v, w := r.volume("v", "p", 16<<20, true), r.volume("w", "q", 16<<20, true)
			for i := range uint64(pieces) { // runs of one sector: each is a piece
				mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(2*i, 1), Data: [][]byte{bytes.Repeat([]byte{byte(1 + i)}, 512)}}))
			}
			want := make([]byte, 2*pieces*512)
			mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 2*pieces), Data: [][]byte{want}}))
			h := r.holdOf(v, rng(0, 2*pieces))
			r.clock.RunUntil(r.clock.Now() + 90e9)
			s.stuck = true
			most := 0
			r.a.afterStep = func() {
				lent, _ := r.a.engine.CopyBuffers()
				most = max(most, lent)
			}
			ended := 0
			var all []*block.Request
			for i := range uint64(c.copies) {
				all = append(all, &block.Request{Op: block.OpPlace, Range: rng(2*pieces*i, 2*pieces), Ref: h, Origin: block.OriginXCopy,
					Done: func(q *block.Request) { mustOK(t, q.Status); ended++ }})
				w.Submit(all[i:])
			}
			r.clock.RunUntil(r.clock.Now() + 5e9)
			if lent, _ := r.a.engine.CopyBuffers(); ended > 0 || lent < c.least {
				t.Fatalf("%d copies have ended, and %d buffers are lent, at least %d should be", ended, lent, c.least)
			}
			for i, q := range all {
				if what := request.Doing(q); !strings.HasPrefix(what, "moving") {
					t.Errorf("copy %d has no piece: it is %s", i, what)
				}
			}
			s.answer()
			r.clock.Run()
			lent, kept := r.a.engine.CopyBuffers()
			if ended != c.copies || most > c.most || lent != 0 || kept > copying.MaxKept {
				t.Errorf("%d of %d copies ended; at most %d buffers were lent, of %d, %d still are, and %d are kept",
					ended, c.copies, most, c.most, lent, kept)
			}
			got := make([]byte, len(want))
			for i := range uint64(c.copies) {
				mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(2*pieces*i, 2*pieces), Data: [][]byte{got}}))
				if !bytes.Equal(got, want) {
					t.Fatalf("copy %d is no copy", i)
				}
			}
			h.Release()
			r.check()
		})
	}
}
