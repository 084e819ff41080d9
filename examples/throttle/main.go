// Throttle: writes are held back in proportion to the dirty data above the threshold, up to ten destages' time.
package main

import (
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
	s := lab.Scenario{
		Until: 3 * time.Second,
		Arrays: []lab.Array{{Profile: "purity-5.0", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}},
			Volumes: []lab.Volume{{Name: "vm", Size: lab.GiB, Filled: lab.GiB}}}},
		Hosts:   []lab.Host{{Name: "host", DestageSlots: 4, Cache: []lab.Cache{{Volume: "vm", Policy: "write_back", Size: 64 * lab.MiB, Block: 4 * lab.KiB, Area: 4 * lab.MiB}}}},
		Jobs:    []lab.Job{{Name: "writes", Volume: "vm", IO: 4 * lab.KiB, Write: 1, Outstanding: 64}},
		Plugged: plug.Policies{Throttle: plug.Throttles{"linear": newLinear}},
	}
	lab.Main(s, "hosts.host.cache.vm.throttle", []string{"", "linear"}, "cache.vm.occupancy_max", "job.writes.p99_ms")
}
