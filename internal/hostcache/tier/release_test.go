package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// dumb is a witness that does not answer while it is silent.
type dumb struct {
	Witness
	silent bool
	kept   []func()
}

func (d *dumb) Store(m Mark, done func(error)) {
	if d.silent {
		d.kept = append(d.kept, func() { d.Witness.Store(m, done) })
		return
	}
	d.Witness.Store(m, done)
}

func (d *dumb) speak() {
	d.silent = false
	for _, fn := range d.kept {
		fn()
	}
	d.kept = nil
}

// newDumbLab is a lab with a peer, and with a witness that can be silent.
func newDumbLab(t *testing.T, change func(*world)) (*lab, *dumb) {
	l := newLab(t, func(w *world) {
		withPeers(1)(w)
		change(w)
	})
	l.crash()
	x := &dumb{}
	if err := l.try(0, func(o *Options) {
		x.Witness, o.Witness = o.Witness, x
		o.Below = obliging{l.path}
	}); err != nil {
		t.Fatal(err)
	}
	l.wait(func() bool { return l.d.State().Why == "" })
	return l, x
}

// TestAbortOfAWriteThatWaitsForAMark: a peer is lost, and the witness does not answer. What waits
// for that is withdrawn at once; its memory is its client's again, and what it does afterwards
// comes from elsewhere.
func TestAbortOfAWriteThatWaitsForAMark(t *testing.T) {
	first := block.Range{Start: 0, Count: 8}
	for name, row := range map[string]struct {
		req    block.Request
		old    uint64 // what is dirty there before
		flush  bool
		policy Mode
	}{
		"a write":               {req: block.Request{Op: block.OpWrite}, policy: WriteBack},
		"over what is dirty":    {req: block.Request{Op: block.OpWrite}, policy: WriteBack, old: 1},
		"over what was flushed": {req: block.Request{Op: block.OpWrite}, policy: WriteBack, old: 1, flush: true},
		"with FUA":              {req: block.Request{Op: block.OpWrite, Flags: block.FUA}, policy: WriteBack},
		"through":               {req: block.Request{Op: block.OpWrite}, policy: WriteThrough, old: 1},
		"a write of zeros":      {req: block.Request{Op: block.OpWriteSame}, policy: WriteBack, old: 1},
		"an unmap":              {req: block.Request{Op: block.OpUnmap}, policy: WriteBack, old: 1},
		"a compare and write":   {req: block.Request{Op: block.OpCompareWrite}, policy: WriteBack, old: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l, x := newDumbLab(t, func(w *world) { w.cards[0].volatile = true })
			old := uint64(0)
			if row.old > 0 {
				l.write(first.Start, first.Count, row.old)
				old = row.old
			}
			if row.flush && l.flush() != block.OK {
				t.Fatal("flush")
			}
			if row.policy != WriteBack {
				l.d.SetPolicy(Policy{Mode: row.policy}, nil)
			}
			l.cards[1].broken, x.silent = true, true
			l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 200, Count: 8}, Data: [][]byte{pattern(7, 8)}, Flags: block.Atomic})
			r, data := row.req, pattern(2, 8)
			switch r.Range = first; r.Op {
			case block.OpWrite:
				r.Data = [][]byte{data}
			case block.OpUnmap:
				r.Range, r.Ranges = block.Range{}, []block.Range{first}
			case block.OpCompareWrite:
				r.Data, r.Compare = [][]byte{data}, [][]byte{pattern(1, 8)}
			}
			end := l.start(&r)
			l.wait(func() bool { return len(x.kept) > 0 })
			l.v.RunUntil(l.v.Now() + 1_000_000_000)
			if end() {
				t.Fatalf("it does not wait for the mark: %v", r.Status)
			}
			l.d.Cancel(&r)
			l.v.RunUntil(l.v.Now() + soon)
			if !end() || r.Status != block.Cancelled {
				t.Fatalf("withdrawn: ended %v, %v; %s", end(), r.Status, l.d.dump())
			}
			for i := range data { // it is the client's again
				data[i] = byte(i) | 0x80
			}
			if len(r.Ranges) > 0 {
				r.Ranges[0] = block.Range{Start: 300, Count: 8}
			}
			x.speak()
			for range 2 {
				l.d.SetPolicy(Policy{Mode: WriteThrough}, nil)
				l.destages()
				l.wait(func() bool { return len(l.d.active) == 0 && l.d.clean() })
				v := l.values(0, 8)
				for _, v := range v {
					if new := uint64(2); v != old && (v != new || r.Op == block.OpWriteSame || r.Op == block.OpUnmap) && v != 0 {
						t.Fatalf("sector of %d", v)
					}
				}
				l.wantBelow(0, 8, v[0])
				l.write(100, 8, 5)
				l.want(100, 8, 5)
			}
			if s := l.flush(); s != block.OK {
				t.Errorf("a flush behind it ends %v", s)
			}
			if len(l.d.active)+len(l.d.waiting)+len(l.d.parked) > 0 || l.d.reserved != 0 || l.d.flashWrites != 0 {
				t.Errorf("left: %s", l.d.dump())
			}
		})
	}
}

// TestOffloadWaitsForTheWitnessOfTheLastFlash: nothing is dirty, the flash does not take the record
// that what is clean may change, and the witness does not have yet that it was left out. A start
// would serve what is clean there, and the array has something else.
func TestOffloadWaitsForTheWitnessOfTheLastFlash(t *testing.T) {
	for _, stored := range []bool{false, true} {
		l := newLab(t, nil)
		l.crash()
		x := &dumb{}
		if err := l.try(0, func(o *Options) { x.Witness, o.Witness = o.Witness, x }); err != nil {
			t.Fatal(err)
		}
		l.wait(func() bool { return l.d.State().Why == "" })
		l.write(0, 8, 1)
		l.wait(l.d.clean)
		l.write(100, 8, 7) // so that the journal has that
		l.wait(func() bool { return l.d.clean() && len(l.d.active) == 0 })
		l.cards[0].tired, x.silent = true, true
		end := l.start(&block.Request{Op: block.OpWriteSame, Range: block.Range{Count: 8}, Data: [][]byte{pattern(9, 1)}})
		l.wait(func() bool { return len(x.kept) > 0 })
		l.v.RunUntil(l.v.Now() + 1_000_000_000)
		l.wantBelow(0, 8, 1)
		if stored {
			x.speak()
			l.wait(end)
			l.wantBelow(0, 8, 9)
			l.want(0, 8, 9)
			continue
		}
		l.crash()
		l.cards[0].tired = false
		l.boot(0)
		l.want(0, 8, 1)
		l.wantBelow(0, 8, 1)
	}
}
