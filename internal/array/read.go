package array

import (
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/block"
)

// reading is a read on its way: how many back-end operations it waits for.
type reading struct {
	a      *Array
	req    *block.Request
	done   func(block.Status) // of an internal read
	v      *Volume
	reason block.Reason
	origin block.Origin
	left   int
	status block.Status
	next   *reading

	tell *block.Request // is told where the data is bad; nil with what is not a range of a volume
	op   *op            // of an internal read: it, or a piece of it, is why this is read
	// skew turns a physical sector of the run that is read into a sector of the volume.
	skew uint64
	// bad is the first sector that is known to be bad, lost the first of a transfer that failed
	// without a word where; noSector: there is none.
	bad, lost uint64
	cancelled bool
}

const noSector = 1<<64 - 1

func (a *Array) newReading(v *Volume) *reading {
	r := a.freeReading
	if r == nil {
		r = &reading{}
	} else {
		a.freeReading = r.next
	}
	*r = reading{a: a, v: v, left: 1, bad: noSector, lost: noSector}
	return r
}

// unwanted reports whether nobody waits for what is read any more.
func (r *reading) unwanted() bool {
	o := r.op
	return r.cancelled || o != nil && (o.state == unwanted || o.parent != nil && o.parent.status != block.OK)
}

// startRead answers a host read.
func (a *Array) startRead(v *Volume, req *block.Request) {
	r := a.newReading(v)
	r.req, r.tell, r.reason = req, req, block.ReasonStage
	req.Priv = r
	dst := cursor{vec: req.Data}
	r.volume(v, req.Range, &dst)
	r.release()
}

// readInto reads the range of an op's request for the array itself and calls done, perhaps at once.
func (a *Array) readInto(o *op, buf []byte, done func(block.Status)) {
	v := o.v
	r := a.newReading(v)
	r.done, r.reason, r.origin = done, block.ReasonRMW, block.OriginCAW
	r.tell, r.op = o.req, o
	dst := cursor{vec: [][]byte{buf}}
	r.volume(v, o.req.Range, &dst)
	r.release()
}

func (r *reading) volume(v *Volume, rg block.Range, dst *cursor) {
	r.v = v
	v.ops++
	v.m.Walk(rg, func(x extent.Run) bool {
		if x.State == block.Data {
			r.skew = x.Start - x.Phys
			r.physical(v.pool, x.Phys, x.Count, dst)
		} else {
			dst.zero(int(x.Count) * block.SectorSize)
		}
		return true
	})
}

// physical reads sectors [phys, phys+n): what is dirty from the cache, the rest from the mdisks.
func (r *reading) physical(p *Pool, phys, n uint64, dst *cursor) {
	a, c := r.a, r.a.cache
	end := phys + n
	if len(a.bad) > 0 {
		if first, bad := a.firstBad(p, phys, n); bad {
			r.status = block.MediumRead
			r.bad = min(r.bad, first+r.skew)
			dst.zero(int(n) * block.SectorSize)
			return
		}
	}
	if p.part.used+p.part.reserve.used == 0 {
		r.backend(p, phys, n, dst)
		return
	}
	for from := phys; phys < end; {
		in := phys % pageSectors
		k := min(pageSectors-in, end-phys)
		i := c.lookup(keyOf(p.id, phys))
		if i == noPage {
			if phys += k; phys == end {
				r.backend(p, from, phys-from, dst)
			}
			continue
		}
		if phys > from {
			r.backend(p, from, phys-from, dst)
		}
		pg := &c.pages[i]
		for s := in; s < in+k; s++ {
			holder := noPage
			if pg.mask>>s&1 != 0 {
				holder = i
			} else if under := c.under(i); under != noPage && c.pages[under].mask>>s&1 != 0 {
				holder = under
			}
			if holder == noPage {
				r.backend(p, phys, 1, dst)
			} else if a.payload {
				// As many sectors as the same page has in a row.
				t := s + 1
				for holder == i && t < in+k && pg.mask>>t&1 != 0 {
					t++
				}
				dst.copyFrom(c.nv.Page(holder)[s*block.SectorSize : t*block.SectorSize])
				phys += t - s - 1
				s = t - 1
			}
			phys++
		}
		from = phys
	}
}

// backend reads from the mdisks, one operation for what lies together on one.
func (r *reading) backend(p *Pool, phys, n uint64, dst *cursor) {
	a := r.a
	for n > 0 {
		md, off, k := p.space.Locate(phys)
		k = min(k, n)
		if p.mdisks[md].offline {
			r.status = block.Offline
			dst.zero(int(k) * block.SectorSize)
			phys += k
			n -= k
			continue
		}
		p.space.Pin(phys, k)
		x := a.getIO()
		x.io.Write, x.io.Off, x.io.N, x.reason = false, off, k*block.SectorSize, r.reason
		if a.payload {
			x.io.Vec = dst.take(x.io.Vec, int(k)*block.SectorSize)
		}
		x.bytes[r.origin] = uint32(k * block.SectorSize)
		x.ctx, x.done = r, a.readDoneFn
		x.phys, x.sectors, x.pool, x.skew = phys, k, p, r.skew
		r.left++
		p.mdisks[md].expect(x)
		p.mdisks[md].start(x)
		phys += k
		n -= k
	}
}

