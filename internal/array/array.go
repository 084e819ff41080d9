package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Options configure an array; zero values mean the defaults that are named.
type Options struct {
	Exec  block.Executor
	Store block.Store
	// CacheBytes is the size of the write cache (256 MiB). It must be the same at
	// every start over the same store.
	CacheBytes int64
	// LogBytes is the size of the log ring in NVRAM (an eighth of the cache, 4 to
	// 256 MiB).
	LogBytes int
	// DestageStart is the fullness, in percent of a partition or of the whole cache,
	// from which on the destager runs at full speed (30). Below it, dirty data is
	// destaged when the pool has had no write for half a second, or when it is half a minute old.
	DestageStart int
	// CapPercent is the cap of a partition, in percent of the cache, by the number of
	// pools: CapPercent[n-1] for n pools, the last for more. The default is the SVC
	// rule: 100, 66, 40, 30, 25 (IBM REDP-4426).
	CapPercent []int
	// CounterRows is the number of counters that NVRAM has room for (65536, 4 MiB): some five a
	// volume and ten an mdisk. What is over is counted in memory, and begins at 0 with each start.
	CounterRows int
	// UUID identifies a new array: it is in the volumes' NAA names and serial numbers.
	UUID uint64
	// Policy is how the cache admits, orders and paces.
	Policy Policy
	// CheckpointBytes is what a batch of a checkpoint has, about (32 MiB). Simulations set it low to have many.
	CheckpointBytes int
}

func (o *Options) fill() {
	if o.CacheBytes == 0 {
		o.CacheBytes = 256 << 20
	}
	if o.LogBytes == 0 {
		o.LogBytes = min(max(4<<20, int(o.CacheBytes/8)), 256<<20)
	}
	if o.DestageStart == 0 {
		o.DestageStart = 30
	}
	if o.CapPercent == nil {
		o.CapPercent = []int{100, 66, 40, 30, 25}
	}
	if o.CounterRows == 0 {
		o.CounterRows = nvlog.DefaultRows
	}
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = checkpointBytes
	}
	o.Policy.fill()
}

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
	objects objects
	media   *media.Maker // of mdisks

	arena   *extent.Arena
	cache   *cache
	line    line // of the pools that wait for what they share
	log     *nvlog.Log
	flusher *nvlog.Flusher
	rows    *nvlog.Rows
	leaving []*Volume // deleted ones that may have nothing dirty any more
	started int64

	// Work that the end of a step does once for all that the step caused.
	completed    []*block.Request
	completeSent bool
	destagePools []*Pool
	ioBatch      []*block.IO
	ioSpare      []*block.IO
	step         stepper
	wakes        wakes
	yielded      ticket.Queue // ops that let others go first

	garbageQueued bool

	written, cycleBatch              []uint32
	cycling, cycleFailed, cycleTimer bool
	cycleLeft                        int
	durable
	watching   bool // see failing.go
	readsOut   int  // back-end reads that somebody waits for
	inSubmit   bool // what ends now ends inside Submit of its medium
	draining   bool
	degraded   bool // the cache has no mirror
	copies     copyEngine
	through    map[uint32]*op // by page: the write that waits for it
	settling   ticket.Queue   // writes whose pages are not all settled
	settledOps []*op
	pinned     int // pages that cannot be destaged
	redos      int // mdisks that have a redo
	drained    []func()
	ckpt       checkpointer
	stopped    bool
	blobs      []blobChange // those of SetBlob that wait for theirs
	recovery   Recovery
	bad        map[uint64]struct{} // sectors that failed their checksum
	hadBad     bool                // the checkpoint has a list of them
	// afterStep is for tests: it is called at the end of every step.
	afterStep func()
	broken    string // why the array refuses writes

	freeOp      *op
	freeIO      *diskIO
	freeUnit    *destageUnit
	freeReading *reading
	edits       []nvlog.Edit
	one         [1]block.Range
	scratch     commitScratch

	garbageFn, cycleFn, completeFn, resumeFn, lookFn func()
	destageDoneFn, readDoneFn                        func(*diskIO)
}

