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
)

// recording is what a run's counters are written to. The zero value records nothing.
type recording struct {
	files   []*os.File
	writers []export.SnapshotWriter
	failed  error
}

// noLock is for sources that belong to the goroutine that asks them.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// record begins a recording of r into a folder, at an interval of the run's own time.
func record(to *folder, interval time.Duration, r *sim.Run) (_ *recording, err error) {
	c := &recording{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for _, name := range []string{tableFile, esxtopFile} {
		f, err := os.Create(filepath.Join(to.part, name))
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, f)
	}
	c.writers = []export.SnapshotWriter{export.NewParquet(c.files[0]), export.NewESXTop(c.files[1], "")}
	if interval >= time.Second {
		// All files of a run are kept: nobody fetches them while it goes on.
		io, err := export.NewIOStats(filepath.Join(to.part, iostatsFolder), export.IOStatsOptions{Panel: runPanel, Keep: 1 << 30})
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

// end completes the files and has them on the disk.
func (c *recording) end() error {
	var errs []error
	for _, w := range c.writers {
		errs = append(errs, w.Close())
	}
	if c.failed != nil {
		errs = []error{c.failed} // what Close says follows from it
	}
	for _, f := range c.files {
		errs = append(errs, f.Sync()) // a file system may say only here that it is full
	}
	return errors.Join(append(errs, c.close())...)
}

func (c *recording) close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
