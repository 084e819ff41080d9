package tier

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// array is a device below: sectors in memory, requests that take a random time and
// change their sectors at a random moment of it.
type array struct {
	exec    *block.Virtual
	rand    *rand.Rand
	sectors uint64
	mem     *arena
	data    [][]byte // nil: zeros
	// undo has, by sector, what it held before each write since the last flush, oldest first: a
	// loss of power leaves any of them. nil: the array's cache is not volatile.
	undo map[uint64][][]byte
	// ended are sectors of writes of host 0 that have ended, and that a loss of power may bring
	// back.
	ended   map[uint64]bool
	delay   int64
	cuts    int // of its power
	naa     byte
	failing int // percent of the requests that fail, half-way
	// gate, if it is there, keeps requests of an op until it is opened.
	gate    map[block.Op]bool
	kept    []*block.Request
	log     []block.Request
	unread  bool // nobody reads the log
	notify  []func(block.Event)
	paths   []*path
	changed []block.Range
	gen     uint64
	forgot  bool // what has changed
	listens bool // knows what has changed
	// While the LUN is shared, changes has what any host changed behind generation oldest.
	shared  bool
	dark    bool // it lost power while no host was there
	changes []change
	oldest  uint64
	deaf    int  // so many questions get no answer
	lies    bool // a flush does nothing
	one     [1]block.Range
	writes  []*underway // that have not been carried out, in the order in which they came
}

// underway is a write that is on its way. least is the smallest size that the LUN has had meanwhile.
type underway struct {
	r     *block.Request
	least uint64
}

// nobody is the host of what the array changes by itself.
const nobody = -1

// change is what a host has changed.
type change struct {
	gen   uint64
	host  int
	where block.Range
}

func newArray(v *block.Virtual, r *rand.Rand, sectors uint64) *array {
	return &array{exec: v, rand: r, sectors: sectors, mem: &arena{}, data: make([][]byte, sectors), ended: map[uint64]bool{}, delay: 3_000_000, gate: map[block.Op]bool{}}
}

// path is one host's way to an array. A host that died or was fenced has none.
type path struct {
	*array
	host      int
	dead      bool
	fenced    bool
	attention bool // the array has lost power, and the next command that ends tells of it
	news      bool // that was told when nobody listened: the first who does hears of it
	notify    []func(block.Event)
	cancelled []*block.Request
}

// hear tells of a loss of power that this host has not heard of.
func (p *path) hear() {
	if !p.attention || p.dead {
		return
	}
	p.attention, p.news = false, len(p.notify) == 0
	for _, fn := range p.notify {
		fn(block.Event{Kind: block.EventPowerLoss})
	}
}

func (p *path) Info() block.Info {
	return block.Info{Name: "lun", Sectors: p.sectors, BlockSize: 512, NAA: [16]byte{0x60, p.naa}}
}
func (p *path) Notify(fn func(block.Event)) {
	p.notify = append(p.notify, fn)
	p.array.notify = append(p.array.notify, fn)
	if p.news {
		p.news = false
		fn(block.Event{Kind: block.EventPowerLoss})
	}
}

// Cancel withdraws a request that has not been carried out.
func (p *path) Cancel(r *block.Request) {
	if !slices.Contains(p.cancelled, r) {
		p.cancelled = append(p.cancelled, r)
	}
}

// withdrawn tells whether a request was cancelled.
func (p *path) withdrawn(r *block.Request) bool {
	i := slices.Index(p.cancelled, r)
	if i < 0 {
		return false
	}
	p.cancelled = slices.Delete(p.cancelled, i, i+1)
	return true
}

func (p *path) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		if p.dead {
			continue
		}
		if p.gate[r.Op] {
			p.kept = append(p.kept, r)
			continue
		}
		p.serve(r)
	}
}

func (p *path) open(op block.Op) {
	delete(p.gate, op)
	for _, r := range p.kept {
		p.serve(r)
	}
	p.kept = nil
}

func (a *array) sector(s uint64) []byte {
	if s < uint64(len(a.data)) && a.data[s] != nil {
		return a.data[s]
	}
	return zeroSector
}

var zeroSector = make([]byte, block.SectorSize)

