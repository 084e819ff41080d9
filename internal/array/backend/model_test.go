package backend

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// The random test is a user of a back end that writes pages, reads, syncs and scrubs, over media that
// fail, lose what a failed sync was to write, fall silent, and go away. Its model is the newest
// version that each sector should have. The laws:
//
//   - what the back end says is durable is on the medium, as it is or newer;
//   - each operation ends once: heard of, abandoned, or in its scrub;
//   - limits hold; counters count what the media have moved;
//   - in the end everything is durable, and nothing is left.

const modelPages = 12 // of an mdisk

// modelWrite is one version of some sectors of a page, on its way to an mdisk.
type modelWrite struct {
	d       *modelDisk
	page    uint64
	mask    uint8
	version uint64
	data    []byte
	sums    [layout.PageSectors]uint32
	left    int
	failed  error
}

// modelDisk is an mdisk with what its user and the model know of it.
type modelDisk struct {
	*Mdisk
	m       *medium
	busy    map[uint64]bool // pages with a write on its way
	written []*modelWrite   // not synced
	redo    []*modelWrite   // that a redo writes
	newest  [modelPages * layout.PageSectors]uint64
	parked  []*modelWrite
	moved   map[[3]int]uint64 // bytes by direction, origin, reason, as the medium saw them
	limits  Limits
	lastAt  int64
}

type modelRead struct {
	d     *modelDisk
	buf   []byte
	first uint64
	ended bool
	gone  bool // it was abandoned
}

type model struct {
	*rig
	rnd     *rand.Rand
	seed    uint64
	round   int
	disks   []*modelDisk
	version uint64
	cycle   []*modelWrite
	reads   []*modelRead
	faulty  bool
	scrubs  int // steps that have not ended
	checks  int // runs that have not
	// What has happened at all.
	abandoned, redone, rewrites, failedWrites, gaveUp int
}

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("-seed %d, round %d, at %d ms: "+format, append([]any{m.seed, m.round, m.clock.Now() / 1e6}, args...)...)
}

func newModel(t *testing.T, seed uint64, round int) *model {
	m := &model{rig: newRig(t), rnd: rand.New(rand.NewPCG(seed, uint64(round))), seed: seed, round: round, faulty: true}
	h := &m.b.hooks
	h.Read, h.Abandoned, h.Unwanted = m.readEnded, m.readAbandoned, func(*Op) bool { return m.rnd.IntN(3) == 0 }
	h.Written, h.Lost, h.Synced, h.Rewrite, h.Rewritten = m.wrote, m.lost, m.synced, m.toRewrite, m.rewritten
	h.Turned, h.Overdue = func(*Mdisk) {}, m.overdue
	for i, l := range []Limits{{}, {Bandwidth: 4 << 20, IOPS: 300}, {}} {
		med := newMedium(m.clock, modelPages*layout.PageBytes)
		d := &modelDisk{m: med, busy: map[uint64]bool{}, moved: map[[3]int]uint64{}, limits: l, lastAt: -second}
		d.Mdisk = m.b.NewMdisk(Config{ID: uint32(i), Pool: uint16(i / 2), Number: i % 2, Name: string(rune('a' + i)), Limits: l}, med)
		m.b.Attach(d.Mdisk)
		m.disks = append(m.disks, d)
		med.delay = func() int64 { return m.rnd.Int64N(4) * m.rnd.Int64N(20_000_000) }
		med.fail = func(io *block.IO) error { return m.transfer(d, io) }
		med.failSync = func() error {
			if m.faulty && m.rnd.IntN(3) == 0 {
				return errDisk
			}
			return nil
		}
		med.loses = func() bool { return m.rnd.IntN(2) == 0 }
	}
	return m
}

// transfer is the end of an operation at a medium.
func (m *model) transfer(d *modelDisk, io *block.IO) error {
	x := io.Ctx.(*Op)
	data := slices.Concat(io.Vec...)
	if abandoned := x.done == nil; uint64(len(data)) != io.N && !abandoned || io.Write && uint64(len(io.Sums))*block.SectorSize != io.N {
		m.fatalf("%d bytes and %d sums of %d", len(data), len(io.Sums), io.N)
	}
	for i, sum := range io.Sums {
		if io.Write && crc32c.Sector(data[i*block.SectorSize:]) != sum {
			m.fatalf("a write at %d has another checksum than its data", io.Off)
		}
	}
	if m.faulty && m.rnd.IntN(8) == 0 {
		return errDisk
	}
	for o, n := range x.Bytes {
		d.moved[[3]int{x.dir(), o, int(x.Reason)}] += uint64(n)
	}
	return nil
}

