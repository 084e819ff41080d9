// Eviction: a cache that throws out a random block, against LRU, under a loop that is larger than it.
package main

import (
	"time"

	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

// dice evicts any block. A slot has a block from Insert to Remove; all of them are full when one must leave.
type dice struct {
	slots  uint64
	random plug.Random
}

func newDice(c plug.Cache) (plug.Eviction, error) { return &dice{uint64(c.Blocks), c.Random}, nil }

func (d *dice) Insert(slot int, block uint64) {}
func (d *dice) Hit(slot int)                  {}
func (d *dice) Remove(slot int)               {}
func (d *dice) Victim(pinned func(slot int) bool) int {
	for {
		if slot := int(d.random.N(d.slots)); !pinned(slot) {
			return slot
		}
	}
}

func main() {
	s := lab.Scenario{
		Until:   5 * time.Second,
		Arrays:  []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
		Hosts:   []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 48 * lab.MiB}}}},
		Jobs:    []lab.Job{{Name: "loop", Volume: "db", IO: 8 * lab.KiB, Pattern: "sequential", Span: 64 * lab.MiB, Outstanding: 4}},
		Plugged: plug.Policies{Eviction: plug.Evictions{"dice": newDice}},
	}
	lab.Main(s, "hosts.host.cache.db.eviction", []string{"lru", "dice"}, "cache.db.hit_percent")
}