func (p *path) serve(r *block.Request) {
	a := p.array
	now := a.exec.Now()
	moment := now + a.rand.Int64N(a.delay+1)
	end := moment + a.rand.Int64N(a.delay+1)
	fail := a.rand.IntN(100) < a.failing
	cuts := a.cuts
	var write *underway
	if r.Op == block.OpWrite {
		write = &underway{r, a.sectors}
		a.writes = append(a.writes, write)
	}
	a.exec.Call(moment, func() {
		if write != nil {
			a.writes = slices.DeleteFunc(a.writes, func(u *underway) bool { return u == write })
			if r.Range.End() > write.least && r.Range.End() <= a.sectors && a.rand.IntN(2) == 0 {
				r.Status = block.OutOfRange // it was refused while the LUN was smaller
				return
			}
		}
		if p.fenced {
			r.Status = block.Offline
			return
		}
		if len(p.cancelled) > 0 && p.withdrawn(r) {
			r.Status = block.Cancelled
			return
		}
		for _, g := range a.where(r) {
			if g.End() > a.sectors {
				r.Status = block.OutOfRange
				return
			}
		}
		if p.dead && a.rand.IntN(2) == 0 {
			return // it got lost with the host
		}
		r.Status = block.OK
		if !p.dead && !a.unread {
			a.log = append(a.log, block.Request{Op: r.Op, Range: r.Range, Flags: r.Flags})
		}
		a.apply(r, fail, p.dead)
		if a.shared {
			a.note(r, p.host)
		}
	})
	a.exec.Call(end, func() {
		if p.dead {
			return
		}
		if len(p.cancelled) > 0 {
			p.withdrawn(r) // it was too late
		}
		if a.cuts != cuts && r.Status == block.OK {
			r.Status = block.Offline // it went down meanwhile
		}
		if a.undo != nil && p.host == 0 && r.Status == block.OK {
			a.end(r)
		}
		p.hear()
		r.Done(r)
	})
}

// where is what a request touches.
func (a *array) where(r *block.Request) []block.Range {
	if len(r.Ranges) > 0 {
		return r.Ranges
	}
	a.one[0] = r.Range
	return a.one[:]
}

// end notes what of a write that has ended is volatile.
func (a *array) end(r *block.Request) {
	switch r.Op {
	case block.OpWrite, block.OpWriteSame, block.OpUnmap, block.OpPlace, block.OpCompareWrite:
		for _, g := range a.where(r) {
			for s := g.Start; s < g.End(); s++ {
				if a.undo[s] != nil {
					a.ended[s] = true
				}
			}
		}
	}
}

// note keeps what a host has changed.
func (a *array) note(r *block.Request, host int) {
	switch r.Op {
	case block.OpWrite, block.OpWriteSame, block.OpUnmap, block.OpPlace, block.OpCompareWrite:
		for _, g := range a.where(r) {
			if g.Count > 0 {
				a.gen++
				a.changes = append(a.changes, change{a.gen, host, g})
			}
		}
	}
}

type heldRef [][]byte

func (h heldRef) Sectors() uint64 { return uint64(len(h)) }
func (h heldRef) Release()        {}

func (a *array) apply(r *block.Request, fail, dead bool) {
	if fail && r.Op != block.OpFlush {
		r.Status = block.MediumWrite
		if r.Op == block.OpRead || r.Op == block.OpHold || r.Op == block.OpStatus {
			r.Status = block.MediumRead
			return
		}
	}
	each := func(g block.Range, to func(i uint64) []byte) {
		for i := range g.Count {
			if fail && a.rand.IntN(2) == 0 {
				continue
			}
			a.set(g.Start+i, a.mem.clone(to(i)), r.Flags&block.FUA != 0)
		}
	}
	switch r.Op {
	case block.OpFlush:
		if a.lies {
			return
		}
		if !fail {
			clear(a.undo)
			clear(a.ended)
		}
		if fail {
			r.Status = block.Hardware
		}
	case block.OpRead:
		if dead {
			return
		}
		out := flat(r.Data)
		for i := range r.Range.Count {
			copy(out(i), a.sector(r.Range.Start+i))
		}
	case block.OpWrite:
		in := flat(r.Data)
		each(r.Range, in)
	case block.OpWriteSame:
		each(r.Range, func(uint64) []byte {
			if len(r.Data) == 0 {
				return zeroSector
			}
			return r.Data[0]
		})
	case block.OpUnmap:
		for _, g := range r.Ranges {
			each(g, func(uint64) []byte { return zeroSector })
		}
	case block.OpHold:
		var h heldRef
		for _, g := range r.Ranges {
			for i := range g.Count {
				h = append(h, a.sector(g.Start+i)) // which never changes: a write puts another in its place
			}
		}
		r.Ref = h
	case block.OpPlace:
		h := r.Ref.(heldRef)
		each(r.Range, func(i uint64) []byte { return h[r.RefOffset+i] })
	case block.OpCompareWrite:
		in, cmp := flat(r.Data), flat(r.Compare)
		for i := range r.Range.Count {
			if !slices.Equal(cmp(i), a.sector(r.Range.Start+i)) {
				r.Status = block.Miscompare
				return
			}
		}
		each(r.Range, in)
	case block.OpStatus:
		r.Extents = append(r.Extents[:0], block.Extent{Range: block.Range{Start: r.Range.Start, Count: a.sectors - r.Range.Start}})
	}
}

