// Sieve: the policy in sieve.go, against LRU and against the one that comes with arraysim.
package main

import (
	"time"

	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

func main() {
	s := lab.Scenario{
		Until:   5 * time.Second,
		Arrays:  []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
		Hosts:   []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 16 * lab.MiB}}}},
		Jobs:    []lab.Job{{Name: "load", Volume: "db", IO: 8 * lab.KiB, Hot: &lab.Hot{Reads: 0.6, Span: 16 * lab.MiB}, Span: 512 * lab.MiB, Outstanding: 8}},
		Plugged: plug.Policies{Eviction: plug.Evictions{"mine": newSieve}},
	}
	lab.Main(s, "hosts.host.cache.db.eviction", []string{"lru", "sieve", "mine"}, "cache.db.hit_percent")
}
