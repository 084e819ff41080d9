// Placement: a copy shares the data of its source while the write cache is full, and moves it while there is room.
package main

import (
	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

type polite struct{}

func newPolite(plug.Array) (plug.Placement, error) { return polite{}, nil }

func (polite) Place(c plug.Copy) plug.Way {
	if c.Used > c.Limit/2 {
		return plug.Reference
	}
	return plug.Data
}

func main() {
	s := lab.Scenario{
		Arrays: []lab.Array{{Name: "array", Profile: "svc", Cache: 64 * lab.MiB, Copy: "data", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Count: 2, Size: 8 * lab.GiB}}}},
			Volumes: []lab.Volume{{Name: "gold", Size: lab.GiB, Filled: lab.GiB}, {Name: "clone", Size: lab.GiB}}}},
		Hosts:   []lab.Host{{Name: "host"}},
		Jobs:    []lab.Job{{Name: "copy", Kind: "clone", Volume: "gold", To: "clone"}},
		Plugged: plug.Policies{Placement: plug.Placements{"polite": newPolite}},
	}
	lab.Main(s, "arrays.array.placement", []string{"", "polite"}, "job.copy.seconds", "pool.pool.fullness_max", "metric.offload_bytes_total,path=metadata")
}
