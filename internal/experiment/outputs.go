package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	return !slices.ContainsFunc(evidence, func(name string) bool { return !exists(filepath.Join(dir, name)) })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Outputs leaves the counters, event log, report and time series of each run in a folder of its own, and with Record above 0 all
// counters at this interval of simulated time: Parquet, esxtop's CSV and, at intervals of a second or more, iostats XML.
type Outputs struct {
	Dir    func(*sim.Scenario) string
	Record time.Duration
}

// Check refuses folders with files of others that a recording would replace. Runs whose folders have been checked may begin.
func (o *Outputs) Check(grid []*sim.Scenario) error {
	for _, s := range grid {
		if err := o.check(o.Dir(s)); err != nil {
			return err
		}
	}
	return nil
}

func (o *Outputs) check(dir string) error {
	if o.Record <= 0 {
		return nil
	}
	if !hasRun(dir) {
		for _, name := range []string{tableFile, esxtopFile} {
			if path := filepath.Join(dir, name); exists(path) {
				return fmt.Errorf("output: no run that ended has left %s; remove it, or give another --out", path)
			}
		}
	}
	if o.Record < time.Second {
		return nil
	}
	return othersStatistics(dir)
}

// Attach begins the run's recording. Done writes the files of a run that is to keep them, when that has ended. Of an earlier run in
// the folder, what a report reads goes first, for it would be read as this one's: a folder never has recordings of one run beside the
// report of another, wherever the process ends.
func (o *Outputs) Attach(s *sim.Scenario, r *sim.Run) (done func(keep bool) error, err error) {
	dir := o.Dir(s)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if err := o.check(dir); err != nil {
		return nil, err
	}
	rec := &recording{}
	if o.Record > 0 {
		if rec, err = record(dir, o.Record, r); err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
	}
	return func(keep bool) error {
		err := rec.end()
		if err == nil && keep {
			err = replaceRun(dir, r.Output())
		}
		if err != nil || !keep { // the files of a run before stay as they are
			err = errors.Join(err, rec.abort())
		} else {
			err = rec.commit()
		}
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		return nil
	}, nil
}

// replaceRun writes the files of a run, the one that says what came out last, and removes an earlier run's counters.
func replaceRun(dir string, files map[string][]byte) error {
	if err := forget(dir, files[report.HostCacheFile] != nil); err != nil {
		return err
	}
	last := evidence[len(evidence)-1]
	names := slices.Sorted(maps.Keys(files))
	names = append(slices.DeleteFunc(names, func(n string) bool { return n == last }), last)
	for _, name := range names {
		if err := tidy.ReplaceBytes(filepath.Join(dir, name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

// forget removes what a report reads of an earlier run from its folder, host caches unless they are replaced, and nothing that a run
// does not leave. Logs of I/Os stay: a replay may be reading them.
func forget(dir string, caches bool) error {
	if !hasRun(dir) {
		return nil
	}
	var errs []error
	if !caches {
		errs = append(errs, gone(os.Remove(filepath.Join(dir, report.HostCacheFile))))
	}
	table, top := filepath.Join(dir, tableFile), filepath.Join(dir, esxtopFile)
	if exists(table) && exists(top) { // a recording leaves both
		errs = append(errs, os.Remove(top), os.Remove(table))
	}
	return errors.Join(append(errs, forgetStatistics(filepath.Join(dir, iostatsFolder)))...)
}

// othersStatistics is an error where a folder has statistics files that no run has left there.
func othersStatistics(dir string) error {
	at := filepath.Join(dir, iostatsFolder)
	if st, err := os.Lstat(at); err == nil && !st.IsDir() {
		return fmt.Errorf("output: %s is not a folder, which statistics files need; give another --out", at)
	}
	files, err := os.ReadDir(at)
	if err != nil {
		return gone(err)
	}
	ran := hasRun(dir)
	if slices.ContainsFunc(files, func(f fs.DirEntry) bool {
		return isStatistics(f.Name()) && !(ran && isRunsSet(f.Name())) && !isList(f.Name())
	}) {
		return fmt.Errorf("output: %s has statistics files of others, or of a run that was cut off; remove it, or give another --out", at)
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

// isStatistics tells whether a file is one of a set of statistics, of whatever array, or belongs to the sets.
func isStatistics(name string) bool {
	kind, _, set := strings.Cut(name, "_stats_")
	return set && slices.Contains([]string{"Nn", "Nv", "Nm", "Nd"}, kind) || isList(name)
}

// isRunsSet tells whether a file is one of a set that a run leaves: no array has such a panel name.
func isRunsSet(name string) bool {
	return isStatistics(name) && strings.Contains(name, "_stats_000000_")
}

// isList tells whether a file belongs to all sets of a folder.
func isList(name string) bool { return name == "lsvdisk" || name == "lsmdiskgrp" }

// forgetStatistics removes a run's statistics files from a folder, and the folder if there is nothing else in it. The sets of an
// array stay, with the lists that belong to them.
func forgetStatistics(dir string) error {
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		return gone(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	others := slices.ContainsFunc(files, func(f fs.DirEntry) bool { return isStatistics(f.Name()) && !isRunsSet(f.Name()) && !isList(f.Name()) })
	left := 0
	var errs []error
	for _, f := range files {
		if isRunsSet(f.Name()) || isList(f.Name()) && !others {
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

// placeStatistics puts the statistics files of a folder where those of an earlier run were: as a whole, unless something of others is
// there.
func placeStatistics(dir, at string) error {
	err := os.Rename(dir, at)
	if err == nil || !exists(at) {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(dir, f.Name()), filepath.Join(at, f.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
