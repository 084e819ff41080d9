package rados_test

import (
	"errors"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/store/rados"
)

// What happens to nodes, to their cluster and to its monitors while a game of take-overs is played.

var errInjected = errors.New("injected")

// bad reports whether an operation is to fail: at times, while there is a bad spell, and of locks and watches, of which there
// are few, more often.
func (g *game) bad(op *rados.Op) bool {
	chance := 30
	if op.Priv != nil {
		chance = 4
	}
	return g.v.Now() < g.spell && g.rnd.IntN(chance) == 0
}

// fails makes an operation fail at times. Where the control leaves out the guard of the lease, the raise of an epoch loses it.
func (g *game) fails(op *rados.Op) error {
	if s := op.Steps; g.control == unguarded && len(s) > 2 && s[1].Name == "lease" && s[2].Kind == rados.SetAttr && s[2].Name == "epoch" {
		s[1] = s[0]
	}
	if s := op.Steps; len(s) > 1 && s[1].Kind == rados.SetAttr && s[1].Name == "lease" && strings.Contains(s[1].Value, " ") {
		g.taking()
	}
	if g.bad(op) {
		return errInjected
	}
	return nil
}

// setMonitor changes what a request to the monitors takes.
func (g *game) setMonitor(ns int64) {
	g.monitor = ns
	g.c.SetMonitor(ns)
}

// taking is told that somebody takes a lease away: whoever was stopped until then goes on while that one has it refused, which
// takes two requests to the monitors, or behind that.
func (g *game) taking() {
	for _, n := range g.nodes {
		if n.until {
			n.until = false
			g.v.At(g.v.Now()+g.rnd.Int64N(5e6+2*g.monitor), n.p.Continue)
		}
	}
}

// forgets makes an operation that has taken effect look as if it had failed, at times.
func (g *game) forgets(op *rados.Op) error {
	if !g.bad(op) {
		return nil
	}
	if op.Priv != nil {
		g.unknown++
	}
	return errInjected
}

// forgetsMonitor does so with a request to the monitors.
func (g *game) forgetsMonitor() error {
	if g.v.Now() < g.spell && g.rnd.IntN(3) == 0 {
		g.unheard++
		return errInjected
	}
	return nil
}

// silence has the monitors not answer for a while: a request ends without an effect when its client gives it up.
func (g *game) silence() {
	g.c.MonitorTimeout = 1 + g.rnd.Int64N(5e9)
	g.v.At(g.v.Now()+g.rnd.Int64N(12e9), func() { g.c.MonitorTimeout = 0 })
}

// early does something to who has the lock and no epoch yet, which is over within milliseconds, and at times to others.
func (g *game) early(holder *node) {
	for _, n := range slices.Clone(g.nodes) {
		long := g.rnd.Int64N(16e9)
		switch {
		case n.open, n != holder && g.rnd.IntN(4) > 0:
		case !g.quiet && g.rnd.IntN(4) == 0:
			n.end()
		default:
			if n == holder && (g.quiet || g.rnd.IntN(2) == 0) {
				n.until, long = true, 30e9
			}
			n.p.Stop()
			g.v.At(g.v.Now()+long, n.p.Continue)
		}
	}
}

// locked looks until somebody has the lock who is not open, and then does something to it.
func (g *game) locked(end int64) {
	holder, _ := g.c.Locker("array", "array", "owner")
	for _, n := range g.nodes {
		if !n.open && strings.HasPrefix(holder.Cookie, n.cookie) {
			g.caught++
			g.v.At(g.v.Now()+g.rnd.Int64N(1+g.rnd.Int64N(5e6)), func() { g.early(n) })
			return
		}
	}
	if g.v.Now() < end {
		g.v.Call(g.v.Now()+500e3, func() { g.locked(end) })
	}
}

// trouble does something of the first kinds to somebody, and then to another one.
func (g *game) trouble(end int64, kinds int) {
	g.quiet = false
	if g.v.Now() >= end {
		return
	}
	if len(g.nodes) > 0 {
		n := g.nodes[g.rnd.IntN(len(g.nodes))]
		for _, o := range g.nodes { // mostly the owner
			if o.open && g.rnd.IntN(4) > 0 {
				n = o
			}
		}
		if kinds > 7 {
			if g.rnd.IntN(3) == 0 {
				g.locked(g.v.Now() + 14e9)
			}
			g.setMonitor(g.rnd.Int64N(1 + g.rnd.Int64N(2e9)))
			if g.c.FailMonitor = nil; g.rnd.IntN(6) == 0 {
				g.c.FailMonitor = errInjected
			}
		}
		switch g.rnd.IntN(kinds) {
		case 0, 1:
			n.end()
		case 2, 3, 4:
			n.p.Run(func() { // so that something is under way
				for range places {
					n.write(g.warm())
				}
			})
			g.v.At(g.v.Now()+g.rnd.Int64N(8e6), n.p.Stop)
			g.v.At(g.v.Now()+10e6+g.rnd.Int64N(10e9)*(1+g.rnd.Int64N(4)), n.p.Continue)
		case 5:
			g.c.Stop(g.rnd.IntN(3))
			g.v.At(g.v.Now()+g.rnd.Int64N(12e9), g.c.Continue)
		case 6:
			n.client.Disturb()
		case 7:
			g.spell = g.v.Now() + g.rnd.Int64N(8e9)
		case 8:
			n.stop()
		case 9: // with a take-over in it
			g.spell = g.v.Now() + 2e9 + g.rnd.Int64N(16e9)
			if n.end(); g.rnd.IntN(3) == 0 {
				g.silence()
			}
		}
	}
	g.v.At(g.v.Now()+g.rnd.Int64N(12e9), func() { g.trouble(end, kinds) })
}