func (a *Array) readDone(x *diskIO) {
	r := x.ctx.(*reading)
	x.d.forget(x)
	a.lookAgain(x)
	if x.io.Err != nil {
		r.status = block.MediumRead
		x.d.failures++
		r.a.noteBad(x) // while the grain is pinned: when it is freed, it leaves the list
		r.locate(x)
	}
	x.pool.space.Unpin(x.phys, x.sectors)
	r.release()
}

// locate notes where a transfer failed.
func (r *reading) locate(x *diskIO) {
	var e *block.ChecksumError
	if !errors.As(x.io.Err, &e) || len(e.Sectors) == 0 {
		r.lost = min(r.lost, x.phys+x.skew)
		return
	}
	first := slices.Min(e.Sectors) - x.io.Off/block.SectorSize
	r.bad = min(r.bad, x.phys+first+x.skew)
}

// readTries is how often a sector is read until its checksum counts as wrong.
const readTries = 3

// lookAgain answers those sectors of a read with wrong checksums that were written while it was on its way: such a read may find
// data without its checksum. What is in the cache is taken from there; the rest, which may have been destaged meanwhile, is
// read again. What is wrong for good stays in the error.
func (a *Array) lookAgain(x *diskIO) {
	var e *block.ChecksumError
	if x.io.Err == nil || !errors.As(x.io.Err, &e) {
		return
	}
	r := x.ctx.(*reading)
	left := block.ChecksumError{Medium: e.Medium}
	for i, sector := range e.Sectors {
		at := sector - x.io.Off/block.SectorSize
		dst := cursor{vec: x.io.Vec}
		dst.skip(int(at) * block.SectorSize)
		switch data := a.cached(keyOf(x.pool.id, x.phys+at), (x.phys+at)%pageSectors); {
		case data != nil:
			dst.copyFrom(data)
		case x.tries+1 < readTries:
			a.readSectorAgain(x, r, x.phys+at, &dst)
		default:
			left.Sectors, left.Sums = append(left.Sectors, sector), append(left.Sums, e.Sums[i])
		}
	}
	x.io.Err = nil
	if len(left.Sectors) > 0 {
		x.io.Err = &left
	}
}

// cached returns a dirty sector of a key, nil if the cache does not have it.
func (a *Array) cached(k pageKey, sector uint64) []byte {
	c := a.cache
	i := c.lookup(k)
	if i != noPage && c.pages[i].mask>>sector&1 == 0 {
		i = c.under(i)
	}
	if i == noPage || c.pages[i].mask>>sector&1 == 0 {
		return nil
	}
	return c.nv.Page(i)[sector*block.SectorSize : (sector+1)*block.SectorSize]
}

// readSectorAgain reads one sector of a read once more.
func (a *Array) readSectorAgain(x *diskIO, r *reading, phys uint64, dst *cursor) {
	_, off, _ := x.pool.space.Locate(phys)
	x.pool.space.Pin(phys, 1)
	y := a.getIO()
	y.io.Write, y.io.Off, y.io.N, y.reason = false, off, block.SectorSize, x.reason
	y.io.Vec = dst.take(y.io.Vec, block.SectorSize)
	y.bytes[r.origin] = block.SectorSize
	y.ctx, y.done, y.tries = r, a.readDoneFn, x.tries+1
	y.phys, y.sectors, y.pool, y.skew = phys, 1, x.pool, x.skew
	r.left++
	x.d.expect(y)
	x.d.start(y)
}

// release gives back one of the things that the read waits for; the last one ends it.
func (r *reading) release() {
	if r.left--; r.left > 0 {
		return
	}
	a := r.a
	r.v.ops--
	done, s := r.done, r.status
	if t := r.tell; t != nil && s == block.MediumRead && r.bad < r.lost {
		t.Offset, t.Located = (r.bad-t.Range.Start)<<block.SectorShift, true
	}
	if r.req != nil {
		r.req.Priv = nil
		a.finish(r.req, s)
	}
	*r = reading{next: a.freeReading}
	a.freeReading = r
	if done != nil {
		done(s)
	}
}

// zero fills the next n bytes of the list with zeros.
func (c *cursor) zero(n int) {
	for n > 0 && c.i < len(c.vec) {
		b := c.vec[c.i][c.off:]
		b = b[:min(n, len(b))]
		clear(b)
		c.advance(len(b))
		n -= len(b)
	}
}

// skip leaves out the next n bytes of the list.
func (c *cursor) skip(n int) {
	for n > 0 {
		k := min(n, len(c.vec[c.i])-c.off)
		c.advance(k)
		n -= k
	}
}

// copyFrom fills the next bytes of the list from src.
func (c *cursor) copyFrom(src []byte) {
	for len(src) > 0 {
		n := copy(c.vec[c.i][c.off:], src)
		src = src[n:]
		c.advance(n)
	}
}
