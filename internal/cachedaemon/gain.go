package cachedaemon

import (
	"cmp"
	"slices"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// Gain is what a running cache has spared its clients since its statistics were reset.
type Gain struct {
	LUN    string `json:"lun"`
	Socket string `json:"socket"`
	IOs    uint64 `json:"ios"`
	Hits   int    `json:"cache_hit_rate_percent"`
	// Effective and Datastore are mean latencies in nanoseconds.
	Effective int64 `json:"effective_nanoseconds"`
	Datastore int64 `json:"datastore_nanoseconds"`
	// Saved is the time that clients did not wait, in nanoseconds: each read and write at the
	// datastore's mean latency, less what it took. A disk that has sent nothing to its datastore has
	// nothing to compare with and gains 0.
	Saved int64 `json:"saved_nanoseconds"`
	// Share of the list that Rank was given.
	Share float64 `json:"share"`
}

// Gain computes what the cache of a socket has spared. Its share is Rank's to say.
func (r *Report) Gain(socket string) Gain {
	e, d := r.Views.Effective, r.Views.Datastore
	g := Gain{LUN: r.LUN, Socket: socket, IOs: e.Read.IOs + e.Write.IOs, Hits: r.Cache.HitRate}
	if g.IOs > 0 {
		g.Effective = (e.Read.Nanos + e.Write.Nanos) / int64(g.IOs)
	}
	if n := d.Read.IOs + d.Write.IOs; n > 0 {
		g.Datastore = (d.Read.Nanos + d.Write.Nanos) / int64(n)
	}
	for _, x := range [][2]tier.Flow{{e.Read, d.Read}, {e.Write, d.Write}} {
		if x[0].IOs > 0 && x[1].IOs > 0 {
			g.Saved += int64(x[0].IOs)*x[1].Mean() - x[0].Nanos
		}
	}
	g.Saved = max(g.Saved, 0)
	return g
}

// Rank sorts gains, the most time first, and writes each one's share.
func Rank(list []Gain) {
	total := int64(0)
	for _, g := range list {
		total += g.Saved
	}
	for i := range list {
		list[i].Share = float64(list[i].Saved) / float64(max(total, 1))
	}
	slices.SortStableFunc(list, func(a, b Gain) int { return cmp.Compare(b.Saved, a.Saved) })
}
