package admin

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/history"
)

// Who waits while offloads write: a finding names the other volumes of its pool whose reads and writes took longer
// meanwhile than before. A name is an accusation, so it needs evidence: enough reads and writes in seconds without
// offloads to compare with, the same demand of the volume's own hosts, no host beside it that began to read or write
// much more, no fault that somebody made, and a source that wrote most of what offloads wrote to the pool. Where any
// of it is missing nothing is known, which is not the same as nobody.

const (
	// A comparison takes so many seconds with reads and writes, and so many of these, on either side.
	enoughSeconds, enoughCommands = 5, 20
	// A volume waits when its mean grew by this factor and by so many nanoseconds.
	slowerFactor, slowerBy = 2, 1e6
	// Demand is the same up to this factor: of commands a second, and of bytes a command.
	sameDemand = 1.2
	// The share of what is written may differ by so much: writes and reads take different times.
	sameMix = 0.2
	// What other hosts read and write may grow by this part of what offloads write.
	quietOthers = 0.2
	// What offloads write is one volume's when it has this part of it.
	mostOfIt = 0.5
	// A pool is calm so many seconds after offloads wrote to it last, if its cache has drained by then.
	calmAfter = 10
	// What was measured in calm weighs less by this factor with every second: the last minute counts.
	fading = 0.98
)

// Victim is a volume that waited while offloads wrote to another one of its pool.
type Victim struct {
	Volume   string `json:"volume"`
	VolumeID uint32 `json:"volume_id"`
	Before   int64  `json:"mean_before_ns" doc:"Mean latency of its reads and writes before offloads wrote to the pool."`
	Mean     int64  `json:"mean_ns" doc:"The mean meanwhile."`
	P99      int64  `json:"p99_ns" doc:"The p99 of the worst second."`
}

// load is what hosts read and wrote of a volume, how long that took, and what offloads wrote to it.
type load struct {
	seconds, active float64 // active: with reads and writes
	commands, busy  float64 // reads and writes; ns
	read, written   float64 // bytes
	undercover      float64 // bytes
	p99             float64 // of the worst second, ns
}

// add adds a second, as the history has it.
func (l *load) add(values []float32, undercover float64) {
	l.seconds++
	l.read += float64(values[0])
	l.written += float64(values[1])
	l.undercover += undercover
	if n := float64(values[timedField]); n > 0 {
		l.active++
		l.commands += n
		l.busy += n * float64(values[timedField+1])
		l.p99 = max(l.p99, float64(values[timedField+2]))
	}
}

func (l *load) fade() {
	for _, f := range []*float64{&l.seconds, &l.active, &l.commands, &l.busy, &l.read, &l.written} {
		*f *= fading
	}
}

func (l *load) enough() bool { return l.active >= enoughSeconds && l.commands >= enoughCommands }

func (l *load) mean() float64 { return l.busy / l.commands }

// traffic is what hosts read and wrote in a second.
func (l *load) traffic() float64 { return (l.read + l.written) / max(l.seconds, 1) }

// like reports whether the hosts of a volume asked for no more than before, and for the same kind of thing.
func (l *load) like(before *load) bool {
	bytes, was := l.read+l.written, before.read+before.written
	mix := l.written/max(bytes, 1) - before.written/max(was, 1)
	return l.commands/l.seconds <= sameDemand*before.commands/before.seconds &&
		bytes/l.commands <= sameDemand*was/before.commands && mix <= sameMix && mix >= -sameMix
}

// slower reports whether it waited longer than before.
func (l *load) slower(before *load) bool {
	return l.mean() >= slowerFactor*before.mean() && l.mean() >= before.mean()+slowerBy
}

// waits compares the latencies of each pool's volumes.
type waits struct {
	found      *findings
	undercover map[uint32]Size // of the reading before, by volume; nil before the first
	pools      map[uint32]*poolWaits
	faults     uint64 // that somebody had made at the reading before
}

// poolWaits are the volumes of a pool, by number.
type poolWaits struct {
	calm  map[uint32]*load
	hot   map[uint32]*load // while offloads write; empty when they do not
	quiet int              // seconds since they wrote last
}

func newWaits(found *findings) *waits { return &waits{found: found, pools: map[uint32]*poolWaits{}} }