// checkLimits looks at when operations came to their media.
func (m *model) checkLimits() {
	for _, d := range m.disks {
		for _, b := range d.m.batches {
			for _, x := range b {
				if d.limits == (Limits{}) {
					continue
				}
				cost := max(int64(x.n*second/d.limits.Bandwidth), int64(second/d.limits.IOPS))
				if x.at-d.lastAt < cost {
					m.fatalf("mdisk %s: %d bytes began %d ns after the one before, want %d", d.Name(), x.n, x.at-d.lastAt, cost)
				}
				d.lastAt = x.at
			}
		}
		d.m.batches = d.m.batches[:0]
	}
}

// write begins a write of some sectors of a page that has none under way.
func (m *model) write(d *modelDisk) {
	page := m.rnd.Uint64N(modelPages)
	if d.busy[page] || d.Redoing() || d.Offline() {
		return
	}
	m.version++
	w := &modelWrite{d: d, page: page, mask: uint8(1 + m.rnd.IntN(255)), version: m.version}
	w.data, w.sums = stamped(w.version)
	d.busy[page] = true
	for s := range uint64(layout.PageSectors) {
		if w.mask>>s&1 != 0 {
			d.newest[page*layout.PageSectors+s] = w.version
		}
	}
	m.send(w)
}

func (m *model) send(w *modelWrite) {
	w.left, w.failed = 1, nil
	for left := uint(w.mask); left != 0; {
		s := uint64(bits.TrailingZeros(left))
		run := uint64(bits.TrailingZeros(^(left >> s)))
		left &^= (1<<run - 1) << s
		x := w.d.Op(true, w.page*layout.PageBytes+s*block.SectorSize, run*block.SectorSize, block.ReasonDestage)
		x.IO.Vec = append(x.IO.Vec, w.data[s*block.SectorSize:(s+run)*block.SectorSize])
		x.IO.Sums = append(x.IO.Sums, w.sums[s:s+run]...)
		x.Bytes[block.OriginHost], x.Ctx = uint32(x.IO.N), w
		w.left++
		w.d.Write(x)
	}
	m.sent(w)
}

func (m *model) wrote(x *Op) {
	w := x.Ctx.(*modelWrite)
	if x.IO.Err != nil {
		w.failed = x.IO.Err
	}
	m.sent(w)
}

// sent books one operation of a write. One that failed is sent again as a whole.
func (m *model) sent(w *modelWrite) {
	if w.left--; w.left > 0 {
		return
	}
	if w.failed != nil {
		m.failedWrites++
		wait := w.d.Failed(w.failed)
		if w.d.Offline() {
			w.d.parked = append(w.d.parked, w)
			return
		}
		m.clock.Call(m.clock.Now()+wait, func() {
			m.send(w)
			m.step()
		})
		return
	}
	w.d.Works()
	delete(w.d.busy, w.page)
	w.d.written = append(w.d.written, w)
}

// sync begins a sync of what is written to mdisks that do not redo.
func (m *model) sync() {
	if m.b.Syncing() {
		return
	}
	for _, d := range m.disks {
		if !d.Redoing() {
			m.cycle = append(m.cycle, d.written...)
			d.written = nil
		}
	}
	m.b.Sync()
}

// lost takes the writes of an mdisk out of the sync that has failed.
func (m *model) lost(x *Mdisk) {
	d := m.diskOf(x)
	if len(d.redo) > 0 || !d.Redoing() {
		m.fatalf("mdisk %s redoes: %v, and %d writes of it are in a redo", d.Name(), d.Redoing(), len(d.redo))
	}
	m.cycle = slices.DeleteFunc(m.cycle, func(w *modelWrite) bool {
		if w.d == d {
			d.redo = append(d.redo, w)
		}
		return w.d == d
	})
}

func (m *model) synced() {
	for _, w := range m.cycle {
		m.durable(w)
	}
	m.cycle = nil
}

