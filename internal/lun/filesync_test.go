package lun

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// failing has the syncs of a file end as the test says, in this order; later ones end well.
func failing(f *File, ends ...bool) *atomic.Int64 {
	calls := new(atomic.Int64)
	f.syncs.data = func() error {
		if n := int(calls.Add(1)); n <= len(ends) && !ends[n-1] {
			return errors.New("input/output error")
		}
		return nil
	}
	return calls
}

// TestFailedSyncIsToldByTheNextFlush: a sync that fails for one client's write has lost what others have written. Each such
// loss fails one flush, and listeners are told of it.
func TestFailedSyncIsToldByTheNextFlush(t *testing.T) {
	const write, fua, flush = 0, 1, 2
	sector := [][]byte{make([]byte, 512)}
	for name, row := range map[string]struct {
		ends []bool // of the syncs
		ops  []int
		fail []bool
		told int
	}{
		"nothing fails":             {nil, []int{write, fua, flush}, []bool{false, false, false}, 0},
		"a write with FUA":          {[]bool{false}, []int{write, fua, fua, write, flush, flush}, []bool{false, true, false, false, true, false}, 1},
		"and so does the flush":     {[]bool{false, false}, []int{fua, flush, flush}, []bool{true, true, false}, 2},
		"two of them":               {[]bool{false, false}, []int{fua, fua, flush, flush}, []bool{true, true, true, false}, 2},
		"a flush, which told of it": {[]bool{false}, []int{write, flush, flush, fua}, []bool{false, true, false, false}, 1},
	} {
		for _, late := range []bool{false, true} { // the listener comes after it happened
			t.Run(name, func(t *testing.T) {
				l, f := openFile(t, 16)
				d := f.Device("file", 512)
				told := 0
				notify := func() {
					l.x.Lock()
					defer l.x.Unlock()
					d.Notify(func(e block.Event) {
						if e.Kind != block.EventPowerLoss {
							t.Errorf("event %d", e.Kind)
						}
						told++
					})
				}
				if !late {
					notify()
				}
				failing(f, row.ends...)
				for i, op := range row.ops {
					r := &block.Request{Op: block.OpWrite, Range: block.Range{Start: uint64(i), Count: 1}, Data: sector}
					switch op {
					case fua:
						r.Flags = block.FUA
					case flush:
						r = &block.Request{Op: block.OpFlush}
					}
					if s := l.do(d, r); (s != block.OK) != row.fail[i] {
						t.Errorf("operation %d ends %v", i, s)
					}
				}
				want := row.told
				if late {
					want = min(want, 1)
					notify()
				}
				if l.x.Lock(); told != want {
					t.Errorf("the listener was told %d times, want %d", told, want)
				}
				l.x.Unlock()
			})
		}
	}
}

// TestCopyWithFUAIsSynced: a copy with FUA ends when it is durable, or fails.
func TestCopyWithFUAIsSynced(t *testing.T) {
	l, f := openFile(t, 16)
	d := f.Device("file", 512)
	hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 0, Count: 4}}}
	if s := l.do(d, hold); s != block.OK {
		t.Fatal(s)
	}
	calls := failing(f, false)
	place := func(flags block.Flags) block.Status {
		return l.do(d, &block.Request{Op: block.OpPlace, Range: block.Range{Start: 8, Count: 4}, Ref: hold.Ref, Flags: flags})
	}
	if s := place(0); s != block.OK || calls.Load() != 0 {
		t.Errorf("without FUA it ends %v, after %d syncs", s, calls.Load())
	}
	for i, want := range []block.Status{block.MediumWrite, block.OK} {
		if s := place(block.FUA); s != want || calls.Load() != int64(i+1) {
			t.Errorf("with FUA it ends %v, want %v, after %d syncs", s, want, calls.Load())
		}
	}
}

// TestFlushesBesideASyncThatFails: all flushes that are under way fail with it, and all writes with FUA, for what it has lost may
// be what they are to save.
func TestFlushesBesideASyncThatFails(t *testing.T) {
	l, f := openFile(t, 16)
	d := f.Device("file", 512)
	begun, end := make(chan struct{}), make(chan struct{})
	var calls, busy atomic.Int64
	f.syncs.data = func() error {
		if busy.Add(1) > 1 {
			t.Error("two syncs at one time: the second one would not be told of the error of the first")
		}
		defer busy.Add(-1)
		if calls.Add(1) > 1 {
			return nil
		}
		close(begun)
		<-end
		return errors.New("input/output error")
	}
	start := func(r block.Request) chan block.Status {
		done := make(chan block.Status, 1)
		r.Done = func(r *block.Request) { done <- r.Status }
		l.x.Lock()
		defer l.x.Unlock()
		d.Submit([]*block.Request{&r})
		return done
	}
	write := func(at uint64) block.Request {
		return block.Request{Op: block.OpWrite, Flags: block.FUA, Range: block.Range{Start: at, Count: 1}, Data: [][]byte{make([]byte, 512)}}
	}
	ends := []chan block.Status{start(write(0))}
	<-begun
	ends = append(ends, start(write(1)))
	for range 4 {
		ends = append(ends, start(block.Request{Op: block.OpFlush}))
	}
	close(end)
	for i, done := range ends {
		if s := <-done; s != block.MediumWrite {
			t.Errorf("request %d ends %v", i, s)
		}
	}
	if s := l.do(d, &block.Request{Op: block.OpFlush}); s != block.OK {
		t.Errorf("a flush afterwards ends %v", s)
	}
	if n := calls.Load(); n < 3 || n > int64(len(ends))+1 {
		t.Errorf("%d syncs", n)
	}
}
