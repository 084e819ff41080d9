// The requests of an array under way: what all of them work with, and who breaks or stops it.
//
// Invariants: a request waits in one queue at the most, and is woken by the end of a step or by who
// gives it what it waits for. Nothing here knows recovery, checkpoints or how objects are changed;
// those who do begin and end steps here, and say what they give.

package request

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/answer"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/copying"
	"github.com/arraysim/arraysim/internal/array/crosspool"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/reading"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Engine carries out the requests of all volumes. It is a part of one block.Executor's state
// machine.
type Engine struct {
	set     *pool.Set
	exec    block.Executor
	aside   block.Asider // moves what is long beside the executor; nil: nobody does
	payload bool

	arena *extent.Arena
	cache *wcache.Cache
	link  *crosspool.Link // to what pools share
	back  *backend.Backend

	rules    rules
	step     stepper
	answers  answer.Answers
	wakes    wakes
	copies   copying.Engine
	settling settlement

	freeOp   *op
	freeRead *read
	from     reading.From
	freeLook *looking
	edits    []nvlog.Edit
	one      [1]block.Range
	scratch  commitScratch
	same     block.Pattern // of the WRITE SAME that is written

	elsewhere Volume // counts the reads for copies of other arrays, and is no volume else
	filling   int    // writes whose data is on its way into NVRAM beside the executor
	stopped   bool
	broken    string // why writes are refused until the next start
	doubt     string // why they are refused for now
	// watchFn is told that somebody waits for what may be stuck; it is heard of every second then.
	watchFn func()
}

// New returns an engine over a set of pools, without the stages of its steps; see Attach.
func New(set *pool.Set, watch func()) *Engine {
	e := &Engine{set: set, exec: set.Exec, payload: set.Payload, rules: allowed, watchFn: watch}
	e.aside, _ = set.Exec.(block.Asider)
	e.settling.pages = map[uint32]*op{}
	e.wakes.log.Of, e.wakes.turns.Of, e.settling.waiting.Of = ticket.Log, ticket.Turn, ticket.BackEnd
	e.copies.Moves.Of, e.copies.Reads.Of, e.copies.Reads.Sum = ticket.CopyEngine, ticket.CopyRead, &e.copies.Asking
	e.wakes.turnFn, e.wakes.turns.Pieces = e.turn, StepPieces
	return e
}

// StepEnds says what the end of a step does beside what the engine does itself: last are stages at
// the end of each round, behind the destaging of the pools; after is called when all is done.
func (e *Engine) StepEnds(after func(), last ...func()) {
	e.step.last, e.step.after = append(e.step.last, last...), after
}

// SetCopyLimits changes what copies that move data may have under way.
func (e *Engine) SetCopyLimits(l copying.Limits) { e.copies.Limits = l }

// Stop has requests that come from now on end with Gone.
func (e *Engine) Stop() { e.stopped = true }

// Filling reports whether data of writes is on its way into NVRAM beside the executor.
func (e *Engine) Filling() bool { return e.filling > 0 }

// Stopped reports whether Stop was called.
func (e *Engine) Stopped() bool { return e.stopped }

// Broken says why writes are refused, "" if they are not.
func (e *Engine) Broken() string {
	if e.broken != "" {
		return e.broken
	}
	return e.doubt
}

// Settling reports whether writes wait for the back end.
func (e *Engine) Settling() bool { return !e.settling.waiting.Empty() }

// Attach gives the engine the parts of the set that it works with, when all of them are there.
func (e *Engine) Attach() {
	e.from = reading.From{Cache: e.set.Cache, Payload: e.payload}
	e.arena, e.cache, e.link, e.back = e.set.Arena, e.set.Cache, e.set.Link, e.set.Back
	e.answers.Start(answer.Config{Exec: e.exec, Local: e.cache.NV.Local(), Newest: e.link.Newest, Committed: e.link.Committed, Broke: e.BreakDown})
}

// LogTrimmed says that the log has room again, and perhaps free pages came with it.
func (e *Engine) LogTrimmed() {
	e.gave(ticket.Log)
	e.GaveRoom()
}

// Doubt has writes refused as long as nobody knows what the next start finds of the volumes that
// they are for: until it is called again, with "".
func (e *Engine) Doubt(why string) {
	if why != "" {
		e.watchFn() // who waits for the log waits in vain
	}
	was := e.Broken() != ""
	if e.doubt = why; was == (e.Broken() != "") {
		return
	}
	if e.set.TellHealth(); was {
		e.GaveAll()
	}
}

// BreakDown stops all changes after an error of the log's surroundings: what was
// acknowledged stays readable.
func (e *Engine) BreakDown(why string) {
	e.watchFn() // who waits for the log waits in vain
	if e.broken == "" {
		e.broken = why
		e.set.TellHealth()
	}
}

// Volume is a logical disk of the array. It implements block.Device.
type Volume struct {
	pool.Volume
	e *Engine

	locks    []*op // holders of exclusive ranges
	lockWait ticket.Queue
	turns    admission.Turns // for room, where volumes take turns
	ops      int             // requests under way
	unsure   nvlog.Unsure
}

var _ block.Device = (*Volume)(nil)

// Busy reports whether requests of the volume are under way.
func (v *Volume) Busy() bool { return v.ops > 0 }

// AddVolume makes a volume of a pool known.
func (e *Engine) AddVolume(spec directory.VolumeSpec, p *pool.Pool) *Volume {
	v := &Volume{e: e, lockWait: ticket.Queue{Of: ticket.Lock}}
	e.set.InitVolume(&v.Volume, v, spec, p)
	return v
}

// Of returns what requests have of a volume.
func Of(v *pool.Volume) *Volume { return v.Dev.(*Volume) }
