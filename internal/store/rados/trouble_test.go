package rados_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/store/rados"
)

// What happens to nodes, to their cluster and to its monitors while a game of take-overs is played.

var errInjected = errors.New("injected")

// fails makes an operation fail at times while there is a bad spell.
func (g *game) fails(*rados.Op) error {
	if g.v.Now() < g.spell && g.rnd.IntN(30) == 0 {
		return errInjected
	}
	return nil
}

// early does something to who has the lock and no epoch yet, which is over within milliseconds, and at times to others.
func (g *game) early(holder *node) {
	for _, n := range slices.Clone(g.nodes) {
		long := g.rnd.Int64N(16e9)
		switch {
		case n.open, n != holder && g.rnd.IntN(4) > 0:
		case g.rnd.IntN(4) == 0:
			n.end()
		default:
			if n == holder && g.rnd.IntN(2) == 0 { // until another one is about to take over
				long = 9e9 + g.rnd.Int64N(4e9)
			}
			n.p.Stop()
			g.v.At(g.v.Now()+long, n.p.Continue)
		}
	}
}

// locked looks until somebody has the lock who is not open, and then does something to it.
func (g *game) locked(end int64) {
	for _, n := range g.nodes {
		if list, err := g.eye.Lockers("array", "owner"); err == nil && len(list) > 0 && !n.open && strings.HasPrefix(list[0].Cookie, fmt.Sprint(n.number, ".")) {
			g.caught++
			g.v.At(g.v.Now()+g.rnd.Int64N(1+g.rnd.Int64N(5e6)), func() { g.early(n) })
			return
		}
	}
	if g.v.Now() < end {
		g.v.At(g.v.Now()+500e3, func() { g.locked(end) })
	}
}

// trouble does something of the first kinds to somebody, and then to another one.
func (g *game) trouble(end int64, kinds int) {
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
			g.c.SetMonitor(g.rnd.Int64N(1 + g.rnd.Int64N(2e9)))
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
		}
	}
	g.v.At(g.v.Now()+g.rnd.Int64N(12e9), func() { g.trouble(end, kinds) })
}
