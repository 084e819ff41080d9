// The start of an array: its options, its parts, and which of them does what at the end of a step.

package array

import (
	"fmt"
	"math"

	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/crosspool"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/provision"
	"github.com/arraysim/arraysim/internal/array/reading"
	"github.com/arraysim/arraysim/internal/array/recovery"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// FormatVersion is that of the NVRAM, and with it of the data folder, that is written; what is as old
// as OldestFormat is read, and becomes FormatVersion in place.
const (
	FormatVersion = nvlog.Version
	OldestFormat  = 1
)

// Options configure an array; zero values mean the defaults that are named.
type Options struct {
	Exec  block.Executor
	Store block.Store
	// CacheBytes is the size of the write cache (256 MiB). It must be the same at
	// every start over the same store.
	CacheBytes int64
	// LogBytes is the size of the log ring in NVRAM (an eighth of the cache, 4 to 256 MiB): 64 KiB at the
	// least, and a multiple of 8, else it is rounded down. It must be the same at every start over the same
	// store. Over a store without payload nothing is logged, and the ring is the shortest one.
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
	// CheckpointBytes is what a batch of a checkpoint has, about (32 MiB). Simulations set it low
	// to have many.
	CheckpointBytes int
	// LeafBytes is what the leaves of maps may take that are not packed (128 MiB). Those that changed since
	// the last checkpoint count, and are not packed before the next. Without payload there are no checkpoints,
	// and no leaf is packed. Simulations set it low to have many packed.
	LeafBytes uint64
	// MapBytes is what the leaves of maps may take of memory, packed or not (1 GiB). Those that nobody has looked at for longer
	// leave, and are read again when they are needed. What changed since the last checkpoint stays. Without payload none leaves.
	MapBytes uint64
	// Discard has the array give the room of free space back to the store, whose media know how to.
	Discard bool
	// DiscardDelay is how long space is free until it is discarded, at least, in nanoseconds (1 s): what
	// becomes free meanwhile is discarded together, and what is taken again is not at all.
	DiscardDelay int64
	// Progress hears how far Open is; nil: nobody does. With an error of it Open ends and returns that: the store is as it was,
	// and nothing has been served.
	Progress func(Progress) error
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
		o.CheckpointBytes = checkpoint.BatchBytes
	}
	if o.LeafBytes == 0 {
		o.LeafBytes = node.DefaultLeafBytes
	}
	if o.MapBytes == 0 {
		o.MapBytes = extent.DefaultMapBytes
	}
	if o.DiscardDelay == 0 {
		o.DiscardDelay = 1_000_000_000
	}
	o.Policy.fill()
}

// regionName is the name of an array's NVRAM in its store.
const regionName = "nvram"

// region is the layout of the NVRAM. Preconditions: what was left out is filled in.
func (o *Options) region(payload bool) nvlog.Layout {
	limit := int(o.CacheBytes / pageBytes)
	// Pages above the limit are those that are between two owners: overwritten or
	// destaged, and not yet free.
	pages := limit + max(limit/8, 2*piecePages)
	l := nvlog.Layout{Rows: o.CounterRows, Pages: pages, LogBytes: nvlog.MinLogBytes, Payload: payload}
	if payload { // else nothing is ever logged: a ring would be cleared and scanned in each of thousands of short simulations
		l.LogBytes = max(o.LogBytes, nvlog.MinLogBytes) &^ 7
	}
	return l
}

// Region returns the name and the layout of the region that Open will ask the store for, which keeps payload: by them one
// can be told that is another array's, or of another size, before it is opened.
func (o Options) Region() (name string, l block.RegionLayout) {
	o.fill()
	return regionName, o.region(true).Region()
}

// Open starts the array that the store holds, or an empty one. It recovers from
// the death of a process or a loss of power; it is synchronous, and the executor is
// held by the caller.
func Open(opt Options) (*Array, error) {
	opt.fill()
	if len(opt.CapPercent) == 0 || opt.CacheBytes < wcache.MinPages*pageBytes {
		return nil, fmt.Errorf("the write cache needs at least %d KiB and a cap", wcache.MinPages*pageBytes/1024)
	}
	limit := int(opt.CacheBytes / pageBytes)
	nv, fresh, err := nvlog.Open(opt.Store, regionName, opt.region(opt.Store.Payload()))
	if err != nil {
		return nil, err
	}
	meta, err := opt.Store.Meta()
	if err != nil {
		return nil, err
	}
	known := func() metadata.Known { return metadata.Known{Least: nv.Saved().Generation, Some: nv.Committed()} }
	return metadata.FromBest(meta, known, func(damaged []error, wrong error) (*Array, error) {
		a := newArray(opt)
		set, e := a.set, a.engine
		if opt.Discard {
			set.DiscardFree(opt.DiscardDelay)
		}
		set.OpenRows(nv)
		set.OpenBackend(pool.ReadHooks{Read: reading.Done, Abandoned: reading.Abandoned, Unwanted: reading.Unwanted,
			Overdue: func(p *Pool, s block.Status) { e.EndWaiters(p, s, a.exec.Now()-patience) }, Watch: a.watchdog.watch})
		log := nvlog.NewLog(nv)
		flusher := nvlog.NewFlusher(nv, log, a.exec, retryTime,
			nvlog.Hooks{Begun: func() { set.Cache.FlushBegun() }, Ended: a.flushEnded, Heard: e.EndStep})
		set.Cache = wcache.New(wcache.Config{NV: nv, Log: log, Flusher: flusher, Rows: set.Rows, Exec: a.exec, Limit: limit,
			Policy: opt.Policy.cache(set.NameOf), DestageStart: opt.DestageStart,
			Hooks: wcache.Hooks{Stepped: e.EndStep, Left: func(id uint32) { set.Vols[id].Left() }, Settled: e.Settled,
				Freed: e.GaveRoom, Relieved: func(pool uint16) { set.ByID(pool).Part.Relieved() }}})
		gate := admission.New(set.Cache, log)
		set.Link = crosspool.New(set.Cache, gate, log, flusher)
		e.Attach()
		a.arena, a.cache, a.gate, a.log, a.flusher, a.back = set.Arena, set.Cache, gate, log, flusher, set.Back
		a.cycles = cycles{exec: a.exec, cache: a.cache, gate: a.gate, back: a.back, flusher: a.flusher,
			fn: func() { a.cycles.timer = false; a.cycles.run(true); a.engine.EndStep() }}
		a.openBooks(meta)
		a.meta.Mistrust(damaged)
		found, err := recovery.Run(recovery.Array{Set: set, Meta: a.meta, Objects: a.manager.Objects, Log: log, Flusher: flusher,
			Checkpoints: a.ckpt, UUID: opt.UUID, Ready: a.manager.SetCaps, Wrong: wrong, Progress: opt.Progress,
			MakeVolume: func(spec VolumeSpec, p *Pool) *pool.Volume { return &e.AddVolume(spec, p).Volume }}, fresh)
		block.Tick(a.exec) // what begins now must not look as old as the recovery
		if a.recovery = found; err == nil {
			set.SweepFree()
			a.manager.RemoveStrays()
		}
		return a, err
	})
}

