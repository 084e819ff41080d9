package copying

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// held is an executor that takes no messages.
type held struct {
	*block.Virtual
	kept []func()
}

func (h *held) Post(fn func()) { h.kept = append(h.kept, fn) }

// lender answers what it is asked when the test wants.
type lender struct{ asked []*Fetch }

func (l *lender) Sectors() uint64 { return 8 }
func (l *lender) Release()        {}
func (l *lender) Serve(f *Fetch)  { l.asked = append(l.asked, f) }

// TestAbandonedFetches: reads that were given up keep their buffers until the source has answered, or would not
// begin; more than maxStale of them there are not, and afterwards all is as before.
func TestAbandonedFetches(t *testing.T) {
	var here block.Virtual
	there := &held{Virtual: &here}
	l := &lender{}
	s := &Source{lender: l, home: there}
	var e Engine
	failed := 0
	fetch := func() *Fetch {
		return e.Fetch(&here, s, Want{Buf: e.Buf(4096), Done: func(buf []byte, s block.Status) {
			failed++
			e.PutBuf(buf)
			if s != block.Offline {
				t.Errorf("a fetch ends with %v", s)
			}
		}})
	}
	for i := range maxStale {
		f := fetch()
		if f == nil {
			t.Fatalf("fetch %d is refused", i)
		}
		if i%2 == 0 { // begun
			for _, fn := range there.kept {
				fn()
			}
			there.kept = nil
		}
		f.Forget()
	}
	if fetch() != nil || failed != 1 || len(e.bufs) != 1 {
		t.Fatalf("%d fetches have failed, %d buffers are free: that beyond the bound should be refused", failed, len(e.bufs))
	}
	for _, fn := range there.kept {
		fn()
	}
	if len(l.asked) != maxStale/2 {
		t.Errorf("%d fetches have begun, want %d", len(l.asked), maxStale/2)
	}
	for _, f := range l.asked {
		if !f.Unwanted() {
			t.Error("the source does not know that nobody waits")
		}
		f.Served(block.OK)
	}
	here.Run()
	if e.stale != 0 || failed != 1 || len(e.bufs) != maxStale+1 {
		t.Errorf("%d fetches are still given up, %d failed, %d buffers are free", e.stale, failed, len(e.bufs))
	}
	there.kept = nil
	if fetch() == nil {
		t.Error("a fetch is refused")
	}
	here.Run() // nobody answers
	if failed != 2 {
		t.Errorf("%d fetches have failed, want 2", failed)
	}
}
