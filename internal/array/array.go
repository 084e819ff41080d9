package array

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Array is a storage array: one I/O group. See the package comment for the
// concurrency contract.
type Array struct {
	opt     Options
	exec    block.Executor
	store   block.Store
	meta    *metadata.Ledger
	payload bool

	pools   []*Pool   // by id
	vols    []*Volume // by id; nil where an id was never used in this store
	objects *directory.Directory
	media   *media.Maker // of mdisks

	arena   *extent.Arena
	cache   *wcache.Cache
	gate    *admission.Gate // to the cache
	log     *nvlog.Log
	flusher *nvlog.Flusher
	rows    *nvlog.Rows
	back    *backend.Backend
	leaving []*Volume // deleted ones that may have nothing dirty any more

	// Work that the end of a step does once for all that the step caused.
	completed    []*block.Request
	completeSent bool
	step         stepper
	wakes        wakes
	yielded      ticket.Queue // ops that let others go first

	garbageQueued bool

	cycles     cycles
	watching   bool // see failing.go
	copies     copyEngine
	through    map[uint32]*op // by page: the write that waits for it
	settling   ticket.Queue   // writes whose pages are not all settled
	settledOps []*op
	lifetime
	stopped  bool
	ckpt     *checkpoint.Checkpointer
	recovery Recovery
	// afterStep is for tests: it is called at the end of every step.
	afterStep func()
	broken    string // why the array refuses writes

	freeOp      *op
	freeUnit    *destageUnit
	freeReading *reading
	edits       []nvlog.Edit
	one         [1]block.Range
	scratch     commitScratch

	garbageFn, completeFn, resumeFn, lookFn func()
}

// Pool is a set of mdisks, the space on them, and a partition of the write cache.
type Pool struct {
	space    *alloc.Space
	a        *Array
	id       uint16
	name     string
	copyData bool // copies move data through the cache even inside the pool
	mdisks   []*mdisk
	part     *admission.Pool // of the write cache, and who waits for it

	wait         [block.NumOrigins]metrics.Histogram
	waitingBytes [block.NumOrigins]int64
	throttled    [len(primNames)]int64 // ns that offloads waited for their budget
	copying      [len(primNames)]int64 // bytes of pieces of data copies under way
	volumes      int                   // of it, those that are being made, too
	ending       bool                  // it is being deleted, and that is not durable yet
	spaceWait    ticket.Queue          // promised writes whose grains transfers still keep
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

func (a *Array) poolByID(id uint16) *Pool { return a.pools[id] }

// finish queues a request's completion.
func (a *Array) finish(r *block.Request, s block.Status) {
	r.Status = s
	a.completed = append(a.completed, r)
	if !a.completeSent {
		a.completeSent = true
		a.exec.Post(a.completeFn)
	}
}

// watch looks every second, while something fails or somebody waits for room or for an mdisk, for those who have waited too long.
func (a *Array) watch() {
	if a.watching {
		return
	}
	a.watching = true
	block.Call(a.exec, a.exec.Now()+retryTime, a.lookFn)
}
