// The source's side of a copy: what a pool holds of its volumes at a point in time, and what those
// may ask of it who copy it, be it to another pool, or to another array.
//
// Invariant: the pool of a reference is used in this file alone. Who copies sees of it its number, and
// what it sends back.

package request

import (
	"github.com/arraysim/arraysim/internal/array/copying"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/hold"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// source is what a copy knows of what it copies: a reference of this array, or of another one.
type source interface {
	Sectors() uint64
	Runs(off, n uint64, fn func(extent.Run) bool)
	// Lost reports whether there is nothing to be read any more.
	Lost() bool
	// from is the number of the reference's pool, as copies are counted.
	from() uint16
	// read reads what a piece copies into its buffer, and has fns.moved or fetched called, perhaps at once.
	read(c *op)
	// forget reports whether the read of a piece need not be waited for; it has nothing of the piece then.
	forget(c *op) bool
}

// sourceOf returns what a request is to place, nil if this is nothing that the engine can read.
func (e *Engine) sourceOf(r block.Ref) source {
	switch h := r.(type) {
	case *ref:
		if h.e == e {
			return h
		}
	case *copying.Source:
		if own, ok := h.Lender().(*ref); ok && own.e == e { // lent to somebody, and back
			return own
		}
		return &lent{copying.Reader{Source: h}, pool.OtherGroup}
	case block.Remote:
		return &lent{copying.Reader{Source: copying.FromRemote(h)}, pool.OtherArray}
	}
	return nil
}

// ref is a point-in-time reference to ranges of a volume. Its runs do not change, so that whoever has
// it may have them; that it is Lost its pool says, which gives it up when it runs out of space.
type ref struct {
	*hold.Ref
	e        *Engine
	pool     *pool.Pool
	by       copying.Holder // whom it is booked to, with so many runs
	booked   int
	released bool
}

// hold makes a reference to ranges of a volume as they are now, nil if it would take too much memory.
func (v *Volume) hold(q *block.Request) *ref {
	x := &v.e.copies.Held
	h := v.Map.Hold(q.Ranges, x.Room(q))
	if h == nil {
		return nil
	}
	return &ref{Ref: h, e: v.e, pool: v.Pool(), by: copying.HolderOf(q), booked: x.Book(q, h.Size())}
}

// Lost reports whether the reference was given up or given back.
func (r *ref) Lost() bool { return r.released || r.Ref.Lost() }

// Release gives the references back. There is no answer.
func (r *ref) Release() {
	r.released = true
	r.Ref.Release()
	r.e.copies.Held.GiveBack(r.by, r.booked)
	r.e.GaveRoom()
	r.e.EndStep()
}

// Lend implements block.Lendable.
func (r *ref) Lend(back func()) block.Ref { return copying.Lend(r.e.exec, r, r.Ref, back) }

// Intact implements copying.Lender. What a log has that broke down, the next start may not find: no copy may keep it.
func (r *ref) Intact() block.Status {
	return copying.Verdict(r.e.stopped || r.released, r.Ref.Lost(), r.e.broken != "")
}

// Serve implements copying.Lender: another array's copy reads what the reference holds.
func (r *ref) Serve(off, n uint64, buf []byte, origin block.Origin, p block.Piece) {
	e := r.e
	if s := r.Intact(); s != block.OK {
		p.Served(s)
		return
	}
	rd := e.newRead(&e.elsewhere)
	rd.Reason, rd.Origin, rd.piece, rd.done = block.ReasonCopyRead, origin, p, p.Served
	dst := block.Cursor{Vec: [][]byte{buf}}
	r.Runs(off, n, func(x extent.Run) bool { return rd.Run(r.pool, x, &dst) })
	rd.Release()
	e.EndStep()
}

// in reports whether the reference is of a pool, so that its data can be shared there.
func (r *ref) in(p *pool.Pool) bool { return r.pool == p }
func (r *ref) from() uint16         { return r.pool.ID() }
func (r *ref) forget(*op) bool      { return false }

// read may end early while nobody wants the piece any more.
func (r *ref) read(c *op) {
	rd := r.e.newRead(c.v)
	rd.Reason, rd.Origin, rd.op, rd.done = block.ReasonCopyRead, c.origin, c, c.fns.moved
	dst := c.src
	rd.Physical(r.pool, c.from, c.stop-c.cur, &dst)
	rd.Release()
}

// lent is a reference of another array. Its pieces are read by messages (package copying).
type lent struct {
	copying.Reader
	owner uint16 // as its pools are counted
}

func (l *lent) from() uint16      { return l.owner }
func (l *lent) forget(c *op) bool { return l.Forget(c) }

func (l *lent) read(c *op) {
	w := copying.Want{By: c, Off: c.from, Sectors: c.stop - c.cur, Buf: c.buf, Origin: c.origin, Done: c.fns.fetched}
	c.buf = nil
	l.Read(&c.v.e.copies, c.v.e.exec, w)
}
