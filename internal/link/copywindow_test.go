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
