// Package lookup has those wait who only look at ranges of a map, until all leaves are in memory that they
// need. It knows no request.
package lookup

import (
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// Outcome is how a wait has gone on.
type Outcome uint8

const (
	Here    Outcome = iota // all leaves are there
	Waits                  // one is being read
	Failed                 // one cannot be read
	TooMany                // the ranges have more runs than wanted: not all leaves are there
)

// Wait is somebody's wait for leaves, which it keeps meanwhile. Its ticket's waiter calls Next when it is
// resumed, and Release when it has what it needs, or gives up. It is recycled by its owner.
type Wait struct {
	ticket.Ticket
	m      *extent.Map
	ranges []block.Range
	use    extent.Use
	most   int // runs
	pins   demand.Pins

	// The range, and how much of it, before which all is present, and the least number of runs that this has.
	at    int
	in    uint64
	least int
}

// Begin begins to wait for the leaves of ranges of a map, which stay as they are, for a use; of Look, for no
// more than so many runs.
func (w *Wait) Begin(m *extent.Map, ranges []block.Range, use extent.Use, most int) Outcome {
	w.m, w.ranges, w.use, w.most = m, ranges, use, most
	w.at, w.in, w.least = 0, 0, 0
	for _, g := range ranges {
		m.Keep(&w.pins, g, use)
	}
	return w.next()
}

// Next goes on when a leaf has come, or could not be read.
func (w *Wait) Next(failing error) Outcome {
	if failing != nil {
		return Failed
	}
	return w.next()
}

func (w *Wait) next() Outcome {
	for ; w.at < len(w.ranges); w.at, w.in = w.at+1, 0 {
		for g := w.ranges[w.at]; w.in < g.Count; {
			rest := block.Range{Start: g.Start + w.in, Count: g.Count - w.in}
			if q := w.m.Missing(rest, w.use); w.use != extent.Look {
				if q != nil {
					q.Push(&w.Ticket)
					return Waits
				}
				break
			}
			here := w.m.Present(rest)
			if here == 0 {
				w.m.Missing(block.Range{Start: rest.Start, Count: 1}, extent.Look).Push(&w.Ticket)
				return Waits
			}
			rest.Count = here
			w.m.Walk(rest, func(extent.Run) bool { w.least++; return w.least <= w.most })
			if w.least > w.most {
				return TooMany
			}
			w.least-- // the last run may go on
			w.in += here
		}
	}
	return Here
}

// Release ends the wait, and lets its leaves go.
func (w *Wait) Release() {
	if w.Queued() {
		w.Leave()
	}
	w.pins.Release()
	w.m, w.ranges = nil, nil
	w.Reset()
}
