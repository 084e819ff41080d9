// Owners: who wrote what is dirty, which is volumes, as numbers. An owner has its lists of dirty
// pages, its place in the order of destaging, and the bytes that are counted for it. The counters
// of the cache are written here and nowhere else.
//
// Invariant: for each owner and origin, admitted + recovered = dirty + destaged + overwritten +
// discarded.

package wcache

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// The kinds of counter rows that are the cache's.
const (
	RowBytes = 1 // key origin, id owner; cells below
	RowShort = 4 // key origin, id owner; cell 0: bytes of cellWriteThrough for lack of memory
)

const (
	cellFast = iota
	cellWriteThrough
	cellRecovered
	cellDestaged
	cellOverwritten
	cellDiscarded
	cellFlushThrough
)

// rowIn and rowOut are the two sides of conservation: in = dirty + out.
func rowIn(r *nvlog.Row) uint64 {
	return r.Cells[cellFast] + r.Cells[cellWriteThrough] + r.Cells[cellFlushThrough] + r.Cells[cellRecovered]
}

func rowOut(r *nvlog.Row) uint64 {
	return r.Cells[cellDestaged] + r.Cells[cellOverwritten] + r.Cells[cellDiscarded]
}

// Flow is the bytes of one origin that went through the cache for an owner, since the
// array was made; Dirty is what is there now.
type Flow struct {
	Fast, FlushThrough, WriteThrough, Recovered uint64
	Destaged, Overwritten, Discarded            uint64
	Dirty                                       int64
}

// In and Out are the two sides of conservation: what came is what went and what is there.
func (f Flow) In() uint64 { return f.Fast + f.WriteThrough + f.FlushThrough + f.Recovered }

// Out is what is not dirty any more.
func (f Flow) Out() uint64 { return f.Destaged + f.Overwritten + f.Discarded }

// Owner is who has written what is dirty. It belongs to one partition.
type Owner struct {
	id   uint32
	part *Partition
	gone bool // the cache's user wants to hear when nothing of it is dirty any more

	dirty  []list // by mdisk of the partition, oldest first
	pages  int    // on them
	inRing bool
	credit int // pages that it may still send in its turns

	bytes   [block.NumOrigins]int64 // dirty
	sum     int64                   // of these
	rows    [block.NumOrigins]*nvlog.Row
	short   [block.NumOrigins]*nvlog.Row
	seconds float64 // integral of the dirty bytes over time
	metered int64   // up to when
}

// AddOwner makes an owner known. Preconditions: no other one has its number.
func (c *Cache) AddOwner(id uint32, p *Partition) *Owner {
	o := &Owner{id: id, part: p, dirty: newLists(len(p.lanes)), metered: c.exec.Now()}
	for len(c.owners) <= int(id) {
		c.owners = append(c.owners, nil)
	}
	c.owners[id] = o
	return o
}

// RemoveOwner forgets an owner of which nothing is dirty and that has no counters any more.
func (c *Cache) RemoveOwner(o *Owner) { c.owners[o.id] = nil }

// Leave has the cache tell its user each time that bytes of the owner stop being dirty.
func (o *Owner) Leave() { o.gone = true }

// row returns the counters of an origin; peek returns nil if it never occurred.
func (o *Owner) row(g block.Origin) *nvlog.Row {
	if o.rows[g] == nil {
		o.rows[g] = o.part.c.rows.Get(nvlog.HeadOf(RowBytes, uint8(g), o.part.id, o.id))
	}
	return o.rows[g]
}

func (o *Owner) peek(g block.Origin) *nvlog.Row {
	if o.rows[g] == nil {
		o.rows[g] = o.part.c.rows.Find(nvlog.HeadOf(RowBytes, uint8(g), o.part.id, o.id))
	}
	return o.rows[g]
}

// Flow returns the flow of an origin; false says that there never was any.
func (o *Owner) Flow(g block.Origin) (Flow, bool) {
	r := o.peek(g)
	if r == nil {
		return Flow{Dirty: o.bytes[g]}, false
	}
	return Flow{
		Fast: r.Cells[cellFast], FlushThrough: r.Cells[cellFlushThrough], WriteThrough: r.Cells[cellWriteThrough],
		Recovered: r.Cells[cellRecovered], Destaged: r.Cells[cellDestaged], Overwritten: r.Cells[cellOverwritten],
		Discarded: r.Cells[cellDiscarded], Dirty: o.bytes[g],
	}, true
}

