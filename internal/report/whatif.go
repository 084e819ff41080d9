package report

import "math"

// Share is what part of a tower goes when one of its causes is taken away: 1 is all of
// it. The two are counterfactuals of one another and need not add up to 1.
type Share struct {
	Offload float64 `json:"without_offload"`
	Cap     float64 `json:"without_cap"`
	// What the model was fitted to.
	Drain    float64 `json:"drain_rate"`    // bytes a second that leave the cache when it is full
	Hosts    float64 `json:"host_rate"`     // bytes a second that hosts write
	Intake   float64 `json:"copy_rate"`     // bytes a second that the copy gets when it is full
	Queued   float64 `json:"queued_bytes"`  // that the copy keeps waiting at the cap
	Room     float64 `json:"room_bytes"`    // that was free when it began
	Whole    float64 `json:"whole_bytes"`   // the cache without partitions
	Observed float64 `json:"tower_seconds"` // mean wait of a write, over the tower
}

// partition is one pool's write cache as a fluid: a tank of a cap that drains at a
// rate, into which hosts pour what they write whatever happens, and a copy what there is
// room for. Who waits, waits in one queue: the copy keeps a constant amount in it.
type partition struct {
	cap, level, drain float64
	hosts             float64 // bytes a second
	copy, left        float64 // bytes a second the copy could go, bytes it has to go
	queued            float64
}

// waits is the integral over time of what a host's write waits, in seconds times
// seconds, in a time that covers the copy, and how long the longest wait is.
func (t partition) waits(seconds float64) (area, top float64) {
	const step = 0.5
	backlog := 0.0 // of hosts
	for now := 0.0; now < seconds; now += step {
		in := t.hosts * step
		offered := 0.0
		if t.left > 0 {
			offered = min(t.copy*step, t.left)
		}
		room := t.cap - t.level + t.drain*step
		wait := 0.0
		if in+backlog+offered <= room {
			t.level = max(t.level+in+backlog+offered-t.drain*step, 0)
			t.left -= offered
			backlog = 0
		} else {
			// Full: what drains is what is admitted, first come first served. A write finds
			// the copy's queue and the hosts' before it.
			queue := backlog
			if offered > 0 {
				queue += t.queued
			}
			wait = queue / t.drain
			admitted := min(room, in+backlog)
			backlog += in - admitted
			t.left -= min(offered, max(room-admitted, 0))
			t.level = t.cap
		}
		area += wait * step
		top = max(top, wait)
	}
	return area, top
}

// policy is what part of the write cache a pool may take, by the number of pools.
var policy = [...]float64{1, 1, 0.66, 0.40, 0.30, 0.25}

// whole is the write cache without partitions.
func (d *Data) whole(limit float64) float64 {
	if d.CacheSize > 0 {
		return d.CacheSize
	}
	return limit / policy[min(len(d.Pools), len(policy)-1)]
}

// shares fits the model to a tower and takes the offload away, then the cap.
func (d *Data) shares(t *Tower, p *Pool, vols []*Volume, u *Undercover) *Share {
	s := &Share{}
	time, hosts, below, waited, writes := 0.0, 0.0, 0.0, 0.0, 0.0
	for i := t.from; i <= t.to; i++ {
		dt := d.seconds(i)
		time += dt
		for _, v := range vols {
			hosts += known(v.Host[write][i]) * dt
			below += known(v.Lower[i]) * dt
			waited += known(v.Time[write][i]) * dt
			writes += known(v.Ops[write][i]) * dt
		}
	}
	var usual []float64
	for i := range d.Times {
		if i < t.from || i > t.to {
			w, n := 0.0, 0.0
			for _, v := range vols {
				w, n = w+known(v.Time[write][i]), n+known(v.Ops[write][i])
			}
			if n > 0 {
				usual = append(usual, w/n)
			}
		}
	}
	if time == 0 || writes == 0 || below == 0 {
		return nil
	}
	s.Hosts, s.Drain = hosts/time, below/time
	s.Observed = max(waited/writes-known(quantile(usual, 0.5)), 0)
	s.Intake = max(s.Drain-s.Hosts, 0)
	limit := known(p.Cap[t.from])
	full := quantile(p.Full, 0.33)
	s.Room, s.Whole = limit*max(1-known(full), 0), d.whole(limit)
	// Little's law: what the copy keeps waiting passes at the rate at which the cache drains.
	s.Queued = s.Observed * s.Drain
	if limit == 0 || s.Observed == 0 {
		return nil
	}
	copyTime := max(u.Bytes/max(s.Intake, 1), time)
	base := partition{cap: limit, level: limit - s.Room, drain: s.Drain, hosts: s.Hosts, copy: 1.5 * max(u.Rate, s.Intake), left: u.Bytes, queued: s.Queued}
	horizon := copyTime + 60
	area, _ := base.waits(horizon)
	if area == 0 {
		return nil
	}
	alone := base
	alone.left, alone.queued = 0, 0
	a, _ := alone.waits(horizon)
	s.Offload = clamp(1 - a/area)
	open := base
	open.cap = s.Whole
	a, _ = open.waits(horizon)
	s.Cap = clamp(1 - a/area)
	return s
}

func clamp(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, 0), 1)
}
