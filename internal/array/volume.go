package array

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// Volume is a logical disk of the array. It implements block.Device.
type Volume struct {
	a       *Array
	id      uint32
	pool    *Pool
	spec    VolumeSpec
	m       *extent.Map
	deleted bool
	// replaced: it was deleted, and another volume has its name. Its counters are not told any more.
	replaced bool
	// forgotten: its deletion is durable. The last dirty page that goes takes the volume with it.
	forgotten bool
	making    bool // it is not durable yet, and nobody may use it
	ending    bool // it is being deleted, and that is not durable yet
	gen       uint64

	// size is the sectors that hosts hear of, limit those that commands may touch, spec.Sectors those that are
	// accounted for: the same, but for a change that is under way.
	size     uint64
	limit    uint64
	resizing bool
	resizes  []resize // that wait for the one under way

	dirty      []dirtyList // by mdisk of the pool, oldest first
	dirtyPages int         // on them
	inRing     bool
	credit     int // pages that it may still send in its turns
	dirtyBytes [block.NumOrigins]int64
	rows       [block.NumOrigins]*nvlog.Row

	dirtySeconds float64 // integral of the dirty bytes over time
	metered      int64   // up to when

	locks    []*op // holders of exclusive ranges
	lockWait ticket.Queue
	waiting  ticket.Queue // for room, where volumes take turns
	inFair   bool
	deficit  uint64 // sectors that its turn still lets in
	short    [block.NumOrigins]*nvlog.Row

	changes *changeLog // nil until a host asks

	ops    int // requests under way
	notify []func(block.Event)
}

var _ block.Device = (*Volume)(nil)

// ID returns the volume's number, which is never used again.
func (v *Volume) ID() uint32 { return v.id }

// Name returns the volume's name.
func (v *Volume) Name() string { return v.spec.Name }

// Pool returns the volume's pool.
func (v *Volume) Pool() *Pool { return v.pool }

// Info describes the volume.
func (v *Volume) Info() block.Info {
	exp := uint8(3)
	if v.spec.BlockSize == 4096 {
		exp = 0
	}
	return block.Info{
		Name: v.spec.Name, ID: v.id, Pool: v.pool.name, Sectors: v.size, BlockSize: v.spec.BlockSize,
		PhysicalExp: exp, Thin: v.spec.Thin, NAA: v.a.naa(v.id), Serial: v.a.serial(v.id),
		GranuleSectors: pageSectors, AtomicSectors: pieceSectors, CopyDomain: v.pool.name,
	}
}

// Notify registers fn for the volume's events.
func (v *Volume) Notify(fn func(block.Event)) { v.notify = append(v.notify, fn) }

func (v *Volume) tell(k block.EventKind) {
	for _, fn := range v.notify {
		fn(block.Event{Kind: k})
	}
}

// status answers GET LBA STATUS: as many extents as fit.
func (v *Volume) status(r *block.Request) {
	r.Extents = r.Extents[:0]
	end := v.limit
	if r.Range.Count != 0 && r.Range.Within(end) {
		end = r.Range.End()
	}
	v.m.Walk(block.Range{Start: r.Range.Start, Count: end - r.Range.Start}, func(x extent.Run) bool {
		if n := len(r.Extents); n > 0 && r.Extents[n-1].State == x.State {
			r.Extents[n-1].Count += x.Count
			return true
		}
		if len(r.Extents) == cap(r.Extents) {
			return false
		}
		r.Extents = append(r.Extents, block.Extent{Range: x.Range, State: x.State})
		return true
	})
	v.a.finish(r, block.OK)
}

// row returns the counters of an origin; peek returns nil if it never occurred.
func (v *Volume) row(o block.Origin) *nvlog.Row {
	if v.rows[o] == nil {
		v.rows[o] = v.a.rows.Get(nvlog.HeadOf(rowCache, uint8(o), v.pool.id, v.id))
	}
	return v.rows[o]
}

func (v *Volume) peek(o block.Origin) *nvlog.Row {
	if v.rows[o] == nil {
		v.rows[o] = v.a.rows.Find(nvlog.HeadOf(rowCache, uint8(o), v.pool.id, v.id))
	}
	return v.rows[o]
}

// countAdmitted books n bytes that the cache has taken from o.
func (v *Volume) countAdmitted(o *op, n uint64) {
	cell := cellFast
	if o.through {
		cell = cellFlushThrough
	}
	if o.reserve {
		cell = cellWriteThrough
		if v.pool.mode() != WriteThrough { // for lack of memory
			if v.short[o.origin] == nil {
				v.short[o.origin] = v.a.rows.Get(nvlog.HeadOf(rowShort, uint8(o.origin), v.pool.id, v.id))
			}
			v.short[o.origin].Cells[0] += n
		}
	}
	v.row(o.origin).Cells[cell] += n
	v.dirtyBytes[o.origin] += int64(n)
}

// meter brings the integral of the dirty bytes up to now. It is called before they change.
func (v *Volume) meter() {
	now := v.a.exec.Now()
	if now != v.metered {
		v.dirtySeconds += float64(v.dirtyTotal()) * float64(now-v.metered) / 1e9
		v.metered = now
	}
}

// allSectors times an origin is that origin in all sectors of a page.
const allSectors = 0x11111111

// originAt returns the origin of a sector of a page.
func originAt(origins uint32, i int) block.Origin { return block.Origin(origins >> (4 * i) & 15) }

// leaveDirty books the sectors of a page that stop being dirty.
func (v *Volume) leaveDirty(mask uint8, origins uint32, cell int) {
	if bits.RotateLeft32(origins, 4) == origins {
		n := uint64(bits.OnesCount8(mask)) * block.SectorSize
		v.dirtyBytes[origins&15] -= int64(n)
		v.row(block.Origin(origins & 15)).Cells[cell] += n
		mask = 0
	}
	for ; mask != 0; mask &= mask - 1 {
		o := originAt(origins, bits.TrailingZeros8(mask))
		v.dirtyBytes[o] -= block.SectorSize
		v.row(o).Cells[cell] += block.SectorSize
	}
	if v.forgotten {
		v.left()
	}
}

// dirtyTotal returns the volume's dirty bytes.
func (v *Volume) dirtyTotal() int64 {
	n := int64(0)
	for _, b := range v.dirtyBytes {
		n += b
	}
	return n
}

// windows returns the number of windows that the volume spans.
func (v *Volume) windows() int64 { return int64((v.spec.Sectors + windowSectors - 1) >> windowShift) }

// endOfMap widens a range that reaches the end of the volume to the end of what
// the map's root spans, so that a whole volume is one slot. What a thin volume anchors is
// reserved, so it ends where it ends.
func (v *Volume) endOfMap(end uint64, s block.State) uint64 {
	if end == v.spec.Sectors && !(v.spec.Thin && s == block.Anchored) {
		return v.m.Span()
	}
	return end
}
