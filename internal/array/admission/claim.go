// What a request asks for, and whether it may have it.

package admission

import (
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Verdict is what admission says of a piece.
type Verdict uint8

const (
	// Admitted: it may be committed now, as Claim.Way says.
	Admitted Verdict = iota
	// NoRoom: its partition, or what all share (Claim.Lacks), has no room.
	NoRoom
	// NoBudget: the offloads of its partition or host hold their share already.
	NoBudget
	// NoLog: the log has no room.
	NoLog
)

// Lack says what shared thing somebody waits for.
type Lack uint8

const (
	lackRoom Lack = 1 << iota
	lackReserve
	lackPages // free ones: all who need any wait behind who needs many
)

// Writer is who has a claim. It waits with a ticket of its own.
type Writer interface {
	ticket.Waiter
	// Claim returns the writer's claim.
	Claim() *Claim
	// Overwrites counts the pages of the piece whose dirty contents it would replace. It may stop
	// when there cannot be as many as needed any more.
	Overwrites(needed int) int
	// Throttle has the writer, which was the first that waits for room, wait for its budget.
	Throttle()
}

// Claim is what a writer asks for: the piece that is next. It changes only while the writer does
// not wait.
type Claim struct {
	Writer  Writer
	Pool    *Pool
	Owner   *Turns
	Origin  block.Origin
	Host    uint32 // in whose budget an offload counts
	Pages   int    // of NVRAM that the piece needs
	Sectors uint64 // of it

	// Way is how the piece was admitted.
	Way wcache.Mode

	over       bool // it was admitted since it overwrites: it needs less room than it has pages
	lacks      Lack // when it was last refused
	booked     int  // pages that are booked to its budget while it waits for room
	bookedHost bool // and to its host's
}

// Lacks reports whether the writer was refused for want of what all share.
func (c *Claim) Lacks() bool { return c.lacks != 0 }

// Whole reports whether a claim that was admitted had room for all of its pages, beside those that it
// overwrites.
func (c *Claim) Whole() bool { return c.Way == wcache.Fast && !c.over }

// Through reports whether the piece ends when the back end has it.
func (c *Claim) Through() bool { return c.Way != wcache.Fast }

// Committed says that the piece that was admitted is in the cache.
func (c *Claim) Committed() {
	p := c.Pool
	p.g.Freed() // a writer that waits may take over its pages
	if c.Origin.Undercover() {
		p.Relieved() // a host whose own budget is used up now lets others pass whom it held up
	}
}

// Admit reports whether a claim's piece may enter the cache now, and how. It changes the claim
// alone, but for the pool's stall by its ramp, and the log, which hears that somebody lacks room.
// head says that the writer is the first that waits.
func (g *Gate) Admit(c *Claim, head bool) Verdict {
	p := c.Pool
	c.Way, c.lacks, c.over = wcache.Fast, 0, false
	if !g.log.Fits(layout.PieceWindows) {
		g.log.Starve()
		return NoLog
	}
	// One page stays free: a start needs it to join two of one address, which frees others.
	if g.cache.Free() <= c.Pages || !head && g.lacks&lackPages != 0 {
		c.lacks = lackPages
		return NoRoom
	}
	mode := p.ModeNow()
	if mode == wcache.WriteThrough {
		if !head && p.Waiting() {
			return NoRoom
		}
		return g.admitThrough(c, mode, head)
	}
	if p.overBudget(c, head) {
		return NoBudget
	}
	pol := g.cache.Policy()
	short := pol.Admission == policy.AdmitThrough && !c.Origin.Undercover()
	c.Way = mode
	if !head && p.Waiting() && !short {
		return NoRoom
	}
	if g.fits(c, head) {
		return Admitted
	}
	if short {
		return g.admitThrough(c, wcache.ShortOfMemory, head)
	}
	return NoRoom
}

// fits reports whether a piece fits into its partition, and into what all share beside others. What
// overwrites dirty data needs no more room than that has.
func (g *Gate) fits(c *Claim, head bool) bool {
	p := c.Pool
	room, stalled := g.cache.Room(), p.stalled()
	used, limit := p.Room.Used(), p.Limit()
	if !stalled && used+c.Pages <= limit && g.shares(room, lackRoom, &p.Room, c.Pages, head) {
		return true
	}
	left := c.Pages
	c.over = true
	if used > 0 {
		left -= c.Writer.Overwrites(max(0, c.Pages-max(0, min(limit-used, room.Limit()-room.Used()))))
	}
	switch {
	case left <= 0:
		return true
	case stalled || used > 0 && used+left > limit: // a piece larger than the whole partition goes in alone
		return false
	case g.shares(room, lackRoom, &p.Room, left, head):
		return true
	}
	c.lacks = lackRoom
	return false
}

// admitThrough admits to the reserve. A partition that holds nothing of it may have one piece in
// any case: what another one holds for an absent mdisk stays for as long as that is away.
func (g *Gate) admitThrough(c *Claim, way wcache.Mode, head bool) Verdict {
	if s := &c.Pool.Reserve; s.Used() > 0 && !g.shares(g.cache.Reserve(), lackReserve, s, c.Pages, head) {
		c.lacks |= lackReserve
		return NoRoom
	}
	c.Way = way
	return Admitted
}

// stalled reports whether the ramp delays all writes of the partition.
func (p *Pool) stalled() bool {
	r := &p.g.cache.Policy().Ramp
	if r.StallAt == 0 {
		return false
	}
	level := int64(p.Room.Used()) * 1000 / int64(max(p.Limit(), 1))
	if p.stall {
		p.stall = level >= r.ResumeAt
	} else {
		p.stall = level >= r.StallAt
	}
	return p.stall
}
