// The messages between a pool and what pools share. A method names from whom to whom it goes, what
// it says, and when it is answered.

package crosspool

import (
	"github.com/arraysim/arraysim/internal/array/admission"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Link is a way to what pools share. It belongs to one executor, and has no state.
type Link struct {
	cache   *wcache.Cache
	gate    *admission.Gate
	log     *nvlog.Log
	flusher *nvlog.Flusher
}

// New returns the way to the owners of what pools share.
func New(cache *wcache.Cache, gate *admission.Gate, log *nvlog.Log, flusher *nvlog.Flusher) *Link {
	return &Link{cache: cache, gate: gate, log: log, flusher: flusher}
}

// Pages of the write cache, and who gets them.

// Join gives a pool its place at the gate, with a partition that holds nothing yet. It is answered at
// once.
func (l *Link) Join(part *wcache.Partition) *admission.Pool { return l.gate.AddPool(part) }

// Admit asks the gate whether a piece may bring pages into the cache: within the partition's floor,
// or borrowed above it. Who waits hears it by its ticket: a claim with head set repeats the question.
// It is answered at once.
func (l *Link) Admit(c *admission.Claim, head bool) admission.Verdict { return l.gate.Admit(c, head) }

// TakePage takes a free page of a piece that was admitted. It is answered at once, and not refused.
func (l *Link) TakePage() uint32 { return l.cache.TakeFree() }

// Fill takes free pages for sectors [at, end) of an owner's volume, which were admitted and whose data gets
// there while others have their turn, and books them. It is answered at once, and not refused; f.End
// gives them back, to be taken by TakePage next.
func (l *Link) Fill(f *admission.Fill, v *wcache.Owner, at, end uint64, src block.Cursor) {
	l.gate.Fill(f, v, at, end, src)
}

// Freed tells the gate that a piece may find room that it did not find before. There is no answer;
// who is next hears it by Serve.
func (l *Link) Freed() { l.gate.Freed() }

// RulesChanged tells the gate that other rules hold, under which anybody may go on.
func (l *Link) RulesChanged() { l.gate.Changed() }

// Given reports whether Serve may let somebody go on.
func (l *Link) Given() bool { return l.gate.Given() }

// Serve has the gate let those go on, of all pools, who are next in the line, and reports whether
// there were any. Each hears it by its ticket before this returns.
func (l *Link) Serve() (woke bool) { return l.gate.Serve() }

// ServeBudgets is Serve of those whose pool has room in their budget again.
func (l *Link) ServeBudgets() (woke bool) { return l.gate.ServeBudgets() }

// Alone asks the line whether no other pool waits than one that was just served.
func (l *Link) Alone() bool { return l.gate.Alone() }

// Waiters returns how many requests of all pools wait for room or a budget.
func (l *Link) Waiters() int { return l.gate.Waiters.N }

// Forgotten says who of some pools could go on and was not told, for tests.
func (l *Link) Forgotten(pools []*admission.Pool) (what string) { return l.gate.Forgotten(pools) }

// InOrder reports whether the gate keeps who waits in a pool in one queue, so that who was served
// stays its head.
func (l *Link) InOrder() bool { return l.cache.Policy().Admission != policy.AdmitFair }

// The log. Its records are of one order for all pools.

// Claim asks the log for room for the records of one command. It is answered at once: with the room,
// which is good until the step ends, or not; then the request waits, and a checkpoint that has made
// room wakes it.
func (l *Link) Claim(edits int) (nvlog.Claim, bool) { return l.log.Claim(edits) }

// Fits reports whether Claim would succeed, EverFits whether it would in an empty log.
func (l *Link) Fits(edits int) bool { return l.log.Fits(edits) }

// EverFits reports whether a command finds room in an empty log.
func (l *Link) EverFits(edits int) bool { return l.log.EverFits(edits) }

// Starve tells the log that somebody waits for room, so that a checkpoint is worth its while. There
// is no answer but the room. Starved reports whether somebody has.
func (l *Link) Starve() { l.log.Starve() }

// Starved reports whether somebody was refused room since the last checkpoint began.
func (l *Link) Starved() bool { return l.log.Starved() }

// Newest returns the number of the log's newest record, of whatever pool.
func (l *Link) Newest() uint64 { return l.log.Seq() }

// What survives.

// Committed asks NVRAM to call done when all records until now survive the death of the process, or
// cannot be made to. One that is local calls it at once.
func (l *Link) Committed(done func(error)) { l.cache.NV.Commit(done) }

// Flushed asks the flusher to call done when all that is in NVRAM now, of all pools, survives a loss
// of power, or cannot be made to. Those who ask while a flush is under way share the next one.
func (l *Link) Flushed(done func(error)) { l.flusher.After(done) }
