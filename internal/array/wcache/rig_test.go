package wcache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// region is NVRAM whose flushes take a while, and may fail.
type region struct {
	block.LocalMemory
	clock *block.Virtual
	fails int
}

func (r *region) Boot() uint64    { return 1 }
func (r *region) Distrust()       {}
func (r *region) FlushNow() error { return nil }

func (r *region) Flush(done func(error)) {
	r.clock.At(r.clock.Now()+1000, func() {
		if r.fails > 0 {
			r.fails--
			done(errors.New("input/output error"))
			return
		}
		done(nil)
	})
}

type testStore struct {
	block.Store
	region *region
}

func (s testStore) Region(_ string, l block.RegionLayout) (block.Region, bool, error) {
	s.region.LocalMemory = block.NewLocalMemory(make([]byte, l.Size()), l)
	return s.region, true, nil
}

// What the rig has, small enough that keys meet: two partitions of two mdisks, and owners.
const (
	rigMdisks = 2
	rigGrains = 2 // of each mdisk's first extent that are written to
	rigLimit  = 256
)

// cell is a sector of a pool: the number of the write that it has, 0 for none that counts, and
// whether the back end has it.
type cell struct {
	value uint32
	owner int
}

// flight is a batch on its way, with the values that it takes along.
type flight struct {
	Batch
	values  [][layout.PageSectors]uint32
	refused bool // its mdisk has no room for it
	parked  bool // its mdisk is offline
}

// rig is a cache, the back end below it, and a model of both.
type rig struct {
	t       testing.TB
	rnd     *rand.Rand
	clock   *block.Virtual
	region  *region
	log     *nvlog.Log
	fl      *nvlog.Flusher
	c       *Cache
	parts   []*Partition
	owners  []*Owner
	inPart  []int // of owners
	value   uint32
	model   map[layout.PageKey]*[layout.PageSectors]cell   // what a read has to give
	back    map[layout.PageKey]*[layout.PageSectors]uint32 // what the mdisks have
	flights []*flight
	waiting map[uint32]bool // pages that a write waits for
	syncing bool
	redos   map[[2]int][]uint32                         // pages to be written again, by partition and mdisk
	arrived map[layout.PageKey]*[layout.PageSectors]int // when the mdisk got a sector last, by arrivals
	arrival int
	began   int            // arrivals before the sync under way began
	synced  map[[2]int]int // arrivals that are durable, by partition and mdisk: what came later the mdisk may lose
	last    []State
	seen    map[[2]State]bool // pairs of states that a page was seen in, one after the other
}

