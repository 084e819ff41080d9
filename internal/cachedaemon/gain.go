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
	Hits   *int   `json:"cache_hit_rate_percent"` // nil without any read
	// Effective and Datastore are mean latencies in nanoseconds; nil without any I/O.
	Effective *int64 `json:"effective_nanoseconds"`
	Datastore *int64 `json:"datastore_nanoseconds"`
	// Saved is the time that clients did not wait, in nanoseconds: each read and write at the
	// datastore's mean latency, less what it took. It is negative if the cache made them wait longer, and nil, for nobody
	// knows it, if clients have read, or written, and the datastore was not seen to do so.
	Saved *int64 `json:"saved_nanoseconds"`
	// Share is that of the positive savings in the list that Rank was given: 0 for a cache that saved nothing or cost
	// time, nil where Saved is, and nil for all if none of them saved anything.
	Share *float64 `json:"share"`
}

// Gain computes what the cache of a socket has spared. Its share is Rank's to say.
func (r *Report) Gain(socket string) Gain {
	e, d := r.Views.Effective, r.Views.Datastore
	mean := func(a, b tier.Flow) *int64 {
		n := int64(a.IOs + b.IOs)
		if n == 0 {
			return nil
		}
		return new((a.Nanos + b.Nanos) / n)
	}
	g := Gain{LUN: r.LUN, Socket: socket, IOs: e.Read.IOs + e.Write.IOs, Hits: r.Cache.HitRate, Effective: mean(e.Read, e.Write), Datastore: mean(d.Read, d.Write)}
	saved := int64(0)
	for _, x := range [][2]tier.Flow{{e.Read, d.Read}, {e.Write, d.Write}} {
		switch {
		case x[0].IOs == 0:
		case x[1].IOs == 0:
			return g
		default:
			saved += int64(x[0].IOs)*x[1].Mean() - x[0].Nanos
		}
	}
	g.Saved = new(saved)
	return g
}

// Rank sorts gains, the most time first, a loss behind zero and what is not known last, and writes each one's share.
func Rank(list []Gain) {
	total := int64(0)
	for _, g := range list {
		if g.Saved != nil {
			total += max(*g.Saved, 0)
		}
	}
	for i := range list {
		if g := &list[i]; g.Saved != nil && total > 0 {
			g.Share = new(float64(max(*g.Saved, 0)) / float64(total))
		}
	}
	slices.SortStableFunc(list, func(a, b Gain) int {
		if a.Saved == nil || b.Saved == nil {
			return cmp.Compare(known(b.Saved), known(a.Saved))
		}
		return cmp.Compare(*b.Saved, *a.Saved)
	})
}

func known(saved *int64) int {
	if saved == nil {
		return 0
	}
	return 1
}
