// Package changelog notes what hosts change of each other's data. An initiator port that caches a
// volume asks for it; from then on the volume's log notes, for this port, which extents others have
// changed. A volume that nobody asks about has no log.
//
// Invariant: what others have changed since a port was told of last is in the port's list, or the
// port hears that its knowledge is too old. Lists are bounded; what does not fit is told coarser.
package changelog

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

const (
	// MaxWatchers bounds the ports that are followed; who has not asked for longest goes.
	MaxWatchers = 16
	// MaxChanges bounds the extents of one.
	MaxChanges = 1024
)

// watcher is an initiator port that asks what others change.
type watcher struct {
	port  uint32
	since uint64 // what changed up to this generation is not in list
	told  uint64 // what it has heard for sure
	last  uint64 // the generation of the answer before
	asked uint64 // number of the question
	list  []block.Change
}

// Log is what a volume knows for its watchers. The zero value is one of which nobody has asked.
type Log struct {
	generation uint64
	questions  uint64
	watchers   []watcher
}

// For returns what ports other than this one have changed after generation since, oldest first, and
// the present generation. Who knows a generation before since, or after generation, has to take
// everything for changed. The first question of a port makes the log remember from now on.
func (l *Log) For(port uint32) (generation, since uint64, list []block.Change) {
	l.questions++
	w := l.watcher(port)
	w.asked = l.questions
	w.told, w.last = w.last, l.generation
	return l.generation, w.since, slices.Clone(w.list)
}

func (l *Log) watcher(port uint32) *watcher {
	oldest := 0
	for i := range l.watchers {
		w := &l.watchers[i]
		if w.port == port {
			return w
		}
		if w.asked < l.watchers[oldest].asked {
			oldest = i
		}
	}
	// A new watcher knows nothing of the time before.
	l.generation++
	w := watcher{port: port, since: l.generation, told: l.generation, last: l.generation}
	if len(l.watchers) < MaxWatchers {
		l.watchers = append(l.watchers, w)
		return &l.watchers[len(l.watchers)-1]
	}
	l.watchers[oldest] = w
	return &l.watchers[oldest]
}

// Ended notes a request that has ended, in whatever way: a failed one may have changed something.
func (l *Log) Ended(r *block.Request, s block.Status) {
	switch r.Op {
	case block.OpUnmap:
		for _, g := range r.Ranges {
			l.note(g, r)
		}
	case block.OpWrite, block.OpWriteSame, block.OpCompareWrite, block.OpOrWrite, block.OpPlace:
		if s != block.Miscompare {
			l.note(r.Range, r)
		}
	}
}

// Cut notes what a volume has lost as it became smaller. It may grow again before a port hears that it had another size, so all
// hear of this.
func (l *Log) Cut(g block.Range) {
	if len(l.watchers) == 0 || g.Count == 0 {
		return
	}
	l.generation++
	for i := range l.watchers {
		l.watchers[i].note(block.Change{Range: g, Generation: l.generation})
	}
}

func (l *Log) note(g block.Range, by *block.Request) {
	if g.Count == 0 {
		return
	}
	moved := false
	for i := range l.watchers {
		w := &l.watchers[i]
		if w.port == by.Port {
			continue
		}
		if !moved {
			moved = true
			l.generation++
		}
		w.note(block.Change{Range: g, Generation: l.generation, Host: by.Host})
	}
}

func (w *watcher) note(c block.Change) {
	// Sequential writes are one extent; it must not hide that a part has been told already.
	if n := len(w.list); n > 0 {
		if o := &w.list[n-1]; o.Generation > w.last && c.Start <= o.End() && o.Start <= c.End() {
			join(o, c)
			return
		}
	}
	if len(w.list) == MaxChanges {
		w.shrink()
	}
	w.list = append(w.list, c)
}

func join(c *block.Change, o block.Change) {
	end := max(c.End(), o.End())
	c.Start = min(c.Start, o.Start)
	c.Count = end - c.Start
	c.Generation = max(c.Generation, o.Generation)
	if c.Host != o.Host {
		c.Host = 0
	}
}

// shrink makes room: first what the host has heard goes, then neighbours become one, with what is
// between them.
func (w *watcher) shrink() {
	n := 0
	for n < len(w.list) && w.list[n].Generation <= w.told {
		n++
	}
	if n > 0 {
		w.since = max(w.since, w.list[n-1].Generation)
		w.list = slices.Delete(w.list, 0, n)
	}
	if len(w.list) <= MaxChanges/2 {
		return
	}
	slices.SortFunc(w.list, func(a, b block.Change) int { return cmp.Compare(a.Start, b.Start) })
	half := w.list[:0]
	for i := 0; i < len(w.list); i += 2 {
		c := w.list[i]
		if i+1 < len(w.list) {
			join(&c, w.list[i+1])
		}
		half = append(half, c)
	}
	w.list = half
	slices.SortFunc(w.list, func(a, b block.Change) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Start, b.Start))
	})
}
