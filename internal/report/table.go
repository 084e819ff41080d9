package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// fromTable reads our own table.
func fromTable(source string, rows export.RowReader) (*Data, error) {
	r := export.NewSnapshotReader(rows)
	var rec Recorder
	var s metrics.Snapshot
	for {
		err := r.Read(&s)
		if err == io.EOF { // not one that is wrapped: that of a file which ends too early
			return rec.Data(source), nil
		}
		if err == nil {
			err = rec.Write(&s)
		}
		if err != nil {
			return nil, err
		}
	}
}

// Recorder makes data of snapshots as they come: of a run in this process.
type Recorder struct {
	readings []*reading
	size     float64
	back     int64 // the first time to which the clock went back; 0: it did not
}

// Write takes a snapshot in; it keeps nothing of s. With it, a Recorder is a
// [metrics.SnapshotWriter].
func (r *Recorder) Write(s *metrics.Snapshot) error {
	x, cache := readingOf(s)
	if n := len(r.readings); n > 0 && x.time < r.readings[n-1].time && r.back == 0 {
		r.back = x.time
	}
	r.readings, r.size = append(r.readings, x), max(r.size, cache)
	return nil
}

// Close does nothing.
func (r *Recorder) Close() error { return nil }

// Data returns the time series of what was written.
func (r *Recorder) Data(source string) *Data {
	slices.SortStableFunc(r.readings, func(a, b *reading) int { return cmp.Compare(a.time, b.time) })
	complete(r.readings)
	d := series(source, r.readings, units{bytes: 1, time: 1, endless: true})
	d.CacheSize, d.Exact = r.size, true
	if r.back != 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("the clock of the readings went back to %s: rates about that time are not reliable",
			time.Unix(0, r.back).UTC().Format(time.RFC3339)))
	}
	return d
}

// complete fills in, in readings of our own table in the order of their times, what our array
// leaves out because it is zero. It has no histogram of a volume without a command, and no volume
// before it was made. A table in which a family has no row at all was made without that family:
// there it is not known.
func complete(readings []*reading) {
	durations := slices.ContainsFunc(readings, func(r *reading) bool { return r.durations })
	seen := map[string]bool{}
	for k, r := range readings {
		for name, v := range r.volumes {
			for d := range 2 {
				if durations && math.IsNaN(v.ops[d]) && !math.IsNaN(v.bytes[d]) {
					v.ops[d], v.time[d] = 0, 0
				}
			}
			if !seen[name] && k > 0 {
				readings[k-1].volumes[name] = v.before()
			}
			seen[name] = true
		}
	}
}

// before is a volume before it was made: all that is known of it was zero.
func (v *volumeReading) before() *volumeReading {
	zero := func(x float64) float64 { return x - x } // and what is not known stays so
	w := newVolumeReading(v.pool)
	for d := range 2 {
		w.ops[d], w.bytes[d], w.time[d] = zero(v.ops[d]), zero(v.bytes[d]), zero(v.time[d])
	}
	w.lower, w.held = zero(v.lower), zero(v.held)
	if v.labelled != nil {
		w.labelled = map[string]float64{}
	}
	return w
}

var directions = [2]string{"read", "write"}

func readingOf(s *metrics.Snapshot) (r *reading, cache float64) {
	r = newReading(s.Time)
	r.sums = map[offloadKey]float64{}
	used := map[string]float64{}
	s.Each(func(f *metrics.Family, l []string, x float64, h *metrics.Histogram) {
		switch f {
		case metrics.CacheSize:
			cache = x
		case metrics.HostTransferred: // volume, pool, direction
			v := r.volume(l[0], l[1])
			for d, name := range directions {
				if l[2] == name {
					add(&v.bytes[d], x)
				}
			}
		case metrics.HostDuration: // volume, op
			r.durations = true
			v := r.volume(l[0], "")
			for d, name := range directions {
				if l[1] == name {
					v.ops[d], v.time[d] = float64(h.Count), float64(h.Sum)/1e9
				}
			}
		case metrics.HostDescribed: // volume, pool, op
			v := r.volume(l[0], l[1])
			if v.described == nil {
				v.described = map[string]float64{}
			}
			v.described[l[2]] = x
		case metrics.CacheDirty: // pool, volume, origin
			v := r.volume(l[1], l[0])
			add(&v.held, x)
		case metrics.CacheDestaged:
			v := r.volume(l[1], l[0])
			add(&v.lower, x)
		case metrics.Undercover: // pool, volume, origin
			r.volume(l[1], l[0]).label(l[2], x)
		case metrics.VolumeState: // volume, pool, state
			v := r.volume(l[0], l[1])
			if v.states == nil {
				v.states = map[string]float64{}
			}
			v.states[l[2]] = x
		case metrics.CacheLimit:
			r.pool(l[0]).cap = x
		case metrics.CacheUsed:
			used[l[0]] = x
		case metrics.CacheUsedSeconds:
			r.pool(l[0]).seconds = x
		case metrics.BackendBytes: // pool, mdisk, direction, origin, reason
			p := r.pool(l[0])
			for d, name := range directions {
				if l[2] == name {
					add(&p.back[d], x)
				}
			}
			if l[2] == "write" {
				if p.byOrigin == nil {
					p.byOrigin = map[string]float64{}
				}
				p.byOrigin[l[3]] += x
			}
		case metrics.OffloadBytes: // primitive, src_pool, dst_pool, path
			r.sums[offloadKey{l[0], l[3]}] += x
		}
	})
	for name, x := range used {
		if p := r.pool(name); p.cap > 0 {
			p.full, p.peak = x/p.cap, x/p.cap
		}
	}
	for name, v := range r.volumes {
		if v.pool == "" {
			delete(r.volumes, name) // what no pool has is no volume of ours
		}
	}
	return r, cache
}
