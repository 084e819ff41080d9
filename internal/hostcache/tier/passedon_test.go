package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// spyBelow notes what it is asked for; one sector cannot be read.
type spyBelow struct {
	*path
	bad  uint64
	seen []block.Request
}

func (b *spyBelow) Submit(list []*block.Request) {
	for _, r := range list {
		b.seen = append(b.seen, *r)
		if r.Op == block.OpRead && r.Range.Start <= b.bad && b.bad < r.Range.End() {
			b.exec.Post(func() {
				r.Status, r.Offset, r.Located = block.MediumRead, (b.bad-r.Range.Start)<<block.SectorShift, true
				r.Done(r)
			})
			continue
		}
		b.path.Submit([]*block.Request{r})
	}
}

// TestWhatIsPassedOn: the device below hears by which port a request came and for whom it is, and the
// client which sector could not be read.
func TestWhatIsPassedOn(t *testing.T) {
	var below *spyBelow
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.crash()
	if err := l.try(0, func(o *Options) {
		below = &spyBelow{path: l.path, bad: 20}
		o.Below = below
	}); err != nil {
		t.Fatal(err)
	}
	l.write(0, 8, 1)
	l.v.RunUntil(l.v.Now() + 100_000_000)
	read := &block.Request{Op: block.OpRead, Host: 3, Port: 7, Range: block.Range{Start: 4, Count: 28}, Data: [][]byte{make([]byte, 28*512)}}
	for _, r := range []*block.Request{
		read,
		{Op: block.OpWrite, Host: 3, Port: 7, Range: block.Range{Start: 64, Count: 1}, Data: [][]byte{pattern(1, 1)}},
		{Op: block.OpFlush, Host: 3, Port: 7},
		{Op: block.OpHold, Host: 3, Port: 7, Lent: true, Ranges: []block.Range{{Start: 64, Count: 8}}},
	} {
		below.seen = nil
		l.do(r)
		if len(below.seen) != 1 {
			t.Errorf("%v: %d requests", r.Op, len(below.seen))
			continue
		}
		if s := below.seen[0]; s.Host != 3 || s.Port != 7 || s.Lent != r.Lent {
			t.Errorf("%v: host %d, port %d, lent %t", r.Op, s.Host, s.Port, s.Lent)
		}
	}
	if read.Status != block.MediumRead || !read.Located || read.Offset != 16*512 {
		t.Errorf("the read ended %v, located %t, at byte %d", read.Status, read.Located, read.Offset)
	}
}