func (m *model) diskOf(x *Mdisk) *modelDisk {
	return m.disks[slices.IndexFunc(m.disks, func(d *modelDisk) bool { return d.Mdisk == x })]
}

func (m *model) toRewrite(x *Mdisk) (todo []Rewrite, ready bool) {
	d := m.diskOf(x)
	if len(d.busy) > 0 {
		return nil, false
	}
	d.redo, d.written = append(d.redo, d.written...), nil
	slices.SortFunc(d.redo, func(v, w *modelWrite) int { return cmp.Compare(w.version, v.version) })
	covered := map[uint64]uint8{}
	for _, w := range d.redo {
		if mask := w.mask &^ covered[w.page]; mask != 0 {
			todo = append(todo, Rewrite{Off: w.page * layout.PageBytes, Mask: mask, Data: w.data, Sums: w.sums})
		}
		covered[w.page] |= w.mask
	}
	m.rewrites++
	return todo, true
}

func (m *model) rewritten(x *Mdisk) {
	d := m.diskOf(x)
	for _, w := range d.redo {
		m.durable(w)
	}
	d.redo = nil
	d.Works()
	m.redone++
}

// durable checks that a loss of power leaves what was written, or what is newer.
func (m *model) durable(w *modelWrite) {
	for s := range uint64(layout.PageSectors) {
		at := w.page*layout.PageBytes + s*block.SectorSize
		if got, ok := versionOf(w.d.m.durable[at:]); w.mask>>s&1 != 0 && (!ok || got < w.version) {
			m.fatalf("mdisk %s, page %d, sector %d: version %d is said to be durable, %d is (%v)", w.d.Name(), w.page, s, w.version, got, ok)
		}
	}
}

// startRead begins a read of some sectors.
func (m *model) startRead(d *modelDisk) {
	if d.Offline() {
		return
	}
	first := m.rnd.Uint64N(modelPages * layout.PageSectors)
	n := 1 + m.rnd.Uint64N(min(8, modelPages*layout.PageSectors-first))
	q := &modelRead{d: d, buf: make([]byte, n*block.SectorSize), first: first}
	x := d.Op(false, first*block.SectorSize, n*block.SectorSize, block.ReasonStage)
	half := m.rnd.Uint64N(n+1) * block.SectorSize
	for _, b := range [][]byte{q.buf[:half], q.buf[half:]} {
		if len(b) > 0 {
			x.IO.Vec = append(x.IO.Vec, b)
		}
	}
	x.Bytes[block.OriginCAW], x.Ctx, x.Phys, x.Tag = uint32(x.IO.N), q, first, first
	m.reads = append(m.reads, q)
	d.Read(x)
}

func (m *model) readEnded(x *Op) {
	q := x.Ctx.(*modelRead)
	if q.ended || x.Phys != q.first || x.Tag != q.first || x.Mdisk() != q.d.Mdisk {
		m.fatalf("a read at %d ends as %d, or twice: %v", q.first, x.Phys, q.ended)
	}
	q.ended = true
	for s := 0; x.IO.Err == nil && s < len(q.buf); s += block.SectorSize {
		if v, ok := versionOf(q.buf[s:]); !ok || v > q.d.newest[q.first+uint64(s/block.SectorSize)] {
			m.fatalf("sector %d reads version %d, %v", q.first, v, ok)
		}
	}
}

func (m *model) readAbandoned(x *Op) {
	q := x.Ctx.(*modelRead)
	if q.ended || q.d.Silent(m.clock.Now()) == 0 && !q.d.silent(m.clock.Now(), AbortPatience) {
		m.fatalf("a read of a medium that is not silent is given up; it had ended: %v", q.ended)
	}
	q.ended, q.gone = true, true
	for i := range q.buf {
		q.buf[i] = 0xaa
	}
	m.abandoned++
}

func (m *model) overdue(x *Mdisk, s block.Status) {
	now := m.clock.Now()
	since, err := x.Failing()
	ok := false
	switch s {
	case block.MediumWrite:
		ok = x.Silent(now) >= Patience || since != 0 && now-since >= Patience
	case block.Offline:
		ok = x.Offline()
	}
	if !ok {
		m.fatalf("mdisk %s is overdue with %v: silent for %d, failing since %d with %v, offline %v", x.Name(), s, x.Silent(now), since, err, x.Offline())
	}
	m.gaveUp++
}
