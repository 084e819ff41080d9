// The cache as one: its parts, its limits, its mirror, and draining. What it does with pages is in
// the files of their stages (doc.go); the pages themselves nobody else changes.

package wcache

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/block"
)

// MinPages is the number of pages that a cache may use at least.
const MinPages = 256

// Policy is how the cache admits, orders and paces; Mode is how a partition takes writes.
type (
	Policy = policy.Cache
	Mode   = policy.Mode
)

// Modes.
const (
	Fast, FlushThrough          = policy.Fast, policy.FlushThrough
	WriteThrough, ShortOfMemory = policy.WriteThrough, policy.ShortOfMemory
)

// Config is what a cache works with.
type Config struct {
	NV      *nvlog.NVRAM
	Log     *nvlog.Log
	Flusher *nvlog.Flusher
	Rows    *nvlog.Rows
	Exec    block.Executor
	Limit   int // pages that partitions may use together, less than NVRAM has
	Policy  Policy
	// DestageStart is the fullness, in percent of a partition or of the whole cache, from which
	// on the destager runs where the policy has no ramp.
	DestageStart int
	Hooks        Hooks
}

// Hooks are what a Cache tells its user.
type Hooks struct {
	// Stepped: a timer of the cache has done something. There may be something to destage.
	Stepped func()
	// Left: bytes of an owner that leaves stopped being dirty.
	Left func(owner uint32)
	// Settled: a page that a write waits for is on the back end, or nobody needs it there any
	// more. It may not call the cache.
	Settled func(page uint32)
	// Freed: there is more room than before, of which Await said that somebody waits for it. It may
	// not call the cache.
	Freed func()
	// Relieved: the offloads of a pool hold less than before. It may not call the cache.
	Relieved func(pool uint16)
}

// Cache is the write cache: pages of NVRAM, indexed by physical address.
type Cache struct {
	pageIndex
	NV      *nvlog.NVRAM // the pages' contents and descriptors
	log     *nvlog.Log
	flusher *nvlog.Flusher
	rows    *nvlog.Rows
	exec    block.Executor
	hooks   Hooks
	payload bool

	pages []page
	rare  []pageRare
	free  nvlog.FreePages

	room    Pot // of the partitions
	reserve Pot // outside of them, for what writes through: half of the pages that no partition may have
	pinned  int // pages that cannot be destaged

	reclaim   reclaim
	heldLanes int // mdisks that have a redo, or are late

	partitions []*Partition // by number; nil: there is none
	owners     []*Owner     // by number
	kicked     []*Partition // to be looked at in the next step

	policy       Policy
	destageStart int
	draining     bool
	unmirrored   bool
	awaited      bool // somebody wants to hear of room
}

// New returns a cache of which nothing is known: its pages are neither free nor dirty until the
// user says so, with GiveFree or StartEmpty, and Restore.
func New(cfg Config) *Cache {
	nv := cfg.NV
	c := &Cache{NV: nv, log: cfg.Log, flusher: cfg.Flusher, rows: cfg.Rows, exec: cfg.Exec, hooks: cfg.Hooks, payload: nv.Payload,
		pages: block.Table[page](nv.Pages), rare: make([]pageRare, nv.Pages), free: nvlog.NewFreePages(nv),
		room: Pot{limit: cfg.Limit}, reserve: Pot{limit: (nv.Pages - cfg.Limit) / 2},
		policy: cfg.Policy, destageStart: cfg.DestageStart}
	c.pageIndex = newPageIndex(c.pages)
	return c
}

// StartEmpty makes all pages free.
func (c *Cache) StartEmpty() { c.free.All() }

// Pages returns the number of pages of NVRAM.
func (c *Cache) Pages() int { return len(c.pages) }

// Room returns the pot of the partitions, Reserve that of what writes through.
func (c *Cache) Room() *Pot { return &c.room }

// Reserve is the pot of what writes through outside of the partitions.
func (c *Cache) Reserve() *Pot { return &c.reserve }

// Policy returns the policy in force, which nobody else changes.
func (c *Cache) Policy() *Policy { return &c.policy }

// SetPolicy changes the policy; what is dirty comes under the new one.
func (c *Cache) SetPolicy(pol Policy) {
	c.policy = pol
	for _, p := range c.partitions {
		if p == nil {
			continue
		}
		was := p.order
		if p.setRules(); (p.order == byAge{}) != (was == byAge{}) {
			p.relist()
		}
		p.Kick()
	}
}

// Press has the partitions destage that hold more than their floor, because others wait for room.
func (c *Cache) Press() {
	for _, p := range c.partitions {
		if p != nil && !p.Room.WithinFloor(0) && p.dirty > 0 {
			p.Kick()
		}
	}
}

// SetMirrored says whether the cache has its mirror. Without it what is dirty is destaged as fast
// as the mdisks take it, and what is written goes through.
func (c *Cache) SetMirrored(ok bool) {
	c.unmirrored = !ok
	c.KickAll()
}

// Mirrored reports whether the cache has its mirror.
func (c *Cache) Mirrored() bool { return !c.unmirrored }

// Held returns how many mdisks are not synced with the others: they have a redo, or are late.
func (c *Cache) Held() int { return c.heldLanes }

// Drain has everything destaged, or ends that.
func (c *Cache) Drain(on bool) {
	if c.draining = on; on {
		c.KickAll()
	}
}

// Draining reports whether everything is to be destaged.
func (c *Cache) Draining() bool { return c.draining }

// Drained reports whether nothing is left but what mdisks that are offline pin.
func (c *Cache) Drained() bool { return c.room.used+c.reserve.used <= c.pinned }
