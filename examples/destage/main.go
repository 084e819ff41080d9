// Destage: the volume with the most dirty data goes first, and only above three quarters of the partition.
package main

import (
	"time"

	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

type greedy struct{}

func (greedy) Rate(f plug.Fullness) int64 {
	if f.Waiting || f.Used > f.Limit*3/4 {
		return -1 // as fast as the disks
	}
	return 0
}
func (greedy) Next(volumes []plug.DirtyVolume) int {
	most := 0
	for i := range volumes {
		if volumes[i].Dirty > volumes[most].Dirty {
			most = i
		}
	}
	return most
}

func main() {
	s := lab.Scenario{
		Until: 20 * time.Second,
		Arrays: []lab.Array{{Name: "array", Profile: "none", Cache: 64 * lab.MiB, Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}},
			Adjust:  map[string]any{"mdisks.default": map[string]any{"parallel": 4, "base": "2ms"}},
			Volumes: []lab.Volume{{Name: "small", Size: lab.GiB, Filled: lab.GiB}, {Name: "large", Size: lab.GiB, Filled: lab.GiB}}}},
		Hosts:   []lab.Host{{Name: "host"}},
		Jobs:    []lab.Job{{Name: "a", Volume: "small", IO: 4 * lab.KiB, Write: 1, Rate: 100}, {Name: "b", Volume: "large", IO: 4 * lab.KiB, Write: 1, Rate: 1900}},
		Plugged: plug.Policies{Destage: plug.Destages{"greedy": func(plug.Partition) (plug.Destage, error) { return greedy{}, nil }}},
	}
	lab.Main(s, "arrays.array.destage", []string{"", "greedy"}, "pool.pool.fullness_mean", "volume.small.held_mb", "volume.large.held_mb")
}
