package lun

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// touch is a request, and whether it changes what a reference to [10+10) and [30+2) refers to.
type touch struct {
	req  block.Request
	want bool
}

func rng(start, n uint64) block.Range { return block.Range{Start: start, Count: n} }

// touches are the cases of a reference, by their names. source is of 6 sectors from 100 on.
func touches(source block.Ref) map[string]touch {
	sector := [][]byte{make([]byte, 512)}
	return map[string]touch{
		"a read":                  {block.Request{Op: block.OpRead, Range: rng(10, 1), Data: sector}, false},
		"a flush":                 {block.Request{Op: block.OpFlush}, false},
		"a write beside it":       {block.Request{Op: block.OpWrite, Range: rng(20, 1), Data: sector}, false},
		"a write":                 {block.Request{Op: block.OpWrite, Range: rng(19, 1), Data: sector}, true},
		"a write of zeros":        {block.Request{Op: block.OpWriteSame, Range: rng(0, 100), Data: sector}, true},
		"an unmap":                {block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 1), rng(31, 1)}}, true},
		"an unmap beside it":      {block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 10), rng(20, 10), rng(32, 1)}}, false},
		"a compare and write":     {block.Request{Op: block.OpCompareWrite, Range: rng(30, 1), Data: sector, Compare: sector}, true},
		"a copy that lands there": {block.Request{Op: block.OpPlace, Range: rng(5, 6), Ref: source}, true},
		"a copy from there":       {block.Request{Op: block.OpPlace, Range: rng(50, 6), Ref: source}, false},
	}
}

// TestReferencesTellOfChanges: a reference by name is worth what it names, and says when that has changed.
func TestReferencesTellOfChanges(t *testing.T) {
	dev := func() *Device {
		naa := [16]byte{0x60, 1}
		return &Device{exec: &block.Virtual{}, t: &keeper{}, zero: make([]byte, 512), name: designator{1, designNAA, naa[:]}, info: block.Info{BlockSize: 512, Sectors: 1 << 20, NAA: naa}}
	}
	for name, row := range touches(&ref{dev: dev(), held: held{ranges: []block.Range{rng(100, 6)}}}) {
		t.Run(name, func(t *testing.T) {
			d := dev()
			h := d.hold(&block.Request{Ranges: []block.Range{rng(10, 10), rng(30, 2)}}).(block.Vulnerable)
			row.req.Done = func(*block.Request) {}
			d.Submit([]*block.Request{&row.req})
			if h.Changed() != row.want {
				t.Errorf("changed: %v", h.Changed())
			}
			h.Release()
			if len(d.held) != 0 {
				t.Error("it is watched after its end")
			}
		})
	}
}

// TestReferencesToFilesTellOfChanges: so does one to a file, of what the file is asked for.
func TestReferencesToFilesTellOfChanges(t *testing.T) {
	l, f := openFile(t, 1<<10)
	d, other := f.Device("file", 512), f.Device("again", 512)
	sector := [][]byte{make([]byte, 512)}
	hold := func(ranges ...block.Range) block.Ref {
		t.Helper()
		r := &block.Request{Op: block.OpHold, Ranges: ranges}
		if s := l.do(d, r); s != block.OK {
			t.Fatalf("a hold ends %v", s)
		}
		return r.Ref
	}
	source := hold(rng(100, 6))
	for name, row := range touches(source) {
		for _, dev := range []block.Device{d, other} {
			h, vulnerable := hold(rng(10, 10), rng(30, 2)).(block.Vulnerable)
			if !vulnerable {
				t.Fatal("the reference keeps what it refers to")
			}
			r := row.req
			if s := l.do(dev, &r); s != block.OK {
				t.Errorf("%s ends %v", name, s)
			}
			l.x.Lock()
			if h.Changed() != row.want {
				t.Errorf("%s: changed: %v", name, h.Changed())
			}
			h.Release()
			left := len(f.refs.held)
			l.x.Unlock()
			if left != 1 {
				t.Errorf("%s: %d references are watched after its end", name, left)
			}
		}
	}
	t.Run("a sync that failed", func(t *testing.T) {
		h := hold(rng(10, 10)).(block.Vulnerable)
		failing(f, false)
		write := func(want block.Status) { // elsewhere; but nobody knows what a sync has lost
			t.Helper()
			if s := l.do(other, &block.Request{Op: block.OpWrite, Flags: block.FUA, Range: rng(900, 1), Data: sector}); s != want {
				t.Fatalf("a write ends %v", s)
			}
		}
		write(block.MediumWrite)
		later := hold(rng(10, 10)).(block.Vulnerable)
		write(block.OK)
		l.x.Lock()
		defer l.x.Unlock()
		if !h.Changed() || later.Changed() {
			t.Errorf("changed: %v, and one that is newer: %v", h.Changed(), later.Changed())
		}
		h.Release()
		later.Release()
	})
	t.Run("a write that was under way", func(t *testing.T) {
		begin, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		for range fileWorkers {
			f.enqueue(func() { begin <- struct{}{}; <-end })
			<-begin
		}
		w := &block.Request{Op: block.OpWrite, Range: rng(10, 1), Data: sector, Done: func(*block.Request) { close(done) }}
		l.x.Lock()
		d.Submit([]*block.Request{w})
		l.x.Unlock()
		h := hold(rng(10, 10)).(block.Vulnerable)
		close(end)
		<-done
		l.x.Lock()
		defer l.x.Unlock()
		if !h.Changed() {
			t.Error("nothing changed")
		}
	})
}
