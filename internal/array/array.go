// The array: its parts, and what is asked of all of it. Of its own it has its options, what the
// last start found, since when it runs and who waits for it to come to rest; each part owns what it
// keeps, and open.go says which hears of what.

package array

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/provision"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Array is a storage array: one I/O group. See the package comment for the
// concurrency contract.
type Array struct {
	opt  Options
	exec block.Executor
	meta *metadata.Ledger

	set     *pool.Set
	engine  *request.Engine
	manager *provision.Manager

	arena   *extent.Arena
	cache   *wcache.Cache
	gate    *admission.Gate // to the cache
	log     *nvlog.Log
	flusher *nvlog.Flusher
	back    *backend.Backend

	cycles   cycles
	watchdog *watchdog
	lifetime
	ckpt     *checkpoint.Checkpointer
	recovery Recovery
	// afterStep is for tests: it is called at the end of every step.
	afterStep func()
}

// Pools returns the pools in the order of their making.
func (a *Array) Pools() []*Pool { return a.set.Pools() }

// Pool returns the pool with this name, nil if there is none.
func (a *Array) Pool(name string) *Pool { return a.set.Pool(name) }

// Volumes returns the volumes in the order of their making.
func (a *Array) Volumes() (list []*Volume) {
	for _, v := range a.set.Volumes() {
		list = append(list, request.Of(v))
	}
	return list
}

// Volume returns the volume with this name, nil if there is none.
func (a *Array) Volume(name string) *Volume {
	if v := a.set.Volume(name); v != nil {
		return request.Of(v)
	}
	return nil
}

// Emit emits the counters of the lower layer. It costs a few hundred nanoseconds a
// volume.
func (a *Array) Emit(e metrics.Emitter) { a.emit(e, true) }

// Further returns a source of what Emit emits but for the uptime, which several I/O groups
// of one array have once.
func (a *Array) Further() metrics.Source { return further{a} }

type further struct{ a *Array }

// Emit emits the counters.
func (f further) Emit(e metrics.Emitter) { f.a.emit(e, false) }

func (a *Array) emit(e metrics.Emitter, uptime bool) {
	e.Value(metrics.CacheSize, float64(a.cache.Room().Limit())*pageBytes)
	e.Value(metrics.Problems, float64(len(a.Health())))
	if uptime {
		e.Value(metrics.UptimeSeconds, float64(a.exec.Now()-a.started)/1e9)
	}
	a.set.Emit(e)
}

// MapBytes returns the memory that the maps, details and space tables take.
func (a *Array) MapBytes() uint64 { return a.set.MapBytes() }
