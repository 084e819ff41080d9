package admin

import (
	"slices"

	"github.com/arraysim/arraysim/internal/metrics"
)

// counters reads both layers at one instant.
func (d *daemon) counters() Counters {
	now := d.exec.Now()
	samples := metrics.Collect(d.exec, d.array, d.target)
	d.exec.Lock()
	var live []string
	for _, v := range d.array.Volumes() {
		live = append(live, v.Name())
	}
	d.exec.Unlock()
	c := tally(samples)
	c.Time = now
	c.Volumes = slices.DeleteFunc(c.Volumes, func(v VolumeCounters) bool { return !slices.Contains(live, v.Volume) })
	return c
}

// tally adds up samples by volume and by pool, in the order of their appearance.
func tally(samples []metrics.Sample) Counters {
	c := Counters{Volumes: []VolumeCounters{}, Pools: []PoolCounters{}}
	vols, pools := map[string]int{}, map[string]int{}
	for _, s := range samples {
		name, pool, n := s.Labels["volume"], s.Labels["pool"], Size(s.Value)
		if s.Family == metrics.CacheSize {
			c.CacheSize = n
		}
		if name != "" {
			i, ok := vols[name]
			if !ok {
				i = len(c.Volumes)
				vols[name] = i
				c.Volumes = append(c.Volumes, VolumeCounters{Volume: name, Described: map[string]Size{}, Admitted: map[string]Size{}, Destaged: map[string]Size{}})
			}
			c.Volumes[i].add(s, n)
		} else if pool != "" {
			i, ok := pools[pool]
			if !ok {
				i = len(c.Pools)
				pools[pool] = i
				c.Pools = append(c.Pools, PoolCounters{Pool: pool})
			}
			c.Pools[i].add(s, n)
		}
	}
	return c
}

func (v *VolumeCounters) add(s metrics.Sample, n Size) {
	if p := s.Labels["pool"]; p != "" {
		v.Pool = p
	}
	add := func(m map[string]Size, key string) {
		if n > 0 {
			m[key] += n
		}
	}
	switch s.Family {
	case metrics.HostCommands:
		v.Commands += uint64(n)
	case metrics.HostTransferred:
		if s.Labels["direction"] == "read" {
			v.Read += n
		} else {
			v.Written += n
		}
	case metrics.HostDescribed:
		add(v.Described, s.Labels["op"])
	case metrics.CacheAdmitted:
		add(v.Admitted, s.Labels["origin"])
	case metrics.CacheDestaged:
		add(v.Destaged, s.Labels["origin"])
	case metrics.CacheDirty:
		v.Dirty += n
	case metrics.Undercover:
		v.Undercover += n
	}
}

func (p *PoolCounters) add(s metrics.Sample, n Size) {
	switch s.Family {
	case metrics.CacheUsed:
		p.CacheUsed += n
	case metrics.CacheLimit:
		p.CacheLimit += n
	case metrics.CacheWaiting:
		p.Waiting += n
	case metrics.BackendBytes:
		if s.Labels["direction"] == "read" {
			p.BackendRead += n
		} else {
			p.BackendWrite += n
		}
	}
}
