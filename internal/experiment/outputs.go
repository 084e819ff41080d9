package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/tidy"
)

// What attachments leave in a run's folder. Until a run has ended, the folder of its statistics files is called otherwise.
const (
	tableFile, esxtopFile, iostatsFolder  = "counters.parquet", "esxtop.csv", "iostats"
	fioFile, fioLatencyFile, blkparseFile = "io.fio", "io_lat.1.log", "io.blkparse"

	partial = ".part"
)

// evidence are files that every run leaves: a folder that has them all has a run's files.
var evidence = []string{"volumes.csv", "pools.csv", "report.txt", "result.json"}

// hasRun tells whether a run has left its files in a folder.
func hasRun(dir string) bool {
	return !slices.ContainsFunc(evidence, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err != nil
	})
}

// WriteOutputs writes the counters, event log, report and time series of each run into its folder, up to where it was
// interrupted. A run that did not begin is nil: what is in its folder stays. Of an earlier run in the same folder, the counters
// and host caches that this one does not have are removed, for a report would read them as this one's; attached are what
// attachments have left there.
func WriteOutputs(dir string, grid []*sim.Scenario, runs []*sim.Run, attached ...string) error {
	for i, r := range runs {
		if r == nil {
			continue
		}
		at := Folder(dir, len(runs), grid[i])
		if err := os.MkdirAll(at, 0o777); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		files := r.Output()
		if err := forget(at, func(name string) bool { return files[name] != nil || slices.Contains(attached, name) }); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		for name, b := range files {
			if err := tidy.ReplaceBytes(filepath.Join(at, name), b); err != nil {
				return fmt.Errorf("output: %w", err)
			}
		}
	}
	return nil
}

// forget removes what a report reads of an earlier run from its folder, but what stays, and nothing that a run does not leave. Logs
// of I/Os stay: a replay may be reading them.
func forget(dir string, stays func(name string) bool) error {
	if !hasRun(dir) {
		return nil
	}
	var errs []error
	for _, name := range []string{report.HostCacheFile, tableFile, esxtopFile} {
		if !stays(name) {
			errs = append(errs, gone(os.Remove(filepath.Join(dir, name))))
		}
	}
	if !stays(iostatsFolder) {
		errs = append(errs, forgetStatistics(filepath.Join(dir, iostatsFolder)))
	}
	return errors.Join(errs...)
}

// othersStatistics is an error where a folder has statistics files, and no run has left them there.
func othersStatistics(dir string) error {
	files, err := os.ReadDir(filepath.Join(dir, iostatsFolder))
	if err != nil || hasRun(dir) {
		return gone(err)
	}
	if slices.ContainsFunc(files, func(f fs.DirEntry) bool { return isStatistics(f.Name()) }) {
		return fmt.Errorf("output: %s has statistics files of others; give another --out", filepath.Join(dir, iostatsFolder))
	}
	return nil
}

// gone is nil for what was not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// isStatistics tells whether a file is one of a set of statistics.
func isStatistics(name string) bool {
	kind, _, set := strings.Cut(name, "_stats_")
	return set && slices.Contains([]string{"Nn", "Nv", "Nm", "Nd"}, kind) || name == "lsvdisk" || name == "lsmdiskgrp"
}

// forgetStatistics removes statistics files from a folder, and the folder if there is nothing else in it.
func forgetStatistics(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return gone(err)
	}
	left := 0
	var errs []error
	for _, f := range files {
		if isStatistics(f.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, f.Name())))
			continue
		}
		left++
	}
	if left == 0 {
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}

// replaceStatistics puts the statistics files of a folder in the place of those of an older one.
func replaceStatistics(dir, old string) error {
	if err := forgetStatistics(old); err != nil {
		return err
	}
	if err := os.Mkdir(old, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(dir, f.Name()), filepath.Join(old, f.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
