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

// record writes snapshots until the stop begins, and one then. A disk that is full ends the
// recording, not the array.
func (d *daemon) record(out []export.SnapshotWriter) {
	t := time.NewTicker(d.cfg.Record.Interval)
	defer t.Stop()
	var s metrics.Snapshot
	var err error
	for ending := false; !ending && err == nil; {
		s.Take(time.Now().UnixNano(), metrics.Unlocked, d.allCounters()...)
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
		s.Take(time.Now().UnixNano(), metrics.Unlocked, d.allCounters()...)
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
