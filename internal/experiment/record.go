package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/tidy"
)

// recording is what a run's counters are written to, under other names until commit. The zero value records nothing.
type recording struct {
	files      []*tidy.Output
	writers    []export.SnapshotWriter
	statistics string // the folder of statistics files; "" if there are none
	failed     error
}

// noLock is for sources that belong to the goroutine that asks them.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// record begins a recording of r for a folder, at an interval of the run's own time.
func record(dir string, interval time.Duration, r *sim.Run) (_ *recording, err error) {
	c := &recording{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.abort())
		}
	}()
	for _, name := range []string{tableFile, esxtopFile} {
		f, err := tidy.Create(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, f)
	}
	c.writers = []export.SnapshotWriter{export.NewParquet(c.files[0]), export.NewESXTop(c.files[1], "")}
	if interval >= time.Second {
		c.statistics = filepath.Join(dir, iostatsFolder)
		if err := os.RemoveAll(c.statistics + partial); err != nil { // of a run that was killed: this one has the folder for itself
			return nil, err
		}
		// All files of a run are kept: nobody fetches them while it goes on.
		io, err := export.NewIOStats(c.statistics+partial, export.IOStatsOptions{Panel: runPanel, Keep: 1 << 30})
		if err != nil {
			return nil, err
		}
		c.writers = append(c.writers, io)
	}
	var snap metrics.Snapshot
	r.Every(int64(interval), func(now int64) {
		snap.Take(report.ScenarioStart.UnixNano()+now, noLock{}, r)
		for _, w := range c.writers {
			if c.failed == nil {
				c.failed = w.Write(&snap)
			}
		}
	})
	return c, nil
}

// end completes the files. Commit or abort follows.
func (c *recording) end() error {
	var errs []error
	for _, w := range c.writers {
		errs = append(errs, w.Close())
	}
	if c.failed != nil {
		return c.failed // what Close says follows from it
	}
	for _, f := range c.files {
		errs = append(errs, f.Sync()) // a file system may say only here that it is full
	}
	return errors.Join(errs...)
}

// commit gives the files their names, the table last: with it alone there is a recording.
func (c *recording) commit() error {
	for len(c.files) > 0 {
		last := len(c.files) - 1
		f := c.files[last]
		c.files = c.files[:last]
		if err := f.Commit(); err != nil {
			return errors.Join(err, c.abort())
		}
	}
	if c.statistics != "" {
		return placeStatistics(c.statistics+partial, c.statistics)
	}
	return nil
}

// abort removes the files.
func (c *recording) abort() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Abort())
	}
	if c.statistics != "" {
		errs = append(errs, os.RemoveAll(c.statistics+partial))
	}
	return errors.Join(errs...)
}
