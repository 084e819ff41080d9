package admin

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// recordPerFile is how many snapshots a recorded table has: at an interval of a minute,
// those of an hour.
const recordPerFile = 60

// recorders are what the counters are recorded by: tables, and iostats XML, of which 16 files
// of each kind are kept, for intervals that it can express. They are made before the doors
// open, so that a folder that cannot be written is refused.
func (d *daemon) recorders() ([]export.SnapshotWriter, error) {
	if d.cfg.Record.Dir == "" {
		return nil, nil
	}
	table, err := export.NewRolling(d.cfg.Record.Dir, recordPerFile, d.cfg.Record.Keep)
	if err != nil {
		return nil, err
	}
	probe, err := os.CreateTemp(d.cfg.Record.Dir, ".probe")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, err
	}
	out := []export.SnapshotWriter{table}
	if d.cfg.Record.Interval >= time.Second {
		io, err := export.NewIOStats(filepath.Join(d.cfg.Record.Dir, "iostats"), export.IOStatsOptions{})
		if err != nil {
			return nil, err
		}
		out = append(out, io)
	}
	return out, nil
}

// recordClock gives the times of a recording. It holds the latest beginning, in nanoseconds since
// 1970, that the wall clock has told.
type recordClock int64

// at is the time of a snapshot by the wall clock, in nanoseconds since 1970, and by the monotonic one,
// which has counted elapsed since the beginning. A wall clock that is set forward is followed. One that
// is set back is not: times and names of files would no longer be in their order, spans would be false,
// and the newest files would be deleted as the oldest.
func (c *recordClock) at(wall int64, elapsed time.Duration) int64 {
	*c = max(*c, recordClock(wall-int64(elapsed)))
	return int64(*c) + int64(elapsed)
}

// record writes snapshots until the stop begins, and one then. A disk that is full ends the
// recording, not the array.
func (d *daemon) record(out []export.SnapshotWriter) {
	start := time.Now()
	var c recordClock
	at := func() int64 {
		now := time.Now()
		return c.at(now.UnixNano(), now.Sub(start))
	}
	t := time.NewTicker(d.cfg.Record.Interval)
	defer t.Stop()
	var s metrics.Snapshot
	var err error
	for ending := false; !ending && err == nil; {
		s.Take(at(), metrics.Unlocked, d.allCounters()...)
		for _, w := range out {
			err = errors.Join(err, w.Write(&s))
		}
		if err == nil {
			select {
			case <-d.closing:
				ending = true
			case <-t.C:
			}
		}
	}
	if err == nil {
		s.Take(at(), metrics.Unlocked, d.allCounters()...)
		for _, w := range out {
			err = errors.Join(err, w.Write(&s))
		}
	}
	for _, w := range out {
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		d.log.Error("the recording of counters ended", "error", err)
	}
}
