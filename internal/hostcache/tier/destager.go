package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Destager shares the device below among the disks of a host: so many writes at one
// time, one disk after the other.
type Destager struct {
	slots int
	used  int     // destages under way: being read from flash, waiting, or below; without those of silent disks
	below int     // of those, below
	queue []*op   // that are read and wait for a slot
	disks []*Disk // that may have something to destage
	at    int
	busy  []*Disk // that have destages below
	timer block.Timer
}

// ahead is how many destages are begun: a slot does not wait for the flash.
func (g *Destager) ahead() int { return g.slots + (g.slots+3)/4 }

// DefaultDestageSlots keeps an array busy without queueing behind it: with its 2.9 ms a write, 32
// make the 11,000 writes a second of the documents.
const DefaultDestageSlots = 32

// NewDestager makes a destager of so many writes at one time; 0 is DefaultDestageSlots.
func NewDestager(slots int) *Destager {
	if slots <= 0 {
		slots = DefaultDestageSlots
	}
	return &Destager{slots: slots}
}

// next returns the disk whose turn it is; nil if none has anything.
func (g *Destager) next() *Disk {
	if len(g.disks) == 0 {
		return nil
	}
	g.at %= len(g.disks)
	return g.disks[g.at]
}

// silentAfter is the time after which a device below that ends no destage is silent, in nanoseconds. Its
// destages keep their places there, but take no slots of the other disks any more, and no more of it begin.
// When one of them ends, all count again.
const silentAfter = 10_000_000_000

// begin counts a destage that begins, end one that has ended.
func (g *Destager) begin(d *Disk) {
	if d.turn.inflight++; !d.turn.silent {
		g.used++
	}
}

func (g *Destager) end(d *Disk) {
	if d.turn.inflight--; !d.turn.silent {
		g.used--
	}
}

// feed sends what is read to the devices below while there are slots.
func (g *Destager) feed() {
	for g.below < g.slots {
		i := slices.IndexFunc(g.queue, func(o *op) bool { return !o.d.turn.silent })
		if i < 0 {
			return
		}
		o := g.queue[i]
		g.queue = slices.Delete(g.queue, i, i+1)
		g.below++
		if t := &o.d.turn; t.below == 0 {
			t.heard = o.d.exec.Now()
			g.busy = append(g.busy, o.d)
		}
		o.d.turn.below++
		o.sendDestage()
	}
}

// heard notes that a destage of a disk has ended below, and gives its slot to the next.
func (g *Destager) heard(d *Disk) {
	t := &d.turn
	if t.silent {
		t.silent = false
		g.used += t.inflight
		g.below += t.below
		t.wake(d)
	}
	g.below--
	t.heard = d.exec.Now()
	if t.below--; t.below == 0 {
		g.busy = slices.DeleteFunc(g.busy, func(x *Disk) bool { return x == d })
	}
	g.feed()
}

// listen has silent disks found, where others wait for their slots.
func (g *Destager) listen() {
	if g.timer != nil || len(g.busy) == 0 || g.used < g.ahead() || !g.shared() {
		return
	}
	x, first := g.busy[0].exec, g.busy[0].turn.heard
	for _, d := range g.busy {
		if !d.turn.silent {
			first = min(first, d.turn.heard)
		}
	}
	g.timer = x.At(max(first+silentAfter, x.Now()+1), func() {
		g.timer = nil
		for _, d := range g.busy {
			if t := &d.turn; !t.silent && x.Now()-t.heard >= silentAfter {
				t.silent = true
				g.used -= t.inflight
				g.below -= t.below
			}
		}
		g.feed()
		if d := g.next(); d != nil {
			d.pump()
		}
	})
}

// shared reports whether a disk waits for slots that others have.
func (g *Destager) shared() bool {
	other := func(d *Disk) bool { return d != g.busy[0] }
	return slices.ContainsFunc(g.busy, other) || slices.ContainsFunc(g.disks, other) ||
		slices.ContainsFunc(g.queue, func(o *op) bool { return other(o.d) })
}