// set is one sector's write: durable at once with fua, else with the next flush.
func (a *array) set(s uint64, b []byte, fua bool) {
	if a.undo != nil {
		if fua {
			delete(a.undo, s)
			delete(a.ended, s)
		} else {
			a.undo[s] = append(a.undo[s], a.sector(s))
		}
	}
	if n := uint64(len(a.data)); s >= n {
		a.data = append(a.data, make([][]byte, s+1-n)...)
	}
	a.data[s] = b
}

// powerCut leaves of each sector any version since its last flush. It tells how many sectors are
// older now than a write of host 0 that has ended.
func (a *array) powerCut() (lost int) {
	for _, s := range slices.Sorted(maps.Keys(a.undo)) {
		if v := a.undo[s]; a.rand.IntN(2) == 0 {
			is := a.sector(s)
			a.data[s] = v[a.rand.IntN(len(v))]
			if a.ended[s] && !slices.Equal(is, a.data[s]) {
				lost++
			}
		}
	}
	clear(a.undo)
	clear(a.ended)
	a.cuts++
	a.gen++
	a.forgot, a.changes, a.oldest = true, nil, a.gen
	a.dark = true
	for _, p := range a.paths {
		p.attention = !p.dead
		a.dark = a.dark && p.dead
	}
	return lost
}

// resize gives the LUN another size; what lies behind the end is gone.
func (a *array) resize(to uint64) {
	for s := to; s < a.sectors; s++ {
		delete(a.undo, s)
		delete(a.ended, s)
	}
	for _, u := range a.writes {
		u.least = min(u.least, to)
	}
	if a.listens && to < a.sectors {
		a.gen++
		a.changes = append(a.changes, change{a.gen, nobody, block.Range{Start: to, Count: a.sectors - to}})
	}
	a.data = a.data[:min(a.sectors, to)]
	a.data = append(a.data, make([][]byte, to-uint64(len(a.data)))...)
	a.sectors = to
}

func (p *path) TracksChanges() bool { return p.listens }

func (p *path) ChangedSince(since uint64, done func(uint64, []block.Range, bool)) {
	gen, changed, complete := p.gen, p.changed, p.listens && !p.forgot && since >= p.oldest
	p.changed, p.forgot = nil, false
	for _, c := range p.changes {
		if c.gen > since && c.host != p.host {
			changed = append(changed, c.where)
		}
	}
	if p.deaf > 0 {
		p.deaf--
		gen, changed, complete = 0, nil, false
	}
	p.exec.Post(func() {
		if !p.dead {
			p.hear()
			done(gen, changed, complete)
		}
	})
}

// flat returns the i-th sector of a vector whose buffers are whole sectors.
func flat(v [][]byte) func(uint64) []byte {
	return func(i uint64) []byte {
		off := i << block.SectorShift
		for _, b := range v {
			if off < uint64(len(b)) {
				return b[off : off+block.SectorSize]
			}
			off -= uint64(len(b))
		}
		panic("short vector")
	}
}

// pattern is n sectors that say value.
func pattern(value uint64, n uint64) []byte {
	return fillPattern(make([]byte, n<<block.SectorShift), value)
}

func fillPattern(b []byte, value uint64) []byte {
	if len(b) == 0 {
		return b
	}
	binary.LittleEndian.PutUint64(b, value)
	for n := 8; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
	return b
}

// valueOf reads a sector back; ok is false if it was torn.
func valueOf(b []byte) (v uint64, ok bool) {
	return binary.LittleEndian.Uint64(b), bytes.Equal(b[8:block.SectorSize], b[:block.SectorSize-8])
}
