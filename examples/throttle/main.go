// Throttle: writes are held back in proportion to the dirty data above the threshold, up to ten destages' time.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

type linear struct{ most int64 } // of the time that a destage takes

func newLinear(plug.Cache) (plug.Throttle, error) { return linear{most: 10}, nil }

func (l linear) Delay(a plug.Area) int64 {
	if a.Dirty <= a.Threshold {
		return 0
	}
	return l.most * a.Destage * int64((a.Dirty-a.Threshold)>>10) / int64((a.Size-a.Threshold)>>10)
}

func main() {
	for _, policy := range []string{"", "linear"} {
		s := lab.Scenario{
			Until: 3 * time.Second,
			Arrays: []lab.Array{{Profile: "purity-5.0", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}},
				Volumes: []lab.Volume{{Name: "vm", Size: lab.GiB, Filled: lab.GiB}}}},
			Hosts: []lab.Host{{Name: "host", DestageSlots: 4, Cache: []lab.Cache{{Volume: "vm", Policy: "write_back", Size: 64 * lab.MiB, Block: 4 * lab.KiB, Area: 4 * lab.MiB, Throttle: policy}}}},
			Jobs:  []lab.Job{{Name: "writes", Volume: "vm", IO: 4 * lab.KiB, Write: 1, Outstanding: 64}},
		}
		s.Plugged.Throttle = map[string]func(plug.Cache) (plug.Throttle, error){"linear": newLinear}
		res, err := s.Run(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		full, err := res.Value("cache.vm.occupancy_max")
		if err != nil {
			log.Fatal(err)
		}
		p99, err := res.Percentile("writes", 99)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-6s  area %.1f %% full, 99 %% of the writes within %s\n", policy, full, p99.Round(10*time.Microsecond))
	}
}
