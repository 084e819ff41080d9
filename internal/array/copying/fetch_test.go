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
type lender struct {
	asked   []*Fetch
	verdict block.Status
}

func (l *lender) Sectors() uint64 { return 8 }
func (l *lender) Release()        {}

func (l *lender) Intact() block.Status { return l.verdict }
func (l *lender) Serve(_, _ uint64, _ []byte, _ block.Origin, p block.Piece) {
	l.asked = append(l.asked, p.(*Fetch))
}

// TestAbandonedFetches: reads that were given up keep their buffers until the source has answered, or would not
// begin. A source that has been silent for a while with maxSilent of them is not asked for more, another one is, and
// afterwards all is as before.
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
	for i := range maxSilent {
		f := fetch()
		if f == nil {
			t.Fatalf("fetch %d is refused", i)
		}
		if i < maxSilent/2 { // begun
			for _, fn := range there.kept {
				fn()
			}
			there.kept = nil
		}
		f.Forget()
	}
	if f := fetch(); f == nil {
		t.Fatal("a source that was asked just now is taken for silent")
	} else {
		f.Forget()
	}
	here.RunUntil(here.Now() + patience)
	if fetch() != nil || failed != 1 || len(e.bufs) != 1 {
		t.Fatalf("%d fetches have failed, %d buffers are free: that beyond the bound should be refused", failed, len(e.bufs))
	}
	if f := e.Fetch(&here, &Source{lender: l, home: &block.Virtual{}}, Want{Done: func([]byte, block.Status) {}}); f == nil {
		t.Error("a source that answers is refused for one that does not")
	} else {
		f.Forget()
	}
	for _, fn := range there.kept {
		fn()
	}
	if len(l.asked) != maxSilent/2 {
		t.Errorf("%d fetches have begun, want %d", len(l.asked), maxSilent/2)
	}
	for _, f := range l.asked {
		if !f.Unwanted() {
			t.Error("the source does not know that nobody waits")
		}
		f.Served(block.OK)
	}
	here.Run()
	if a := e.arrears(there); a != nil || failed != 1 || e.lent != 0 || len(e.bufs) != MaxKept {
		t.Errorf("still given up: %+v, %d failed, %d buffers are lent, %d are free", a, failed, e.lent, len(e.bufs))
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

// TestUnwantedWhileAsked: the source hears that nobody waits for a read, though what was sent last only asked whether
// somebody is there; and what a reference lost meanwhile is no data.
func TestUnwantedWhileAsked(t *testing.T) {
	var here block.Virtual
	there := &held{Virtual: &here}
	l := &lender{}
	s := &Source{lender: l, home: there}
	var e Engine
	var ended []block.Status
	fetch := func() *Fetch {
		return e.Fetch(&here, s, Want{Buf: e.Buf(4096), Done: func(_ []byte, s block.Status) { ended = append(ended, s) }})
	}
	open := func() {
		for _, fn := range there.kept {
			fn()
		}
		there.kept = nil
	}
	for _, forget := range []bool{true, false} {
		f := fetch()
		open()
		here.RunUntil(here.Now() + patience + patience/2) // it is asked whether it is there
		if forget {
			f.Forget()
		} else {
			here.RunUntil(here.Now() + patience)
		}
		open()
		if !f.Unwanted() {
			t.Errorf("forgotten %t: the source does not know that nobody waits", forget)
		}
		f.Served(block.OK)
		here.RunUntil(here.Now())
	}
	fetch()
	open()
	l.verdict = block.NoSpace
	l.asked[len(l.asked)-1].Served(block.OK)
	here.Run()
	if len(ended) != 2 || ended[0] != block.Offline || ended[1] != block.NoSpace {
		t.Errorf("they ended with %v", ended)
	}
}

// remote is a reference of another array, whose pieces the test serves.
type remote struct {
	home  block.Executor
	array any
	asked []block.Piece
}

func (*remote) Sectors() uint64                                { return 8 }
func (*remote) Release()                                       {}
func (*remote) States(uint64, uint64, func(block.Extent) bool) {}
func (r *remote) Home() block.Executor                         { return r.home }
func (r *remote) Account() any                                 { return r.array }
func (r *remote) Read(_, _ uint64, _ []byte, _ block.Origin, p block.Piece) {
	r.asked = append(r.asked, p)
}

// TestSilentArray: an array that has not given maxSilent reads back is not asked for more, and another one is, though the same
// executor asks both.
func TestSilentArray(t *testing.T) {
	var here block.Virtual
	silent, other := &remote{home: &here, array: "silent"}, &remote{home: &here, array: "other"}
	var e Engine
	refused := 0
	fetch := func(r *remote) *Fetch {
		return e.Fetch(&here, FromRemote(r), Want{Buf: make([]byte, 4096), Done: func(_ []byte, s block.Status) {
			if s == block.Offline {
				refused++
			}
		}})
	}
	for range maxSilent {
		f := fetch(silent)
		here.RunUntil(here.Now()) // it is asked
		f.Forget()
	}
	here.RunUntil(here.Now() + patience)
	if fetch(silent) != nil || refused != 1 {
		t.Error("an array that is silent is asked for more")
	}
	if fetch(other) == nil {
		t.Error("an array is not asked because of another one, which is silent")
	}
	here.RunUntil(here.Now())
	for _, p := range append(silent.asked, other.asked...) {
		if p.Unwanted() == (len(other.asked) == 1 && p == other.asked[0]) {
			t.Error("a piece that was forgotten is wanted, or the other way round")
		}
		p.Served(block.Cancelled)
	}
	here.RunUntil(here.Now())
	if fetch(silent) == nil {
		t.Error("an array that has given all reads back is not asked")
	}
}
