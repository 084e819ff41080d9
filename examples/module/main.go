// Module: an eviction policy that is not Go, ../wasm/clock.c, against the same policy built in.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/arraysim/arraysim/lab"
)

func main() {
	for _, policy := range []string{"clock", lab.Wasm("../wasm/clock.wasm")} {
		s := lab.Scenario{
			Until:  5 * time.Second,
			Arrays: []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
			Hosts:  []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 32 * lab.MiB, Eviction: policy}}}},
			Jobs:   []lab.Job{{Name: "load", Volume: "db", IO: 8 * lab.KiB, Hot: &lab.Hot{Reads: 0.8, Span: 24 * lab.MiB}, Span: 256 * lab.MiB, Outstanding: 4}},
		}
		res, err := s.Run(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		hits, err := res.Value("cache.db.hit_percent")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-24s  %.1f %% hits\n", policy, hits)
	}
}