func newRig(t testing.TB, rnd *rand.Rand, payload bool, pol Policy) *rig {
	r := &rig{t: t, rnd: rnd, clock: &block.Virtual{}, model: map[layout.PageKey]*[layout.PageSectors]cell{},
		back: map[layout.PageKey]*[layout.PageSectors]uint32{}, waiting: map[uint32]bool{}, redos: map[[2]int][]uint32{}, arrived: map[layout.PageKey]*[layout.PageSectors]int{}, synced: map[[2]int]int{}, seen: map[[2]State]bool{}}
	r.region = &region{clock: r.clock}
	nv, _, err := nvlog.Open(testStore{region: r.region}, "nvram", nvlog.Layout{Rows: 64, Pages: rigLimit + 66, LogBytes: nvlog.MinLogBytes, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	r.log = nvlog.NewLog(nv)
	r.fl = nvlog.NewFlusher(nv, r.log, r.clock, 5000, nvlog.Hooks{Begun: func() { r.c.FlushBegun() }, Ended: func(o nvlog.Outcome) { r.c.FlushEnded(o) }, Heard: func() {}})
	if pol.DestageDepth == 0 {
		pol.DestageDepth = 2
	}
	r.c = New(Config{NV: nv, Log: r.log, Flusher: r.fl, Rows: nvlog.OpenRows(nv, func(h nvlog.RowHead) uint64 { return uint64(h.ID()) }),
		Exec: r.clock, Limit: rigLimit, Policy: pol, DestageStart: 30,
		Hooks: Hooks{Stepped: func() {}, Left: func(uint32) {}, Relieved: func(uint16) {}, Freed: func() { t.Error("nobody awaits room") }, Settled: func(page uint32) {
			if !r.waiting[page] {
				t.Errorf("page %d has settled, and nobody waits for it", page)
			}
			delete(r.waiting, page)
		}}})
	r.c.StartEmpty()
	for id := range uint16(2) {
		p := r.c.AddPartition(id, alloc.New([]int{1, 1}, alloc.Events{}), rigMdisks)
		p.Open()
		r.parts = append(r.parts, p)
		for n := range uint32(2) {
			r.owners = append(r.owners, r.c.AddOwner(uint32(id)*2+n+1, p))
			r.inPart = append(r.inPart, int(id))
		}
	}
	r.c.SetCaps([]int{100, 66})
	r.last = make([]State, r.c.Pages())
	return r
}

// key returns the key of page n of an mdisk's extent.
func key(part, mdisk, n int) layout.PageKey {
	return layout.KeyOf(uint16(part), uint64(mdisk)*layout.ExtentSectors+uint64(n)*layout.PageSectors)
}

// pattern fills a sector with the number of its write.
func pattern(v uint32) []byte {
	b := make([]byte, block.SectorSize)
	copy(b, fmt.Sprintf("write %d", v))
	return b
}

// write writes sectors [first, first+n) of a page; it reports whether there was a page for them.
func (r *rig) write(owner int, k layout.PageKey, first, n int, origin block.Origin, way Mode) (uint32, bool) {
	r.t.Helper()
	c := r.c
	room, ok := r.log.Claim(0)
	if !ok { // as if a checkpoint had been made
		_, tail := r.log.BeginCheckpoint()
		r.log.Trim(tail)
		room, ok = r.log.Claim(0)
	}
	if !ok || c.Free() == 0 {
		return NoPage, false
	}
	r.value++
	if c.payload && r.rnd.IntN(2) == 0 { // it is filled while others have their turn
		taken := []uint32{NoPage, NoPage}[:min(2, c.Free())]
		c.TakeToFill(r.owners[owner], taken)
		r.look()
		c.GiveFilled(r.owners[owner], taken)
		r.look()
		for n := range taken {
			if got := c.free.At(n); got != taken[n] {
				r.t.Fatalf("page %d is to be taken next, and not %d", got, taken[n])
			}
		}
	}
	i := c.TakeFree()
	if c.payload {
		b := c.NV.Write(i, first, n)
		for s := range n {
			copy(b[s*block.SectorSize:], pattern(r.value))
		}
		c.SumSectors(i, first, n)
	}
	e := Entry{Key: k, Page: i, Old: c.Lookup(k), Written: uint8((1<<n - 1) << first)}
	old := e.Old
	if old != NoPage && !c.State(old).Dirty() {
		old = NoPage
	}
	e.Mask, e.Origins = c.Compose(i, old, first, n, origin)
	if c.payload {
		c.NV.Describe(i).Seal(room.Next(), k, r.owners[owner].id, e.Mask, e.Origins)
	}
	if _, ok := room.Append(nil, 1); !ok {
		r.t.Fatal("the log has no room for what was claimed")
	}
	if way != Fast {
		r.waiting[i] = true
	}
	v := r.owners[owner]
	v.Meter()
	v.part.Meter()
	c.TouchTaken(1)
	c.Install(&Write{Owner: v, Origin: origin, Host: 7, Way: way}, &e)
	m := r.model[k]
	if m == nil {
		m = &[layout.PageSectors]cell{}
		r.model[k] = m
	}
	for s := first; s < first+n; s++ {
		m[s] = cell{r.value, owner}
	}
	r.look()
	return i, true
}

// drop forgets sectors: what a read gives of them is nobody's business any more.
func (r *rig) drop(k layout.PageKey, mask uint8) {
	r.c.Drop(k, mask)
	if m := r.model[k]; m != nil {
		for s := range m {
			if mask>>s&1 != 0 {
				m[s] = cell{}
			}
		}
	}
	r.look()
}

// send puts a batch on its way, if the partition has one.
func (r *rig) send(part int, waiting bool) bool {
	f := &flight{}
	if !r.parts[part].NextDestage(&f.Batch, waiting) {
		r.look()
		return false
	}
	for _, i := range f.Pages {
		var v [layout.PageSectors]uint32
		for s := range v {
			if r.c.payload {
				fmt.Sscanf(string(r.c.NV.Page(i)[s*block.SectorSize:][:32]), "write %d", &v[s])
			}
		}
		f.values = append(f.values, v)
	}
	r.flights = append(r.flights, f)
	r.look()
	return true
}

// refuse has a batch that is on its way wait for room.
func (r *rig) refuse(n int) {
	if f := r.flights[n]; !f.refused {
		f.refused = true
		f.Part.Refuse(&f.Batch, 1)
	}
}

// forget has a batch that has failed do without the pages that were dropped.
func (r *rig) forget(n int) {
	f := r.flights[n]
	var left [][layout.PageSectors]uint32
	for n, i := range f.Pages {
		if r.c.Mask(i) != 0 {
			left = append(left, f.values[n])
		}
	}
	f.values = left
	over := r.c.Forget(&f.Batch, f.refused)
	if over != (len(left) == 0) || len(f.Pages) != len(left) {
		r.t.Errorf("%d pages of a batch are left, %d are needed; it is over: %v", len(f.Pages), len(left), over)
	}
	if over {
		r.flights = append(r.flights[:n], r.flights[n+1:]...)
	}
	r.look()
}

// park has batches that are on their way wait until their mdisk is back, or ends that.
func (r *rig) park(p *Partition, mdisk int, away bool) {
	for _, f := range r.flights {
		if f.Part == p && f.Mdisk == mdisk && f.parked != away && (!away || r.rnd.IntN(2) == 0) {
			if f.parked = away; away {
				p.Park(len(f.Pages))
			} else {
				p.Park(-len(f.Pages))
			}
		}
	}
}

// refused returns the batches that wait for room at an mdisk, and their pages.
func (r *rig) refused(p *Partition, mdisk int) (batches, pages int) {
	for _, f := range r.flights {
		if f.refused && f.Part == p && f.Mdisk == mdisk {
			batches, pages = batches+1, pages+len(f.Pages)
		}
	}
	return batches, pages
}

// checkHeldUp compares what cannot get to its mdisk with what the partitions say.
func (r *rig) checkHeldUp() {
	r.t.Helper()
	all := 0
	for _, p := range r.parts {
		refused, pinned := 0, 0
		for md := range rigMdisks {
			batches, pages := r.refused(p, md)
			refused += pages
			if l := p.lanes[md]; l.refused != batches || l.refusedPages != pages || p.AnyRefused(md) != (batches > 0) {
				r.t.Errorf("partition %d, mdisk %d: %d batches of %d pages were refused, the count says %d of %d", p.id, md, batches, pages, l.refused, l.refusedPages)
			}
		}
		for i := range r.c.pages {
			if pg := &r.c.pages[i]; pg.state == Pinned && pg.key.Pool() == p.id {
				pinned++
			}
		}
		for _, f := range r.flights {
			if f.parked && f.Part == p {
				pinned += len(f.Pages)
			}
		}
		if all += pinned; p.Refused() != refused || p.Pinned() != pinned {
			r.t.Errorf("partition %d: %d pages were refused and %d are pinned, the counts say %d and %d", p.id, refused, pinned, p.Refused(), p.Pinned())
		}
	}
	if r.c.pinned != all {
		r.t.Errorf("%d pages are pinned, the count says %d", all, r.c.pinned)
	}
}

// arrive ends a batch that is on its way.
func (r *rig) arrive(n int) {
	f := r.flights[n]
	if f.refused {
		f.Part.Refuse(&f.Batch, -1)
	}
	if f.parked {
		f.Part.Park(-len(f.Pages))
	}
	r.flights = append(r.flights[:n], r.flights[n+1:]...)
	for n, i := range f.Pages {
		r.store(r.c.Key(i), f.Masks[n], f.values[n])
	}
	r.c.Destaged(&f.Batch)
	r.look()
}

func (r *rig) store(k layout.PageKey, mask uint8, values [layout.PageSectors]uint32) {
	b := r.back[k]
	if b == nil {
		b = &[layout.PageSectors]uint32{}
		r.back[k], r.arrived[k] = b, &[layout.PageSectors]int{}
	}
	r.arrival++
	for s := range b {
		if mask>>s&1 != 0 {
			b[s], r.arrived[k][s] = values[s], r.arrival
		}
	}
}

// beginSync begins a sync of all mdisks.
func (r *rig) beginSync() {
	r.syncing, r.began = true, r.arrival
	r.c.BeginSync()
}

// endGoodSync ends a sync that none of the mdisks has failed.
func (r *rig) endGoodSync() {
	for part := range r.parts {
		for md := range rigMdisks {
			r.isSynced(part, md, r.began)
		}
	}
	r.c.EndSync()
}

// isSynced notes that all that an mdisk got up to an arrival is durable.
func (r *rig) isSynced(part, md, upTo int) {
	at := [2]int{part, md}
	r.synced[at] = max(r.synced[at], upTo)
}

// look notes in which states pages are, one after the other.
func (r *rig) look() {
	for i := range r.last {
		if s := r.c.State(uint32(i)); s != r.last[i] {
			r.seen[[2]State{r.last[i], s}] = true
			r.last[i] = s
		}
	}
}

// flush flushes NVRAM.
func (r *rig) flush() {
	r.fl.After(func(error) {})
	r.clock.RunUntil(r.clock.Now() + 1000)
	r.look()
}

// check compares the cache with the model, and with itself.
func (r *rig) check() {
	r.t.Helper()
	n := Names{
		Owner:  func(id uint32) string { return fmt.Sprint(id) },
		Pool:   func(id uint16) string { return fmt.Sprint(id) },
		Bad:    func(layout.PageKey, int) bool { return false },
		Report: func(format string, args ...any) { r.t.Errorf(format, args...) },
	}
	r.c.CheckConservation(n)
	r.c.Check(n, true)
	r.checkHeldUp()
	for _, p := range r.parts {
		settle := 0
		for i := range r.c.pages {
			if pg := &r.c.pages[i]; (pg.state == Queued || pg.state == Ordered) && pg.key.Pool() == p.id && p.settles(pg) {
				settle++
			}
		}
		if settle != p.rest.settle {
			r.t.Errorf("partition %d: %d pages have to settle, the count says %d", p.id, settle, p.rest.settle)
		}
	}
	for k, m := range r.model {
		for s, want := range m {
			got := uint32(0)
			h := r.c.Lookup(k)
			if h != NoPage {
				h = r.c.Holder(h, uint64(s))
			}
			switch {
			case want.value == 0:
				if h != NoPage {
					r.t.Errorf("sector %d of page %#x was dropped, and page %d has it", s, k, h)
				}
				continue
			case h == NoPage && r.arrived[k] != nil && r.arrived[k][s] > r.synced[[2]int{int(k.Pool()), r.parts[k.Pool()].laneOf(k)}]:
				r.t.Errorf("sector %d of page %#x is read from its mdisk, which may lose it", s, k)
				continue
			case !r.c.payload:
				continue
			}
			if h != NoPage {
				fmt.Sscanf(string(r.c.NV.Page(h)[s*block.SectorSize:][:32]), "write %d", &got)
			} else if b := r.back[k]; b != nil {
				got = b[s]
			}
			if got != want.value {
				r.t.Errorf("sector %d of page %#x has write %d, not %d", s, k, got, want.value)
			}
		}
	}
}
