package tier

import (
	"encoding/binary"
	"errors"
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
	data    map[uint64][]byte
	// undo has, by sector, what it held before each write since the last flush, oldest first: a
	// loss of power leaves any of them. nil: the array's cache is not volatile.
	undo    map[uint64][][]byte
	delay   int64
	cuts    int // of its power
	naa     byte
	failing int // percent of the requests that fail, half-way
	// gate, if it is there, keeps requests of an op until it is opened.
	gate    map[block.Op]bool
	kept    []*block.Request
	log     []block.Request
	notify  []func(block.Event)
	changed []block.Range
	gen     uint64
	forgot  bool // what has changed
	listens bool // knows what has changed
}

func newArray(v *block.Virtual, r *rand.Rand, sectors uint64) *array {
	return &array{exec: v, rand: r, sectors: sectors, data: map[uint64][]byte{}, delay: 3_000_000, gate: map[block.Op]bool{}}
}

// path is one host's way to an array. A host that died or was fenced has none.
type path struct {
	*array
	dead   bool
	fenced bool
}

func (p *path) Info() block.Info {
	return block.Info{Name: "lun", Sectors: p.sectors, BlockSize: 512, NAA: [16]byte{0x60, p.naa}}
}
func (p *path) Notify(fn func(block.Event)) { p.notify = append(p.notify, fn) }
func (p *path) Cancel(*block.Request)       {}

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
	if b := a.data[s]; b != nil {
		return b
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
	a.exec.At(moment, func() {
		if p.fenced {
			r.Status = block.Offline
			return
		}
		if p.dead && a.rand.IntN(2) == 0 {
			return // it got lost with the host
		}
		r.Status = block.OK
		if !p.dead {
			a.log = append(a.log, block.Request{Op: r.Op, Range: r.Range, Flags: r.Flags})
		}
		a.apply(r, fail, p.dead)
	})
	a.exec.At(end, func() {
		if p.dead {
			return
		}
		if a.cuts != cuts && r.Status == block.OK {
			r.Status = block.Offline // it went down meanwhile
		}
		r.Done(r)
	})
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
			a.set(g.Start+i, slices.Clone(to(i)), r.Flags&block.FUA != 0)
		}
	}
	switch r.Op {
	case block.OpFlush:
		if !fail {
			clear(a.undo)
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
				h = append(h, slices.Clone(a.sector(g.Start+i)))
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
		} else {
			a.undo[s] = append(a.undo[s], a.sector(s))
		}
	}
	a.data[s] = b
}

// powerCut leaves of each sector any version since its last flush.
func (a *array) powerCut() {
	for _, s := range slices.Sorted(maps.Keys(a.undo)) {
		if v := a.undo[s]; a.rand.IntN(2) == 0 {
			a.data[s] = v[a.rand.IntN(len(v))]
		}
	}
	clear(a.undo)
	a.cuts++
	a.gen++
	a.forgot = true
}

func (p *path) TracksChanges() bool { return p.listens }