// Pool is a set of mdisks, the space on them, and a partition of the write cache.
type Pool struct {
	space    *alloc.Space
	a        *Array
	id       uint16
	name     string
	copyData bool // copies move data through the cache even inside the pool
	mdisks   []*mdisk
	part     partition

	destagePending bool
	ticking        bool
	tickFn         func()
	wait           [block.NumOrigins]metrics.Histogram
	waitingBytes   [block.NumOrigins]int64
	throttled      [len(primNames)]int64 // ns that offloads waited for their budget
	writeMode      WriteMode
	pinnedPages    int
	wakeFn         func()
	copying        [len(primNames)]int64 // bytes of pieces of data copies under way
	volumes        int                   // of it, those that are being made, too
	ending         bool                  // it is being deleted, and that is not durable yet
	spaceWait      ticket.Queue          // promised writes whose grains transfers still keep
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// Open starts the array that the store holds, or an empty one. It recovers from
// the death of a process or a loss of power; it is synchronous, and the executor is
// held by the caller.
func Open(opt Options) (*Array, error) {
	opt.fill()
	if len(opt.CapPercent) == 0 || opt.CacheBytes < minCachePage*pageBytes {
		return nil, fmt.Errorf("the write cache needs at least %d KiB and a cap", minCachePage*pageBytes/1024)
	}
	payload := opt.Store.Payload()
	limit := int(opt.CacheBytes / pageBytes)
	// Pages above the limit are those that are between two owners: overwritten or
	// destaged, and not yet free.
	pages := limit + max(limit/8, 2*piecePages)
	nv, fresh, err := nvlog.Open(opt.Store, "nvram", nvlog.Layout{Rows: opt.CounterRows, Pages: pages,
		LogBytes: max(opt.LogBytes, nvlog.MinLogBytes) &^ 7, Payload: payload})
	if err != nil {
		return nil, err
	}
	meta, err := opt.Store.Meta()
	if err != nil {
		return nil, err
	}
	return metadata.FromBest(meta, func() (*Array, error) {
		a := newArray(opt)
		a.cache = newCache(nv, limit)
		a.rows = nvlog.OpenRows(nv, ownerOf)
		a.log = nvlog.NewLog(nv)
		a.flusher = nvlog.NewFlusher(nv, a.log, a.exec, retryTime,
			nvlog.Hooks{Begun: a.flushBegun, Ended: a.flushEnded, Heard: a.endStep})
		a.meta = metadata.New(meta, a.exec, metadata.Hooks{Durable: a.flusher.SetGeneration, Again: a.entryAgain})
		a.ckpt.limit = min(a.ckpt.limit, a.meta.Limit())
		return a, a.recover(fresh)
	}, func() uint64 { return nv.Saved().Generation })
}

// newArray returns an array without its parts.
func newArray(opt Options) *Array {
	a := &Array{opt: opt, exec: opt.Exec, store: opt.Store, payload: opt.Store.Payload(),
		media: media.NewMaker(opt.Store), started: opt.Exec.Now(), through: map[uint32]*op{}}
	a.wakes.log.Of, a.yielded.Of, a.settling.Of = ticket.Log, ticket.Turn, ticket.BackEnd
	a.copies.moves.Of, a.copies.reads.Of = ticket.CopyEngine, ticket.CopyRead
	a.step = stepper{
		first: []func(){a.submitIO, a.endSettled},
		wake:  a.wake,
		last: []func(){a.destageAll, func() { a.cycle(a.wakes.waiters.N > 0 || a.draining) },
			func() { a.checkpoint(false) }},
		work:  func() bool { return len(a.ioBatch)+len(a.destagePools)+len(a.settledOps) > 0 },
		given: func() bool { return a.wakes.given != 0 },
		after: a.stepEnded,
	}
	a.arena = extent.NewArena(a.scheduleGarbage)
	a.garbageFn = a.runGarbage
	a.cycleFn = func() { a.cycleTimer = false; a.cycle(true); a.endStep() }
	a.completeFn = a.complete
	a.resumeFn = a.resumeYielded
	a.lookFn = a.look
	a.ckpt.step, a.ckpt.limit = checkpointStep, opt.CheckpointBytes
	a.destageDoneFn = a.destageDone
	a.readDoneFn = a.readDone
	return a
}

func (a *Array) poolByID(id uint16) *Pool     { return a.pools[id] }
func (a *Array) volumeByID(id uint32) *Volume { return a.vols[id] }

// setCaps applies the cap policy to the pools that exist.
func (a *Array) setCaps() {
	n := 0
	for _, p := range a.pools {
		if p != nil {
			n++
		}
	}
	if n == 0 {
		return
	}
	percent := a.opt.CapPercent[min(n, len(a.opt.CapPercent))-1]
	for _, p := range a.pools {
		if p != nil {
			p.part.limit = a.cache.limit * percent / 100
		}
	}
	a.setFloors(n)
	a.gaveAll()
}

// finish queues a request's completion.
func (a *Array) finish(r *block.Request, s block.Status) {
	r.Status = s
	a.completed = append(a.completed, r)
	if !a.completeSent {
		a.completeSent = true
		a.exec.Post(a.completeFn)
	}
}

// complete answers what has ended, writes and what has read them alike, when what is in NVRAM now
// survives the death of the process: at once where it is local.
func (a *Array) complete() {
	a.completeSent = false
	batch := a.completed
	a.completed = nil
	if nv := a.cache.nv; !nv.Local() {
		nv.Commit(func(err error) {
			if err != nil {
				a.refuse(batch, err)
			}
			a.acknowledge(batch)
		})
		return
	}
	a.acknowledge(batch)
}

// refuse makes errors of the writes in a batch, which may not survive.
func (a *Array) refuse(batch []*block.Request, err error) {
	a.breakDown(fmt.Sprintf("the log could not be committed: %v", err))
	for _, r := range batch {
		if r.Status == block.OK && r.Op != block.OpRead && r.Op != block.OpStatus && r.Op != block.OpHold {
			r.Status = block.Hardware
		}
	}
}

func (a *Array) acknowledge(batch []*block.Request) {
	for i, r := range batch {
		batch[i] = nil
		r.Done(r)
	}
	if a.completed == nil {
		a.completed = batch[:0]
	}
}

// destageAll lets the pools destage that something has changed for, the one that was noted last first.
func (a *Array) destageAll() {
	for len(a.destagePools) > 0 {
		p := a.destagePools[len(a.destagePools)-1]
		a.destagePools = a.destagePools[:len(a.destagePools)-1]
		p.destagePending = false
		a.destage(p)
	}
}

// stepEnded does what has to find a step's work done.
func (a *Array) stepEnded() {
	if len(a.leaving) > 0 {
		a.retireAll()
	}
	if a.afterStep != nil {
		a.afterStep()
	}
	if a.draining {
		a.checkDrained()
	}
}
