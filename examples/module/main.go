// Module: an eviction policy that is not Go, ../wasm/clock.c, against the same policy built in.
package main

import (
	"time"

	"github.com/arraysim/arraysim/lab"
)

func main() {
	s := lab.Scenario{
		Until:  5 * time.Second,
		Arrays: []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
		Hosts:  []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 32 * lab.MiB}}}},
		Jobs:   []lab.Job{{Name: "load", Volume: "db", IO: 8 * lab.KiB, Hot: &lab.Hot{Reads: 0.8, Span: 24 * lab.MiB}, Span: 256 * lab.MiB, Outstanding: 4}},
	}
	lab.Main(s, "hosts.host.cache.db.eviction", []string{"clock", lab.Wasm("../wasm/clock.wasm")}, "cache.db.hit_percent")
}
