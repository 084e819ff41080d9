// The source's side of a copy: what a pool holds of its volumes at a point in time, and what those
// may ask of it who copy it, be it to another pool.
//
// Invariant: the pool of a reference is used in this file alone. Who copies sees of it its number, and
// what it sends back.

package request

import (
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// ref is a point-in-time reference to ranges of a volume. Its runs do not change, so that whoever has
// it may have them; that it is Lost its pool says, which gives it up when it runs out of space.
type ref struct {
	*extent.Ref
	e    *Engine
	pool *pool.Pool
}

// hold makes a reference to ranges of a volume as they are now.
func (v *Volume) hold(ranges []block.Range) *ref { return &ref{v.Map.Hold(ranges), v.e, v.Pool()} }

// Release gives the references back. There is no answer.
func (r *ref) Release() {
	r.Ref.Release()
	r.e.GaveRoom()
	r.e.EndStep()
}

// in reports whether the reference is of a pool, so that its data can be shared there.
func (r *ref) in(p *pool.Pool) bool { return r.pool == p }

// from is the number of the reference's pool, as copies are counted.
func (r *ref) from() uint16 { return r.pool.ID() }

// pieceRead is what a piece of a move asks the pool of its reference for: sectors that the reference
// holds, as they are on the mdisks or in the cache there.
type pieceRead struct {
	by      *op    // the piece; while nobody wants it any more, the read may end early
	phys    uint64 // in the pool of the reference
	sectors uint64
	dst     block.Cursor // where they go, where there is payload
	done    func(block.Status)
}

// read carries out a pieceRead, from the pool of a piece to that of the reference. It is answered by
// done, when all is read or cannot be; perhaps before it returns.
func (r *ref) read(m pieceRead) {
	rd := r.e.newReading(m.by.v)
	m.by.v.ops++
	rd.reason, rd.origin, rd.op, rd.done = block.ReasonCopyRead, m.by.origin, m.by, m.done
	rd.physical(r.pool, m.phys, m.sectors, &m.dst)
	rd.release()
}
