// Reads, of hosts and of the array itself: what is dirty comes from the cache, the rest from the
// mdisks.
//
// Invariant: a grain that an operation reads is pinned until the operation has ended, so that
// nobody gets its space meanwhile.

package request

import (
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// reading is a read on its way: how many back-end operations it waits for.
type reading struct {
	e      *Engine
	req    *block.Request
	done   func(block.Status) // of an internal read
	v      *Volume
	pool   *pool.Pool // whose mdisks are read
	reason block.Reason
	origin block.Origin
	left   int
	status block.Status
	next   *reading

	tell  *block.Request // is told where the data is bad; nil with what is not a range of a volume
	op    *op            // of an internal read: it, or a piece of it, is why this is read
	piece block.Piece    // why this is read for another array
	// skew turns a physical sector of the run that is read into a sector of the volume.
	skew uint64
	// bad is the first sector that is known to be bad, lost the first of a transfer that failed
	// without a word where; noSector: there is none.
	bad, lost uint64
	cancelled bool
}

const noSector = 1<<64 - 1

func (e *Engine) newReading(v *Volume) *reading {
	r := e.freeReading
	if r == nil {
		r = &reading{}
	} else {
		e.freeReading = r.next
	}
	r.e, r.v, r.next, r.left, r.bad, r.lost = e, v, nil, 1, noSector, noSector // the rest is zero since release
	v.ops++
	return r
}

// unwanted reports whether nobody waits for what is read any more.
func (r *reading) unwanted() bool {
	o := r.op
	return r.cancelled || r.piece != nil && r.piece.Unwanted() || o != nil && (o.state == unwanted || o.parent != nil && o.parent.status != block.OK)
}

// IsUnwanted is unwanted of the reading that an operation is a part of.
func IsUnwanted(x *backend.Op) bool { return x.Ctx.(*reading).unwanted() }

// startRead answers a host read.
func (e *Engine) startRead(v *Volume, req *block.Request) {
	r := e.newReading(v)
	r.req, r.tell, r.reason = req, req, block.ReasonStage
	req.Priv = r
	dst := block.Cursor{Vec: req.Data}
	r.volume(v, req.Range, &dst)
	r.release()
}

// readInto reads the range of an op's request for the array itself and calls done, perhaps at once.
func (e *Engine) readInto(o *op, buf []byte, done func(block.Status)) {
	v := o.v
	r := e.newReading(v)
	r.done, r.reason, r.origin = done, block.ReasonRMW, block.OriginCAW
	r.tell, r.op = o.req, o
	dst := block.Cursor{Vec: [][]byte{buf}}
	r.volume(v, o.req.Range, &dst)
	r.release()
}

func (r *reading) volume(v *Volume, rg block.Range, dst *block.Cursor) {
	v.Map.Walk(rg, func(x extent.Run) bool {
		r.skew = x.Start - x.Phys
		return r.run(v.Pool(), x, dst)
	})
}

// run reads a run of a map or a reference.
func (r *reading) run(p *pool.Pool, x extent.Run, dst *block.Cursor) bool {
	if x.State == block.Data {
		r.physical(p, x.Phys, x.Count, dst)
	} else {
		dst.Zero(int(x.Count) * block.SectorSize)
	}
	return true
}

// physical reads sectors [phys, phys+n): what is dirty from the cache, the rest from the mdisks.
func (r *reading) physical(p *pool.Pool, phys, n uint64, dst *block.Cursor) {
	e, c := r.e, r.e.cache
	end := phys + n
	if p.Bad.Len() > 0 {
		if first, bad := p.Bad.First(phys, n); bad {
			r.status = block.MediumRead
			r.bad = min(r.bad, first+r.skew)
			dst.Zero(int(n) * block.SectorSize)
			return
		}
	}
	if p.Part.Empty() {
		r.backend(p, phys, n, dst)
		return
	}
	for from := phys; phys < end; {
		in := phys % layout.PageSectors
		k := min(layout.PageSectors-in, end-phys)
		i := c.Lookup(layout.KeyOf(p.ID(), phys))
		if i == wcache.NoPage {
			if phys += k; phys == end {
				r.backend(p, from, phys-from, dst)
			}
			continue
		}
		if phys > from {
			r.backend(p, from, phys-from, dst)
		}
		mask := c.Mask(i)
		for s := in; s < in+k; s++ {
			holder := c.Holder(i, s)
			if holder == wcache.NoPage {
				r.backend(p, phys, 1, dst)
			} else if e.payload {
				// As many sectors as the same page has in a row.
				t := s + 1
				for holder == i && t < in+k && mask>>t&1 != 0 {
					t++
				}
				dst.CopyFrom(c.NV.Page(holder)[s*block.SectorSize : t*block.SectorSize])
				phys += t - s - 1
				s = t - 1
			}
			phys++
		}
		from = phys
	}
}

// backend reads from the mdisks, one operation for what lies together on one.
func (r *reading) backend(p *pool.Pool, phys, n uint64, dst *block.Cursor) {
	e := r.e
	r.pool = p
	for n > 0 {
		md, off, k := p.Alloc.Locate(phys)
		k = min(k, n)
		if p.Mdisks[md].Offline() {
			r.status = block.Offline
			dst.Zero(int(k) * block.SectorSize)
			phys += k
			n -= k
			continue
		}
		p.Alloc.Pin(phys, k)
		x := p.Mdisks[md].Op(false, off, k*block.SectorSize, r.reason)
		if e.payload {
			x.IO.Vec = dst.Take(x.IO.Vec, int(k)*block.SectorSize)
		}
		x.Bytes[r.origin] = uint32(k * block.SectorSize)
		x.Ctx, x.Phys, x.Tag = r, phys, r.skew
		r.left++
		p.Mdisks[md].Read(x)
		phys += k
		n -= k
	}
}

// ReadDone hears that an operation of a read has ended.
func (e *Engine) ReadDone(x *backend.Op) {
	r := x.Ctx.(*reading)
	if x.IO.Err != nil {
		e.lookAgain(x)
	}
	if x.IO.Err != nil {
		r.status = block.MediumRead
		x.Mdisk().ReadFailed()
		r.pool.NoteBad(x) // while the grain is pinned: when it is freed, it leaves the list
		r.locate(x)
	}
	r.pool.UnpinRead(x)
	r.release()
}

// ReadAbandoned ends a read that nobody waits for any longer, because its mdisk is silent.
func (e *Engine) ReadAbandoned(x *backend.Op) {
	r := x.Ctx.(*reading)
	r.pool.UnpinRead(x)
	r.status = block.Hardware
	r.release()
}

// locate notes where a transfer failed.
func (r *reading) locate(x *backend.Op) {
	var sum *block.ChecksumError
	if !errors.As(x.IO.Err, &sum) || len(sum.Sectors) == 0 {
		r.lost = min(r.lost, x.Phys+x.Tag)
		return
	}
	first := slices.Min(sum.Sectors) - x.IO.Off/block.SectorSize
	r.bad = min(r.bad, x.Phys+first+x.Tag)
}

// lookAgain answers those sectors of a read with wrong checksums that were written while it was on
// its way: such a read may find data without its checksum. What is in the cache is taken from
// there; the rest, which may have been destaged meanwhile, is read again. What is wrong for good
// stays in the error.
func (e *Engine) lookAgain(x *backend.Op) {
	var sum *block.ChecksumError // memory of the heap, which a read without an error does without
	if !errors.As(x.IO.Err, &sum) {
		return
	}
	r := x.Ctx.(*reading)
	left := block.ChecksumError{Medium: sum.Medium}
	for i, sector := range sum.Sectors {
		at := sector - x.IO.Off/block.SectorSize
		dst := block.Cursor{Vec: x.IO.Vec}
		dst.Skip(int(at) * block.SectorSize)
		switch data := r.pool.Cached(x.Phys + at); {
		case data != nil:
			dst.CopyFrom(data)
		case x.Tries+1 < backend.ReadTries:
			r.readSectorAgain(x, x.Phys+at, &dst)
		default:
			left.Sectors, left.Sums = append(left.Sectors, sector), append(left.Sums, sum.Sums[i])
		}
	}
	x.IO.Err = nil
	if len(left.Sectors) > 0 {
		x.IO.Err = &left
	}
}

// readSectorAgain reads one sector of a read once more.
func (r *reading) readSectorAgain(x *backend.Op, phys uint64, dst *block.Cursor) {
	_, off, _ := r.pool.Alloc.Locate(phys)
	r.pool.Alloc.Pin(phys, 1)
	y := x.Mdisk().Op(false, off, block.SectorSize, x.Reason)
	y.IO.Vec = dst.Take(y.IO.Vec, block.SectorSize)
	y.Bytes[r.origin] = block.SectorSize
	y.Ctx, y.Phys, y.Tag, y.Tries = r, phys, x.Tag, x.Tries+1
	r.left++
	x.Mdisk().Read(y)
}

// release gives back one of the things that the read waits for; the last one ends it.
func (r *reading) release() {
	if r.left--; r.left > 0 {
		return
	}
	e := r.e
	r.v.ops--
	done, s := r.done, r.status
	if t := r.tell; t != nil && s == block.MediumRead && r.bad < r.lost {
		t.Offset, t.Located = (r.bad-t.Range.Start)<<block.SectorShift, true
	}
	if r.req != nil {
		r.req.Priv = nil
		e.finishRead(r.v, r.req, r.req.Range, s)
	}
	*r = reading{next: e.freeReading}
	e.freeReading = r
	if done != nil {
		done(s)
	}
}
