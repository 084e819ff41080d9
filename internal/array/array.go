package array

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
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

	objects *directory.Directory
	media   *media.Maker // of mdisks
	set     *pool.Set
	engine  *engine

	arena   *extent.Arena
	cache   *wcache.Cache
	gate    *admission.Gate // to the cache
	log     *nvlog.Log
	flusher *nvlog.Flusher
	rows    *nvlog.Rows
	back    *backend.Backend

	cycles   cycles
	watching bool // see failing.go
	lifetime
	ckpt     *checkpoint.Checkpointer
	recovery Recovery
	// afterStep is for tests: it is called at the end of every step.
	afterStep func()

	lookFn func()
}

// Pools returns the pools in the order of their making.
func (a *Array) Pools() []*Pool { return a.set.Pools() }

// Pool returns the pool with this name, nil if there is none.
func (a *Array) Pool(name string) *Pool { return a.set.Pool(name) }

// Volumes returns the volumes in the order of their making.
func (a *Array) Volumes() (list []*Volume) {
	for _, v := range a.set.Volumes() {
		list = append(list, volumeOf(v))
	}
	return list
}

// Volume returns the volume with this name, nil if there is none.
func (a *Array) Volume(name string) *Volume {
	if v := a.set.Volume(name); v != nil {
		return volumeOf(v)
	}
	return nil
}

// Emit emits the counters of the lower layer. It costs a few hundred nanoseconds a
// volume.
func (a *Array) Emit(e metrics.Emitter) {
	e.Value(metrics.CacheSize, float64(a.cache.Room().Limit())*pageBytes)
	e.Value(metrics.UptimeSeconds, float64(a.exec.Now()-a.started)/1e9)
	a.set.Emit(e)
}

// MapBytes returns the memory that the maps, details and space tables take.
func (a *Array) MapBytes() uint64 { return a.set.MapBytes() }

// setCaps applies the cap policy to the pools that exist.
func (a *Array) setCaps() {
	if a.cache.SetCaps(a.opt.CapPercent) {
		a.engine.gaveAll()
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
