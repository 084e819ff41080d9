package experiment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/tidy"
)

// Recording writes a run's counters into its folder, at an interval of its own time: Parquet, esxtop's CSV and, at
// intervals of a second or more, iostats XML.
type Recording struct {
	Interval time.Duration
	Dir      func(*sim.Scenario) string
}

// noLock is for sources that belong to the goroutine that asks them.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// Attach begins to record r; done completes the files of a run that is to keep them.
func (c *Recording) Attach(s *sim.Scenario, r *sim.Run) (done func(keep bool) error, err error) {
	dir := c.Dir(s)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if c.Interval >= time.Second {
		if err := othersStatistics(dir); err != nil {
			return nil, err
		}
	}
	table, err := tidy.Create(filepath.Join(dir, tableFile))
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	top, err := tidy.Create(filepath.Join(dir, esxtopFile))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output: %w", err), table.Abort())
	}
	writers := []export.SnapshotWriter{export.NewParquet(table), export.NewESXTop(top, "")}
	statistics := filepath.Join(dir, iostatsFolder)
	if c.Interval >= time.Second {
		// All files of a run are kept: nobody fetches them while it goes on.
		err := os.RemoveAll(statistics + partial) // of a run that was killed
		if err == nil {
			var io *export.IOStats
			io, err = export.NewIOStats(statistics+partial, export.IOStatsOptions{Keep: 1 << 30})
			writers = append(writers, io)
		}
		if err != nil {
			return nil, errors.Join(err, table.Abort(), top.Abort())
		}
	}
	var snap metrics.Snapshot
	var failed error
	r.Every(int64(c.Interval), func(now int64) {
		snap.Take(report.ScenarioStart.UnixNano()+now, noLock{}, r)
		for _, w := range writers {
			if failed == nil {
				failed = w.Write(&snap)
			}
		}
	})
	return func(keep bool) error {
		errs := []error{failed}
		for _, w := range writers {
			errs = append(errs, w.Close())
		}
		keep = keep && errors.Join(errs...) == nil
		if keep && c.Interval >= time.Second {
			err := replaceStatistics(statistics+partial, statistics)
			errs, keep = append(errs, err), err == nil
		}
		end := (*tidy.Output).Commit
		if !keep { // the files of a run before stay as they are
			end = (*tidy.Output).Abort
		}
		return errors.Join(append(errs, end(table), end(top), os.RemoveAll(statistics+partial))...)
	}, nil
}

// Files are the names of what it leaves in a run's folder.
func (c *Recording) Files() []string {
	files := []string{tableFile, esxtopFile}
	if c.Interval >= time.Second {
		files = append(files, iostatsFolder)
	}
	return files
}
