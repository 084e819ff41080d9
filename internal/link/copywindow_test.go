package link

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// borrowed is a unit of the source of which a test reads pieces itself.
type borrowed struct {
	r   *copyRig
	u   scsi.CopyUnit
	ref block.Readable
}

// borrow looks for a volume of the source on behalf of an initiator, and has all of it held.
func (r *copyRig) borrow(who string, v int) *borrowed {
	r.t.Helper()
	found := make(chan []scsi.CopyUnit, 1)
	id := r.src.names(v)[8:24]
	r.client.Find(scsi.CopyInitiator{Name: who, Port: who}, []scsi.CopyDesignator{{CodeSet: 1, Kind: 3, ID: id}}, func(u []scsi.CopyUnit) { found <- u })
	b := &borrowed{r: r, u: heard(r.t, found)[0]}
	if b.u == nil {
		r.t.Fatalf("%s does not see volume %d of the source", who, v)
	}
	if a := b.hold(); a.Status != block.OK {
		r.t.Fatalf("a hold: %+v", a)
	}
	return b
}

func (b *borrowed) hold() scsi.CopyAnswer {
	b.r.t.Helper()
	held := make(chan scsi.CopyAnswer, 1)
	b.u.Hold(block.Range{Count: sideSectors}, func(a scsi.CopyAnswer) { held <- a })
	a := heard(b.r.t, held)
	b.ref = a.Ref
	return a
}

func heard[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("no answer in %v", patience)
	}
	return v
}

// served is a block.Piece of a test.
type served chan block.Status

func (s served) Unwanted() bool        { return false }
func (s served) Served(x block.Status) { s <- x }

// read asks for so many pieces of 1 MiB.
func (b *borrowed) read(pieces int) (out []served) {
	for i := range pieces {
		s := make(served, 1)
		b.ref.Read(uint64(i)*copyPieceLen/512%sideSectors, copyPieceLen/512, make([]byte, copyPieceLen), block.OriginXCopy, s)
		out = append(out, s)
	}
	return out
}

// TestLeaveBeforeTheWindow: pieces of a copy that has ended are not asked for any more once the window has room, which would
// end the link and all other copies with it. They end at once.
func TestLeaveBeforeTheWindow(t *testing.T) {
	for _, release := range []bool{false, true} {
		r := newCopyRig(t)
		r.src.write(0, 0, stamps(1, sideSectors*512))
		r.src.write(1, 0, stamps(2, sideSectors*512))
		r.src.login(copyHost)
		a, b := r.borrow(copyHost, 0), r.borrow(copyHost, 1)
		r.tap.pass(0)
		sent, waiting := a.read(copyWindow/copyPieceLen), b.read(4)
		if release {
			b.ref.Release()
		} else {
			b.u.Leave()
		}
		for _, s := range waiting {
			if got := heard(t, s); got != block.Cancelled {
				t.Errorf("a piece that was not asked for ends with %v", got)
			}
		}
		r.tap.pass(-1)
		for _, s := range sent {
			if got := heard(t, s); got != block.OK {
				t.Errorf("a piece of another copy ends with %v", got)
			}
		}
		if release {
			b.u.Leave()
		}
		a.u.Leave()
		if c := r.borrow(copyHost, 1); heard(t, c.read(1)[0]) != block.OK {
			t.Error("a piece behind that is not read")
		} else {
			c.u.Leave()
		}
		if p := r.client.Peer(); p.Links != 1 || !p.Linked {
			t.Errorf("the link has ended: %+v", p)
		}
		r.src.free()
	}
}

// window is a link whose other end is the test.
type window struct {
	*copyLink
	units uint64
}

func newWindow(pieces int, bytes int64) *window {
	l := newCopyLink(&CopyClient{}, nil, nil)
	l.mostPieces, l.window = pieces, bytes
	return &window{copyLink: l}
}

// hold makes a reference for an initiator.
func (w *window) hold(who string) *copyRef {
	by := w.users[who]
	if by == nil {
		by = &copyUser{name: who}
	}
	w.units++
	u := w.admit(by, w.units, foundUnit{ok: true})
	u.ref = &copyRef{u: u, sectors: 64}
	return u.ref
}

func reads(r *copyRef, sectors uint64) served {
	s := make(served, 1)
	r.Read(0, sectors, make([]byte, sectors*block.SectorSize), block.OriginXCopy, s)
	return s
}

// TestInitiatorsThatLeaveAFullWindow: of initiators that have come and gone while the window was full, the link keeps nothing.
func TestInitiatorsThatLeaveAFullWindow(t *testing.T) {
	w := newWindow(1, copyWindow)
	slow := w.hold("slow")
	first, second := reads(slow, 8), reads(slow, 8)
	for range 100 {
		r := w.hold("brief")
		s := reads(r, 8)
		r.u.Leave()
		if got := <-s; got != block.Cancelled {
			t.Fatalf("a piece that was not asked for ends with %v", got)
		}
	}
	if len(w.users) != 1 || w.turns.len() != 1 {
		t.Errorf("the link keeps %d initiators, and %d in turn; one has a copy", len(w.users), w.turns.len())
	}
	for i, s := range []served{first, second, reads(w.hold("last"), 8)} {
		var id uint32
		for id = range w.pieces {
		}
		if err := w.heardData(appendData(nil, id, block.MediumRead, 0)[headLen:]); err != nil {
			t.Fatal(err)
		}
		if got := <-s; got != block.MediumRead {
			t.Errorf("piece %d ends with %v", i, got)
		}
	}
}

// TestPieceBehindOneThatIsGivenUp: a piece that the window has no room for holds up those behind it no longer than it is wanted.
func TestPieceBehindOneThatIsGivenUp(t *testing.T) {
	for _, same := range []bool{false, true} {
		w := newWindow(copyPieces, 32*block.SectorSize)
		reads(w.hold("slow"), 24)
		large, small := w.hold("large"), w.hold("small")
		if same {
			small = w.hold("large")
		}
		reads(large, 16)
		reads(small, 4)
		if n := len(w.pieces); n != 1 {
			t.Fatalf("%d pieces were sent, want the first", n)
		}
		large.Release()
		if n := len(w.pieces); n != 2 {
			t.Errorf("%d pieces were sent when the window had room for the last one", n)
		}
	}
}
