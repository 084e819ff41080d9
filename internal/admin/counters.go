package admin

import (
	"github.com/arraysim/arraysim/internal/metrics"
)

// counters reads both layers at one instant.
func (d *daemon) counters() Counters {
	var s metrics.Snapshot
	return d.read(&s)
}

// read reads them into s, too, whose memory is used again.
func (d *daemon) read(s *metrics.Snapshot) Counters {
	now := d.groups[0].exec.Now()
	s.Take(now, metrics.Unlocked, d.sources()...)
	live, pools := map[string]uint32{}, map[string]uint32{}
	for _, g := range d.groups {
		g.exec.Lock()
		for _, v := range g.array.Volumes() {
			live[v.Name()] = g.volumeID(v)
		}
		for _, p := range g.array.Pools() {
			pools[p.Name()] = g.poolID(p)
		}
		g.exec.Unlock()
	}
	c := tally(s)
	c.Time = now
	kept := c.Volumes[:0]
	for _, v := range c.Volumes {
		if id, ok := live[v.Volume]; ok {
			v.ID = id
			kept = append(kept, v)
		}
	}
	c.Volumes = kept
	still := c.Pools[:0]
	for _, p := range c.Pools {
		if id, ok := pools[p.Pool]; ok {
			p.ID = id
			still = append(still, p)
		}
	}
	c.Pools = still
	return c
}

// tally adds up samples by volume, by pool and by host, in the order of their appearance.
func tally(s *metrics.Snapshot) Counters {
	c := Counters{Volumes: []VolumeCounters{}, Pools: []PoolCounters{}, Hosts: []HostCounters{}}
	vols, pools, hosts := map[string]int{}, map[string]int{}, map[string]int{}
	s.Each(func(f *metrics.Family, labels []string, value float64, h *metrics.Histogram) {
		at := func(name string) string {
			for i, l := range f.Labels {
				if l == name {
					return labels[i]
				}
			}
			return ""
		}
		if f == metrics.CacheSize {
			c.CacheSize = Size(value)
		}
		if name := at("volume"); name != "" {
			i, ok := vols[name]
			if !ok {
				i = len(c.Volumes)
				vols[name] = i
				c.Volumes = append(c.Volumes, VolumeCounters{Volume: name, Described: map[string]Size{}, Admitted: map[string]Size{}, Destaged: map[string]Size{}, Offloads: map[string]uint64{}})
			}
			if h != nil {
				if f == metrics.HostDuration {
					c.Volumes[i].Timed += h.Count
					c.Volumes[i].Busy += uint64(h.Sum)
				}
			} else {
				c.Volumes[i].add(f, at, Size(value))
			}
		} else if pool := at("pool"); pool != "" && h == nil {
			i, ok := pools[pool]
			if !ok {
				i = len(c.Pools)
				pools[pool] = i
				c.Pools = append(c.Pools, PoolCounters{Pool: pool, Origins: map[string]Size{}, Inflight: map[string]Size{}})
			}
			c.Pools[i].add(f, at, Size(value))
		}
		if f == metrics.HostCommands {
			host := at("host")
			i, ok := hosts[host]
			if !ok {
				i = len(c.Hosts)
				hosts[host] = i
				c.Hosts = append(c.Hosts, HostCounters{Host: host, Commands: map[string]uint64{}})
			}
			c.Hosts[i].Commands[at("op")] += uint64(value)
			if at("status") != "good" {
				c.Hosts[i].Failed += uint64(value)
			}
		}
	})
	return c
}

func (v *VolumeCounters) add(f *metrics.Family, at func(string) string, n Size) {
	if p := at("pool"); p != "" {
		v.Pool = p
	}
	add := func(m map[string]Size, key string) {
		if n > 0 {
			m[key] += n
		}
	}
	switch f {
	case metrics.HostCommands:
		v.Commands += uint64(n)
	case metrics.HostTransferred:
		if at("direction") == "read" {
			v.Read += n
		} else {
			v.Written += n
		}
	case metrics.HostDescribed:
		add(v.Described, at("op"))
	case metrics.HostQueueDepth:
		v.Queue += uint64(n)
	case metrics.OffloadOperations:
		v.Offloads[at("primitive")] += uint64(n)
	case metrics.CacheAdmitted:
		add(v.Admitted, at("origin"))
	case metrics.CacheDestaged:
		add(v.Destaged, at("origin"))
	case metrics.CacheDirty:
		v.Dirty += n
	case metrics.Undercover:
		v.Undercover += n
	}
}

func (p *PoolCounters) add(f *metrics.Family, at func(string) string, n Size) {
	switch f {
	case metrics.CacheUsed:
		p.CacheUsed += n
	case metrics.CacheLimit:
		p.CacheLimit += n
	case metrics.CacheWaiting:
		p.Waiting += n
	case metrics.CachePinned:
		p.Pinned += n
	case metrics.OffloadInflight:
		p.Inflight[at("primitive")] += n
	case metrics.BackendQueue:
		p.Queue += uint64(n)
	case metrics.BackendBytes:
		if at("direction") == "read" {
			p.BackendRead += n
		} else {
			p.BackendWrite += n
			p.Origins[at("origin")] += n
		}
	}
}
