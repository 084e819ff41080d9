// Eviction: a cache that throws out a random block, against LRU, under a loop that is larger than it.
package main

import (
	"context"
	"fmt"
	"log"
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
	for _, policy := range []string{"lru", "dice"} {
		s := lab.Scenario{
			Until:  5 * time.Second,
			Arrays: []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
			Hosts:  []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 48 * lab.MiB, Eviction: policy}}}},
			Jobs:   []lab.Job{{Name: "loop", Volume: "db", IO: 8 * lab.KiB, Pattern: "sequential", Span: 64 * lab.MiB, Outstanding: 4}},
		}
		s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"dice": newDice}
		res, err := s.Run(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		hits, err := res.Value("cache.db.hit_percent")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-4s  %.1f %% hits\n", policy, hits)
	}
}