// Short returns how many of the bytes that were written through were so for lack of memory.
func (o *Owner) Short(g block.Origin) uint64 {
	if r := o.peek(g); o.short[g] == nil && r != nil && r.Cells[cellWriteThrough] > 0 {
		o.short[g] = o.part.c.rows.Find(nvlog.HeadOf(RowShort, uint8(g), o.part.id, o.id))
	}
	if o.short[g] == nil {
		return 0
	}
	return o.short[g].Cells[0]
}

// countAdmitted books n bytes that the cache has taken.
func (o *Owner) countAdmitted(w *Write, n uint64) {
	cell := cellFast
	switch w.Way {
	case FlushThrough:
		cell = cellFlushThrough
	case WriteThrough, ShortOfMemory:
		cell = cellWriteThrough
		if w.Way == ShortOfMemory {
			if o.short[w.Origin] == nil {
				o.short[w.Origin] = o.part.c.rows.Get(nvlog.HeadOf(RowShort, uint8(w.Origin), o.part.id, o.id))
			}
			o.short[w.Origin].Cells[0] += n
		}
	}
	o.row(w.Origin).Cells[cell] += n
	o.add(w.Origin, int64(n))
}

// countLeft books the sectors of a page that stop being dirty.
func (o *Owner) countLeft(mask uint8, origins uint32, cell int) {
	if bits.RotateLeft32(origins, 4) == origins {
		n := uint64(bits.OnesCount8(mask)) * block.SectorSize
		o.add(block.Origin(origins&15), -int64(n))
		o.row(block.Origin(origins & 15)).Cells[cell] += n
		mask = 0
	}
	for ; mask != 0; mask &= mask - 1 {
		g := block.OriginAt(origins, bits.TrailingZeros8(mask))
		o.add(g, -block.SectorSize)
		o.row(g).Cells[cell] += block.SectorSize
	}
	if o.gone {
		o.part.c.hooks.Left(o.id)
	}
}

// takeOver books sectors that stay dirty, and that another owner's page has from now on.
func (o *Owner) takeOver(from *Owner, mask uint8, origins uint32) {
	for left := mask; left != 0; left &= left - 1 {
		g := block.OriginAt(origins, bits.TrailingZeros8(left))
		from.countLeft(left&-left, origins, cellDiscarded)
		o.row(g).Cells[cellRecovered] += block.SectorSize
		o.add(g, block.SectorSize)
	}
}

// Balance brings the counters, which an interrupted step may have left one step behind or ahead,
// in line with what is dirty.
func (o *Owner) Balance() {
	for g := range block.NumOrigins {
		if o.peek(g) == nil && o.bytes[g] == 0 {
			continue
		}
		r := o.row(g)
		diff := int64(rowIn(r)) - int64(rowOut(r)) - o.bytes[g]
		r.Cells[cellRecovered] += uint64(max(-diff, 0))
		r.Cells[cellDiscarded] += uint64(max(diff, 0))
	}
}

// ForgetRows says that the owner's counter rows were dropped.
func (o *Owner) ForgetRows() {
	o.rows, o.short = [block.NumOrigins]*nvlog.Row{}, [block.NumOrigins]*nvlog.Row{}
}

// Meter brings the integral of the dirty bytes up to now. It is called before they change.
func (o *Owner) Meter() {
	if now := o.part.c.exec.Now(); now != o.metered {
		o.seconds += float64(o.Dirty()) * float64(now-o.metered) / 1e9
		o.metered = now
	}
}

// DirtySeconds is the integral of the dirty bytes over time, in byte seconds.
func (o *Owner) DirtySeconds() float64 {
	o.Meter()
	return o.seconds
}

// Dirty returns the dirty bytes.
func (o *Owner) Dirty() int64 { return o.sum }

// add counts bytes of an origin that begin to be dirty, or stop to be.
func (o *Owner) add(g block.Origin, n int64) {
	o.bytes[g] += n
	o.sum += n
}
