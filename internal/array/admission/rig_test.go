package admission

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// memory is NVRAM that keeps nothing.
type memory struct{ block.LocalMemory }

type memStore struct{ block.Store }

func (memStore) Region(_ string, l block.RegionLayout) (block.Region, bool, error) {
	return &memory{block.NewLocalMemory(make([]byte, l.Size()), l)}, true, nil
}

func (*memory) Boot() uint64            { return 1 }
func (*memory) Distrust()               {}
func (*memory) Flush(done func(error))  { done(nil) }
func (*memory) FlushNow() error         { return nil }
func (*memory) Commit(done func(error)) { done(nil) }

// writer writes so many pieces, all at new addresses.
type writer struct {
	ticket.Ticket
	claim    Claim
	r        *rig
	name     int
	left     int // pieces
	part     int
	dirty    int // pages of a piece that are there already
	from     layout.PageKey
	finished bool
}

func (w *writer) Claim() *Claim { return &w.claim }

func (w *writer) Overwrites(int) int { return w.dirty }

func (w *writer) Resume() { w.run(w.For() == ticket.Room) }

func (w *writer) Throttle() {
	w.Leave()
	w.r.g.Freed()
	w.throttle()
}

func (w *writer) throttle() {
	p := w.claim.Pool
	w.claim.Unbook()
	p.BudgetQueue(w.claim.Host).Push(&w.Ticket)
	p.Relieved()
}

// run writes until the writer has to wait or has finished.
func (w *writer) run(head bool) {
	r, first := w.r, head
	for w.left > 0 {
		switch r.g.Admit(&w.claim, head) {
		case NoRoom, NoLog:
			w.claim.Pool.Wait(&w.claim, &w.Ticket, first)
			return
		case NoBudget:
			w.throttle()
			return
		}
		w.claim.Unbook()
		head = head && r.c.Policy().Admission != policy.AdmitFair && r.g.Alone()
		r.commit(w)
	}
	w.finished = true
}

// rig is a gate to a small cache, and those who write.
type rig struct {
	t       testing.TB
	rnd     *rand.Rand
	c       *wcache.Cache
	g       *Gate
	pools   []*Pool
	owners  [][]*wcache.Owner // by pool
	turns   [][]*Turns
	next    []layout.PageKey // by pool: an address that nobody has written
	pages   [][]layout.PageKey
	writers []*writer
	order   []int // names of those whose pieces were committed
	pol     wcache.Policy
}

const rigLimit = 1024 // pages

func newRig(t testing.TB, rnd *rand.Rand, pol wcache.Policy, pools int) *rig {
	r := &rig{t: t, rnd: rnd, pol: pol}
	nv, _, err := nvlog.Open(memStore{}, "nvram", nvlog.Layout{Rows: 64, Pages: rigLimit + 256, LogBytes: nvlog.MinLogBytes})
	if err != nil {
		t.Fatal(err)
	}
	log := nvlog.NewLog(nv)
	r.c = wcache.New(wcache.Config{NV: nv, Log: log, Rows: nvlog.OpenRows(nv, func(h nvlog.RowHead) uint64 { return uint64(h.ID()) }),
		Exec: &block.Virtual{}, Limit: rigLimit, Policy: pol, DestageStart: 30, Hooks: wcache.Hooks{
			Stepped: func() {}, Left: func(uint32) {}, Settled: func(uint32) {}, Freed: func() { r.g.Freed() },
			Relieved: func(pool uint16) { r.pools[pool].Relieved() }}})
	r.c.StartEmpty()
	r.g = New(r.c, log)
	for id := range uint16(pools) {
		part := r.c.AddPartition(id, alloc.New([]int{64}, alloc.Events{}), 1)
		part.Open()
		r.pools = append(r.pools, r.g.AddPool(part))
		r.owners = append(r.owners, []*wcache.Owner{r.c.AddOwner(uint32(id)*2+1, part), r.c.AddOwner(uint32(id)*2+2, part)})
		r.turns = append(r.turns, []*Turns{{}, {}})
		r.next = append(r.next, layout.KeyOf(id, 0))
		r.pages = append(r.pages, nil)
	}
	r.c.SetCaps([]int{100, 66, 50})
	return r
}

// writer returns a writer of pieces of so many pages, which has not begun.
func (r *rig) writer(part, owner, pieces, pages int, origin block.Origin, host uint32) *writer {
	w := &writer{r: r, name: len(r.writers), left: pieces, part: part}
	w.Init(w)
	w.claim = Claim{Writer: w, Pool: r.pools[part], Owner: r.turns[part][owner], Origin: origin, Host: host, Pages: pages,
		Sectors: uint64(pages) * layout.PageSectors}
	r.writers = append(r.writers, w)
	w.from = layout.PageKey(owner)
	return w
}

// start has a writer begin, and those go on who may.
func (r *rig) start(w *writer) *writer {
	w.run(false)
	r.wake()
	return w
}

// commit takes the pages of a piece that was admitted.
func (r *rig) commit(w *writer) {
	c := &w.claim
	if r.c.Free() < c.Pages {
		r.t.Fatalf("%d pages were admitted, and %d are free", c.Pages, r.c.Free())
	}
	for range c.Pages {
		e := wcache.Entry{Key: r.next[w.part], Page: r.c.TakeFree(), Old: wcache.NoPage, Written: 0xff}
		r.next[w.part]++
		e.Mask, e.Origins = r.c.Compose(e.Page, wcache.NoPage, 0, layout.PageSectors, c.Origin)
		r.c.Install(&wcache.Write{Owner: r.owners[w.part][w.from], Origin: c.Origin, Host: c.Host, Way: c.Way}, &e)
		r.pages[w.part] = append(r.pages[w.part], e.Key)
	}
	c.Committed()
	r.order = append(r.order, w.name)
	w.left--
}

// free frees the oldest pages of a pool, as many as there are of n.
func (r *rig) free(part, n int) {
	n = min(n, len(r.pages[part]))
	for _, k := range r.pages[part][:n] {
		r.c.Drop(k, 0xff)
	}
	r.pages[part] = slices.Delete(r.pages[part], 0, n)
	r.c.FlushBegun()
	r.c.FlushEnded(nvlog.Outcome{Advanced: true})
	r.wake()
}

// wake lets those go on who may, and checks that nobody else could.
func (r *rig) wake() {
	r.t.Helper()
	for r.g.Given() {
		r.g.ServeBudgets()
		r.g.Serve()
	}
	if what := r.g.Forgotten(r.pools); what != "" {
		r.t.Error(what)
	}
}

// waiting returns how many have not finished.
func (r *rig) waiting() (n int) {
	for _, w := range r.writers {
		if w.Queued() {
			n++
		}
	}
	return n
}
