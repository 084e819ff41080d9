// Requests that only look at a map: they wait for its leaves first, where some are absent (package lookup).

package request

import (
	"math"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/lookup"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// looking is a request that only looks at a map, and waits for leaves of it.
type looking struct {
	lookup.Wait
	e    *Engine
	v    *Volume
	req  *block.Request
	one  [1]block.Range
	next *looking // that is free
}

// look carries out a request that only looks at a map, when the leaves are there that it needs.
func (e *Engine) look(v *Volume, r *block.Request) {
	if e.arena.Absent() == 0 {
		e.see(v, r)
		return
	}
	l := e.freeLook
	if l == nil {
		l = &looking{e: e}
		l.Init(l)
	} else {
		e.freeLook = l.next
	}
	l.v, l.req, r.Priv = v, r, l
	v.ops++
	l.one[0] = r.Range
	ranges, use, most := l.one[:], extent.Look, math.MaxInt
	switch r.Op {
	case block.OpStatus:
		l.one[0].Count, use = 1, extent.States
	case block.OpHold:
		ranges, most = r.Ranges, e.copies.Held.Room(r)
	}
	l.goOn(l.Begin(v.Map, ranges, use, most))
}

// see carries out a request that only looks at the map, of which all is there that it needs.
func (e *Engine) see(v *Volume, r *block.Request) {
	switch r.Op {
	case block.OpRead:
		e.startRead(v, r)
	case block.OpStatus:
		v.FillStatus(r)
		e.finishRead(v, r, pool.Covered(r), block.OK)
	case block.OpHold:
		h := v.hold(r)
		if h == nil {
			e.finish(r, block.Resources)
			return
		}
		r.Ref = h
		e.finish(r, block.OK)
	}
}

// Resume goes on with a request whose leaf has come, or cannot be read.
func (l *looking) Resume() {
	s := l.v.CheckRange(l.req)
	switch {
	case l.e.stopped:
		l.end(block.Gone)
	case s != block.OK: // its volume has become smaller
		l.end(s)
	default:
		l.goOn(l.Next(l.e.arena.Demand().Failing()))
	}
}

// goOn carries the request out, if it does not wait.
func (l *looking) goOn(o lookup.Outcome) {
	switch e, v, r := l.e, l.v, l.req; o {
	case lookup.Here:
		l.free()
		e.see(v, r)
	case lookup.Failed:
		l.end(block.MediumRead)
	case lookup.TooMany:
		l.end(block.Resources)
	}
}

// cancel withdraws the request.
func (l *looking) cancel() {
	l.end(block.Cancelled)
	l.e.EndStep()
}

func (l *looking) end(s block.Status) {
	e, r := l.e, l.req
	l.free()
	e.finish(r, s)
}

// free recycles what has waited.
func (l *looking) free() {
	l.Release()
	l.req.Priv = nil
	l.v.ops--
	l.v, l.req = nil, nil
	l.next, l.e.freeLook = l.e.freeLook, l
}
