// Package reading carries out reads of what lies in pools: what is dirty comes from the cache, the rest
// from the mdisks. It knows no request and no volume: whom a [Read] is for is its [Owner].
//
// Invariant: a grain that an operation reads is pinned until the operation has ended, so that nobody
// gets its space meanwhile.
package reading

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

// From is what all reads of an array read from.
type From struct {
	Cache   *wcache.Cache
	Payload bool // bytes are kept
}

// Owner is whom a read is for.
type Owner interface {
	// Ended hears that it has, once.
	Ended()
	// Unwanted reports whether nobody waits for what is read any more.
	Unwanted() bool
}

// Read is a read on its way: how many back-end operations it waits for. Owners recycle theirs.
type Read struct {
	Reason block.Reason
	Origin block.Origin
	// Skew turns a physical sector of the run that is read into a sector of the volume.
	Skew uint64
	// Of what has ended: Bad is the first sector that is known to be bad, Lost the first of a transfer
	// that failed without a word where; NoSector: there is none.
	Status    block.Status
	Bad, Lost uint64

	from  *From
	owner Owner
	pool  *pool.Pool // whose mdisks are read
	left  int
}

// NoSector is no sector.
const NoSector = 1<<64 - 1

// Begin makes it a new one, which ends with as many calls of Release as Begin and its operations are.
func (r *Read) Begin(from *From, owner Owner) {
	*r = Read{from: from, owner: owner, left: 1, Bad: NoSector, Lost: NoSector}
}

// Unwanted reports whether nobody waits for what an operation of a read is for.
func Unwanted(x *backend.Op) bool { return x.Ctx.(*Read).owner.Unwanted() }

// Run reads a run of a map or a reference.
func (r *Read) Run(p *pool.Pool, x extent.Run, dst *block.Cursor) bool {
	if x.State == block.Data {
		r.Physical(p, x.Phys, x.Count, dst)
	} else {
		dst.Zero(int(x.Count) * block.SectorSize)
	}
	return true
}

// Physical reads sectors [phys, phys+n): what is dirty from the cache, the rest from the mdisks.
func (r *Read) Physical(p *pool.Pool, phys, n uint64, dst *block.Cursor) {
	c := r.from.Cache
	end := phys + n
	if p.Bad.Len() > 0 {
		if first, bad := p.Bad.First(phys, n); bad {
			r.Status = block.MediumRead
			r.Bad = min(r.Bad, first+r.Skew)
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
			} else if r.from.Payload {
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
func (r *Read) backend(p *pool.Pool, phys, n uint64, dst *block.Cursor) {
	r.pool = p
	for n > 0 {
		md, off, k := p.Alloc.Locate(phys)
		k = min(k, n)
		if p.Mdisks[md].Offline() {
			r.Status = block.Offline
			dst.Zero(int(k) * block.SectorSize)
			phys += k
			n -= k
			continue
		}
		p.Alloc.Pin(phys, k)
		x := p.Mdisks[md].Op(false, off, k*block.SectorSize, r.Reason)
		if r.from.Payload {
			x.IO.Vec = dst.Take(x.IO.Vec, int(k)*block.SectorSize)
		}
		x.Bytes[r.Origin] = uint32(k * block.SectorSize)
		x.Ctx, x.Phys, x.Tag = r, phys, r.Skew
		r.left++
		p.Mdisks[md].Read(x)
		phys += k
		n -= k
	}
}

// Done hears that an operation of a read has ended.
func Done(x *backend.Op) {
	r := x.Ctx.(*Read)
	if x.IO.Err != nil {
		r.lookAgain(x)
	}
	if x.IO.Err != nil {
		r.Status = block.MediumRead
		x.Mdisk().ReadFailed()
		r.pool.NoteBad(x) // while the grain is pinned: when it is freed, it leaves the list
		r.locate(x)
	}
	r.pool.UnpinRead(x)
	r.Release()
}

// Abandoned ends a read that nobody waits for any longer, because its mdisk is silent.
func Abandoned(x *backend.Op) {
	r := x.Ctx.(*Read)
	r.pool.UnpinRead(x)
	r.Status = block.Hardware
	r.Release()
}

// locate notes where a transfer failed.
func (r *Read) locate(x *backend.Op) {
	var sum *block.ChecksumError
	if !errors.As(x.IO.Err, &sum) || len(sum.Sectors) == 0 {
		r.Lost = min(r.Lost, x.Phys+x.Tag)
		return
	}
	first := slices.Min(sum.Sectors) - x.IO.Off/block.SectorSize
	r.Bad = min(r.Bad, x.Phys+first+x.Tag)
}

// lookAgain answers those sectors of a read with wrong checksums that were written while it was on
// its way: such a read may find data without its checksum. What is in the cache is taken from
// there; the rest, which may have been destaged meanwhile, is read again. What is wrong for good
// stays in the error.
func (r *Read) lookAgain(x *backend.Op) {
	var sum *block.ChecksumError // memory of the heap, which a read without an error does without
	if !errors.As(x.IO.Err, &sum) {
		return
	}
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
func (r *Read) readSectorAgain(x *backend.Op, phys uint64, dst *block.Cursor) {
	_, off, _ := r.pool.Alloc.Locate(phys)
	r.pool.Alloc.Pin(phys, 1)
	y := x.Mdisk().Op(false, off, block.SectorSize, x.Reason)
	y.IO.Vec = dst.Take(y.IO.Vec, block.SectorSize)
	y.Bytes[r.Origin] = block.SectorSize
	y.Ctx, y.Phys, y.Tag, y.Tries = r, phys, x.Tag, x.Tries+1
	r.left++
	x.Mdisk().Read(y)
}

// Release gives back one of the things that the read waits for; the last one ends it.
func (r *Read) Release() {
	if r.left--; r.left == 0 {
		r.owner.Ended()
	}
}

// Located returns the first sector that is known to be bad, if that is where the read failed first.
func (r *Read) Located() (sector uint64, ok bool) {
	return r.Bad, r.Status == block.MediumRead && r.Bad < r.Lost
}