func (p *path) ChangedSince(_ uint64, done func(uint64, []block.Range, bool)) {
	changed, complete := p.changed, p.listens && !p.forgot
	p.changed, p.forgot = nil, false
	p.exec.Post(func() {
		if !p.dead {
			done(p.gen, changed, complete)
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

// card is a flash device. It survives its host; what was in flight then got there
// in part, by sectors. Without sync a loss of power takes any of what was written
// since the last one.
type card struct {
	exec   *block.Virtual
	rand   *rand.Rand
	b      []byte
	undo   []map[int][][]byte // what sectors held before each write since the last sync, and since the one before; nil: safe
	delay  int64
	broken bool
	tired  bool // takes no writes
	// stalled: nothing ends until it goes on; what has waited too long fails, and is carried out all the same.
	stalled bool
	kept    []func()
	bad     map[int]bool    // sectors, by byte offset, that cannot be read until they are written
	heard   func(*block.IO) // of every transfer
}

func newCard(v *block.Virtual, r *rand.Rand, size int) *card {
	return &card{exec: v, rand: r, b: make([]byte, size), delay: 200_000}
}

// slot is a host's way to a card.
type slot struct {
	*card
	dead   bool
	fenced bool // its host may not write any more
}

// stallTimeout is what an initiator waits for a peer that does not answer.
const stallTimeout = 30_000_000

// goOn ends a stall.
func (c *card) goOn() {
	c.stalled = false
	kept := c.kept
	c.kept = nil
	for _, fn := range kept {
		fn()
	}
}

func (s *slot) Size() uint64 { return uint64(len(s.b)) }

var errBroken = errors.New("broken")

func (s *slot) Submit(ios []*block.IO) {
	for _, io := range ios {
		if s.dead {
			continue
		}
		c := s.card
		if c.heard != nil {
			c.heard(io)
		}
		failed := error(nil)
		if c.stalled {
			s.stall(io)
			continue
		}
		moment := c.exec.Now() + c.rand.Int64N(c.delay+1)
		end := moment + c.rand.Int64N(c.delay+1)
		data := [][]byte{}
		if io.Write {
			for _, b := range io.Vec {
				data = append(data, slices.Clone(b))
			}
		}
		c.exec.At(moment, func() {
			if c.broken || io.Write && (c.tired || s.fenced) {
				failed = errBroken
				return
			}
			off := io.Off
			if io.Write {
				for _, b := range data {
					for i := 0; i < len(b); i += block.SectorSize {
						if !s.dead || c.rand.IntN(2) == 0 {
							c.set(int(off), b[i:i+block.SectorSize])
						}
						off += block.SectorSize
					}
				}
				return
			}
			if !s.dead {
				for _, b := range io.Vec {
					for i := 0; i < len(b); i += block.SectorSize {
						if c.bad[int(off)] {
							failed = errBroken
						}
						off += uint64(copy(b[i:i+block.SectorSize], c.b[off:]))
					}
				}
			}
		})
		c.exec.At(end, func() {
			if s.dead {
				return
			}
			io.Err = failed
			io.Done(io)
		})
	}
}

// stall keeps a transfer until the card goes on. The initiator gives it up before that; then what it
// writes still gets there.
func (s *slot) stall(io *block.IO) {
	c := s.card
	late, copied := false, *io
	if io.Write {
		copied.Vec = nil
		for _, b := range io.Vec {
			copied.Vec = append(copied.Vec, slices.Clone(b))
		}
	}
	c.kept = append(c.kept, func() {
		if s.dead && !io.Write {
			return
		}
		if !late {
			late = true
			s.Submit([]*block.IO{io})
		} else if io.Write {
			copied.Done = func(*block.IO) {}
			s.Submit([]*block.IO{&copied})
		}
	})
	c.exec.At(c.exec.Now()+stallTimeout, func() {
		if late || s.dead {
			return
		}
		late = true
		io.Err = errBroken
		io.Done(io)
	})
}

func (s *slot) Sync(done func(error)) {
	if s.dead {
		return
	}
	c := s.card
	if c.stalled {
		late := false
		c.kept = append(c.kept, func() {
			if !late {
				late = true
				s.Sync(done)
			}
		})
		c.exec.At(c.exec.Now()+stallTimeout, func() {
			if !late && !s.dead {
				late = true
				done(errBroken)
			}
		})
		return
	}
	n := len(c.undo)
	if n > 0 {
		c.undo = append(c.undo, map[int][][]byte{})
	}
	c.exec.At(c.exec.Now()+c.rand.Int64N(c.delay+1), func() {
		if s.dead {
			return
		}
		if n > 0 {
			c.undo = c.undo[len(c.undo)-1:]
		}
		var err error
		if c.broken || c.tired || s.fenced {
			err = errBroken
		}
		done(err)
	})
}

func (c *card) set(off int, b []byte) {
	if n := len(c.undo); n > 0 {
		c.undo[n-1][off] = append(c.undo[n-1][off], slices.Clone(c.b[off:off+block.SectorSize]))
	}
	delete(c.bad, off)
	copy(c.b[off:], b)
}

// powerCut leaves of what is not synced any subset, by sectors.
func (c *card) powerCut() {
	for i := len(c.undo) - 1; i >= 0; i-- {
		for _, off := range slices.Sorted(maps.Keys(c.undo[i])) {
			if v := c.undo[i][off]; c.rand.IntN(2) == 0 {
				copy(c.b[off:], v[c.rand.IntN(len(v))])
			}
		}
	}
	if c.undo != nil {
		c.undo = []map[int][][]byte{{}}
	}
}

// pattern is n sectors that say value.
func pattern(value uint64, n uint64) []byte {
	b := make([]byte, 0, n<<block.SectorShift)
	for range n * block.SectorSize / 8 {
		b = binary.LittleEndian.AppendUint64(b, value)
	}
	return b
}

// valueOf reads a sector back; ok is false if it was torn.
func valueOf(b []byte) (v uint64, ok bool) {
	v = binary.LittleEndian.Uint64(b)
	for i := 8; i < block.SectorSize; i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != v {
			return v, false
		}
	}
	return v, true
}
