package report

import (
	"errors"
	"io"
	"math"

	"github.com/arraysim/arraysim/internal/metrics"
)

// fromTable reads our own table.
func fromTable(source string, rows metrics.RowReader) (*Data, error) {
	r := metrics.NewSnapshotReader(rows)
	var readings []*reading
	var s metrics.Snapshot
	size := 0.0
	for {
		err := r.Read(&s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		x, cache := readingOf(&s)
		readings, size = append(readings, x), max(size, cache)
	}
	d := series(source, readings, units{1, 1})
	d.CacheSize = size
	return d, nil
}

// Recorder makes data of snapshots as they come: of a run in this process.
type Recorder struct {
	readings []*reading
	size     float64
}

// Write takes a snapshot in; it keeps nothing of s. With it, a Recorder is a
// [metrics.SnapshotWriter].
func (r *Recorder) Write(s *metrics.Snapshot) error {
	x, cache := readingOf(s)
	r.readings, r.size = append(r.readings, x), max(r.size, cache)
	return nil
}

// Close does nothing.
func (r *Recorder) Close() error { return nil }

// Data returns the time series of what was written.
func (r *Recorder) Data(source string) *Data {
	d := series(source, r.readings, units{1, 1})
	d.CacheSize = r.size
	return d
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
					v.bytes[d] = known(v.bytes[d]) + x
				}
			}
		case metrics.HostDuration: // volume, op
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
			v.held = known(v.held) + x
		case metrics.CacheDestaged:
			v := r.volume(l[1], l[0])
			v.lower = known(v.lower) + x
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
					p.back[d] = known(p.back[d]) + x
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
			continue
		}
		// A volume without a command has no histogram yet: zero, not unknown.
		for d := range 2 {
			if math.IsNaN(v.ops[d]) {
				v.ops[d], v.time[d] = 0, 0
			}
			if math.IsNaN(v.bytes[d]) {
				v.bytes[d] = 0
			}
		}
	}
	return r, cache
}