// step takes a reading with its rows, after the watcher has taken it; faults is how many have been made so far.
func (w *waits) step(c Counters, rows []history.Row, faults uint64) {
	if faults != w.faults { // whatever was measured, it was another array
		w.faults = faults
		clear(w.pools)
	}
	values := map[string][]float32{}
	for _, r := range rows {
		if r.Kind == kindVolume {
			values[r.Name] = r.Values
		}
	}
	first, last := w.undercover == nil, w.undercover
	w.undercover = make(map[uint32]Size, len(c.Volumes))
	members := map[string][]*VolumeCounters{}
	for i := range c.Volumes {
		v := &c.Volumes[i]
		w.undercover[v.ID] = v.Undercover
		if values[v.Volume] != nil && !first {
			members[v.Pool] = append(members[v.Pool], v)
		}
	}
	live := map[uint32]bool{}
	for i := range c.Pools {
		p := &c.Pools[i]
		live[p.ID] = true
		x := w.pools[p.ID]
		if x == nil {
			x = &poolWaits{calm: map[uint32]*load{}, hot: map[uint32]*load{}}
			w.pools[p.ID] = x
		}
		grown := map[uint32]float64{}
		for _, v := range members[p.Pool] {
			if n := grew(last[v.ID], v.Undercover); n > 0 {
				grown[v.ID] = n
			}
		}
		// Judged by the seconds before this one: a fault that was made in this one is counted by the next.
		for _, v := range members[p.Pool] {
			if grown[v.ID] > 0 && x.hot[v.ID] != nil {
				victims, compared, unknown := x.victims(v.ID, members[p.Pool])
				w.found.waited(v, victims, compared, unknown)
			}
		}
		x.step(p, members[p.Pool], values, grown)
	}
	for id := range w.pools {
		if !live[id] {
			delete(w.pools, id)
		}
	}
}

// step takes a second of a pool in which offloads wrote what has grown, by volume.
func (x *poolWaits) step(p *PoolCounters, members []*VolumeCounters, values map[string][]float32, grown map[uint32]float64) {
	x.quiet++
	if len(grown) > 0 {
		x.quiet = 0
	}
	to := x.hot
	switch {
	case x.quiet == 0:
	case x.quiet <= quietIntervals:
		return // it may go on
	default:
		clear(x.hot)
		if x.quiet <= calmAfter || p.CacheUsed*100 >= p.CacheLimit*fullBelow {
			return
		}
		to = x.calm
		for _, l := range to {
			l.fade()
		}
	}
	kept := map[uint32]bool{}
	for _, v := range members {
		kept[v.ID] = true
		l := to[v.ID]
		if l == nil {
			l = &load{}
			to[v.ID] = l
		}
		l.add(values[v.Volume], grown[v.ID])
	}
	for id := range to {
		if !kept[id] {
			delete(to, id)
		}
	}
}

// victims returns who waited for offloads to the volume source, the slowest first, with how many others could be
// compared, these included, and of how many nothing is known.
func (x *poolWaits) victims(source uint32, members []*VolumeCounters) (list []Victim, compared, unknown int) {
	var all, more float64
	for id, l := range x.hot {
		all += l.undercover / l.seconds
		before := 0.0
		if b := x.calm[id]; b != nil {
			before = b.traffic()
		}
		more += max(0, l.traffic()-before)
	}
	its := x.hot[source]
	clear := its.undercover/its.seconds >= mostOfIt*all && more <= quietOthers*all
	for _, v := range members {
		l, before := x.hot[v.ID], x.calm[v.ID]
		switch {
		case v.ID == source || l == nil || l.commands == 0 && v.Queue == 0: // nobody who could wait
		case before == nil || !before.enough() || !l.enough():
			unknown++
		case !l.slower(before):
			compared++
		case clear && l.like(before):
			compared++
			list = append(list, Victim{Volume: v.Volume, VolumeID: v.ID, Before: int64(before.mean()), Mean: int64(l.mean()), P99: int64(l.p99)})
		default:
			unknown++
		}
	}
	slices.SortStableFunc(list, func(a, b Victim) int { return cmp.Compare(b.Mean, a.Mean) })
	return list, compared, unknown
}
