package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// submitAll submits requests in one batch, and returns how many of them have not ended.
func (r *rig) submitAll(v *Volume, all ...*block.Request) (left *int) {
	n := len(all)
	for _, q := range all {
		q.Done = func(q *block.Request) {
			if n--; q.Status != block.OK {
				r.t.Errorf("%s %v ended %v", q.Op, q.Range, q.Status)
			}
		}
	}
	v.Submit(all)
	return &n
}

// TestTurnsAreShared: however many long commands there are, and wherever their pieces find room at once, all of them
// together let others into the executor behind so many pieces.
func TestTurnsAreShared(t *testing.T) {
	const commands, sectors = 64, 8 * pieceSectors
	for _, row := range []struct {
		name string
		cmd  func(r *rig, v *Volume) *block.Request
	}{
		{"patterns", func(*rig, *Volume) *block.Request {
			return &block.Request{Op: block.OpWriteSame, Range: rng(0, sectors), Data: [][]byte{make([]byte, 512)}}
		}},
		{"writes", func(*rig, *Volume) *block.Request { return write(0, sectors) }},
		{"copies", func(r *rig, v *Volume) *block.Request {
			h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, sectors)}}
			mustOK(t, r.do(v, h))
			return &block.Request{Op: block.OpPlace, Range: rng(sectors, sectors), Ref: h.Ref, Origin: block.OriginXCopy}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, Options{CacheBytes: 64 << 20}, true)
			r.pool("p", PoolSpec{CopyData: true}, 64<<20)
			v := r.volume("v", "p", 16<<20, true)
			mustOK(t, r.do(v, write(0, sectors)))
			mustOK(t, r.do(v, write(sectors, sectors)))
			var all []*block.Request
			for range commands {
				all = append(all, row.cmd(r, v))
			}
			last, most := r.a.log.Seq(), uint64(0)
			look := func() {
				now := r.a.log.Seq()
				most, last = max(most, now-last), now
			}
			left := r.submitAll(v, all...)
			look()
			for *left > 0 && r.clock.Step() {
				look()
			}
			if *left > 0 {
				t.Fatalf("%d commands never ended", *left)
			}
			bound := uint64(2 * request.StepPieces)
			if row.name == "copies" { // each begins one piece beside the turn
				bound += commands
			}
			if most > bound {
				t.Errorf("%d pieces of them were written in one step", most)
			}
			r.check()
		})
	}
}