// newArray returns an array without its parts.
func newArray(opt Options) *Array {
	a := &Array{opt: opt, exec: opt.Exec, lifetime: lifetime{started: opt.Exec.Now()}}
	set := pool.NewSet(a.exec, opt.Store)
	if set.Arena.PackAbove(opt.LeafBytes); !set.Payload {
		set.Arena.PackAbove(math.MaxUint64)
		set.Arena.Account().Off = true
	}
	w := newWatchdog(set)
	e := request.New(set, w.watch)
	set.Up = pool.Hooks{Step: e.EndStep, Changed: e.GaveAll, Space: e.GaveSpace}
	e.SetCopyLimits(opt.Policy.copies())
	set.Placement = opt.Policy.placement()
	e.StepEnds(a.stepEnded, func() { a.cycles.run(a.gate.Waiters.N > 0 || a.cache.Draining()) }, func() { a.checkpoint(false) })
	w.engine = e
	a.set, a.engine, a.watchdog = set, e, w
	return a
}

// keepGeneration has the number of a batch survive in NVRAM. While that cannot be flushed it tries
// again: the batch is in the meta store, and a change that failed for this would be in doubt.
func (a *Array) keepGeneration(gen uint64, done func(error)) {
	a.flusher.SetGeneration(gen)
	a.flusher.After(func(err error) {
		if err == nil || a.ckpt.Stopping() {
			done(err)
			return
		}
		a.exec.At(a.exec.Now()+retryTime, func() { a.keepGeneration(gen, done) })
	})
}

// openBooks makes what writes to the meta store, changes of objects and checkpoints, and who waits
// for them.
func (a *Array) openBooks(store block.MetaStore) {
	a.meta = metadata.New(store, a.exec, metadata.Hooks{Durable: func(gen uint64) { a.flusher.SetGeneration(gen); a.manager.Objects.Durable() },
		Keep:  a.keepGeneration,
		Again: func(e block.KV) []block.KV { return a.manager.Objects.Again(e) }})
	if a.set.Payload {
		a.boundMaps(a.opt.MapBytes)
	}
	a.manager = &provision.Manager{Set: a.set, Engine: a.engine, Log: a.log, Flusher: a.flusher, CapPercent: a.opt.CapPercent,
		Media:   media.NewMaker(a.opt.Store),
		Objects: directory.New(a.meta, a.set.Payload, directory.Hooks{Doubtful: a.engine.Doubt, Stepped: a.engine.EndStep})}
	a.ckpt = checkpoint.New(checkpoint.Config{Exec: a.exec, Log: a.log, Flusher: a.flusher, Meta: a.meta, Maps: a.arena.Checkpoint(),
		BatchBytes: a.opt.CheckpointBytes, RetryAfter: retryTime, Hooks: checkpoint.Hooks{
			Add: a.set.SaveBad, Sent: a.watchdog.watch, Turned: a.set.TellHealth, Failed: a.engine.BreakDown, Stepped: a.engine.EndStep,
			Trimmed: a.engine.LogTrimmed}})
	a.watchdog.flusher, a.watchdog.ckpt = a.flusher, a.ckpt
}

// boundMaps has leaves of maps leave memory where they take more than so many bytes.
func (a *Array) boundMaps(bytes uint64) {
	a.set.BoundMaps(bytes, a.meta, demand.Hooks{Asked: a.watchdog.watch, Turned: a.set.TellHealth, Now: a.exec.Now})
}

// checkpoint begins one if it is due, or forced. When the array is broken the log stays as it is
// for the next start.
func (a *Array) checkpoint(force bool) {
	if a.set.Payload && a.engine.Broken() == "" {
		a.ckpt.Due(force)
	}
}

// stepEnded does what has to find a step's work done.
func (a *Array) stepEnded() {
	if a.set.Leaving() {
		a.set.RetireAll()
	}
	a.set.EvictSoon()
	if a.afterStep != nil {
		a.afterStep()
	}
	if a.cache.Draining() {
		a.checkDrained()
	}
}
