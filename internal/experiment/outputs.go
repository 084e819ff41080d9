package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics/export"
	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/tidy"
	"golang.org/x/sys/unix"
)

// What attachments leave in a run's folder. Until a run has ended, the folder of its statistics files is called otherwise.
const (
	tableFile, esxtopFile, iostatsFolder  = "counters.parquet", "esxtop.csv", "iostats"
	fioFile, fioLatencyFile, blkparseFile = "io.fio", "io_lat.1.log", "io.blkparse"

	partial = ".part"
)

// seriesFile has a run's time series, without which a folder tells a report of no run.
const seriesFile = "volumes.csv"

// evidence are files that every run leaves: a folder that has them all has a run's files.
var evidence = []string{seriesFile, "pools.csv", "report.txt", "result.json"}

// others are the further files of a run.
var others = []string{"counters.txt", "events.log", report.HostCacheFile}

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

// Check refuses folders in which runs would replace what no run has left there, or stand beside counters that a report would take for
// theirs. Runs whose folders have been checked may begin.
func (o *Outputs) Check(grid []*sim.Scenario) error {
	for _, s := range grid {
		if err := o.check(o.Dir(s)); err != nil {
			return err
		}
	}
	return nil
}

func (o *Outputs) check(dir string) error {
	refused := func(name, why string) error {
		return fmt.Errorf("output: %s %s; move it elsewhere, or give another --out", filepath.Join(dir, name), why)
	}
	ran := hasRun(dir)
	for _, name := range slices.Concat(evidence, others, []string{tableFile, esxtopFile}) {
		st, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case err != nil:
		case !st.Mode().IsRegular():
			return refused(name, "is not a plain file")
		case !ran && (name != esxtopFile || o.Record > 0):
			return refused(name, "is not of a run that came to its end")
		}
	}
	table, top := exists(filepath.Join(dir, tableFile)), exists(filepath.Join(dir, esxtopFile))
	switch { // a recording leaves both, and the first of them first
	case table && !top:
		return refused(tableFile, "is not of the run that was here")
	case top && !table && o.Record > 0:
		return refused(esxtopFile, "is not of the run that was here")
	}
	files, _ := os.ReadDir(dir) // where it cannot be read, a report finds nothing, either
	for _, f := range files {
		if ok, _ := filepath.Match(export.RollingFiles, strings.TrimSuffix(f.Name(), partial)); ok {
			return refused(f.Name(), "would be read as this run's")
		}
	}
	if exists(filepath.Join(dir, "counters.csv")) {
		return refused("counters.csv", "would be read as this run's")
	}
	return othersStatistics(dir)
}

// Attach begins the run's recording. Done writes the files of a run that is to keep them, when that has ended. Of an earlier run in
// the folder, what a report reads goes before the first of them has its name, and what it reads of this one comes last: wherever the
// process ends, a folder has the counters and series of one run, or none. Until done nobody else's run begins in the folder.
func (o *Outputs) Attach(s *sim.Scenario, r *sim.Run) (done func(keep bool) error, err error) {
	dir := o.Dir(s)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if err := o.check(dir); err != nil {
		return nil, errors.Join(err, unlock())
	}
	rec := &recording{}
	if o.Record > 0 {
		if rec, err = record(dir, o.Record, r); err != nil {
			return nil, errors.Join(fmt.Errorf("output: %w", err), unlock())
		}
	}
	return func(keep bool) error {
		err := rec.end()
		if err == nil && keep {
			err = replaceRun(dir, r.Output())
		}
		if err != nil || !keep {
			err = errors.Join(err, rec.abort())
		} else {
			err = rec.commit()
		}
		if err = errors.Join(err, unlock()); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		return nil
	}, nil
}

// lockFolder keeps other runs from a folder, where its file system has locks and the folder may be read.
func lockFolder(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("output: another run writes into %s; wait for its end, or give another --out", dir), f.Close())
	}
	return f.Close, nil
}

// replaceRun puts a run's files in the place of an earlier one's. All are written before the first is replaced: where there is no room
// for them, those of the earlier run stay.
func replaceRun(dir string, files map[string][]byte) (err error) {
	rank := func(name string) int { return slices.Index([]string{seriesFile, report.HostCacheFile}, name) }
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b)) // what a report looks for comes last
	})
	var outs []*tidy.Output
	defer func() {
		for _, out := range outs {
			err = errors.Join(err, out.Abort())
		}
	}()
	for _, name := range names {
		out, err := tidy.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		outs = append(outs, out)
		if _, err := out.Write(files[name]); err != nil {
			return err
		}
		if err := out.Sync(); err != nil { // a file system may say only here that it is full
			return err
		}
	}
	if err := forget(dir); err != nil {
		return err
	}
	for len(outs) > 0 {
		out := outs[0]
		outs = outs[1:]
		if err := out.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// forget removes what a report reads of an earlier run from its folder, and nothing that a run does not leave; its series, without
// which there is none, last. Logs of I/Os stay: a replay may be reading them.
func forget(dir string) error {
	if !hasRun(dir) {
		return nil
	}
	names := []string{report.HostCacheFile, seriesFile}
	if err := forgetStatistics(dir); err != nil {
		return err
	}
	if recorded(dir) {
		names = append([]string{tableFile, esxtopFile}, names...)
	}
	for _, name := range names {
		if err := gone(os.Remove(filepath.Join(dir, name))); err != nil {
			return err
		}
	}
	return nil
}

// recorded tells whether a folder has a recording: it leaves both.
func recorded(dir string) bool {
	return exists(filepath.Join(dir, tableFile)) && exists(filepath.Join(dir, esxtopFile))
}

// othersStatistics is an error where a folder has statistics files that no run has left there.
func othersStatistics(dir string) error {
	at := filepath.Join(dir, iostatsFolder)
	st, err := os.Lstat(at)
	if err != nil {
		return nil // where the folder cannot be read, nothing can be made in it, and that says why
	}
	if !st.IsDir() {
		return fmt.Errorf("output: %s is not a folder; move it elsewhere, or give another --out", at)
	}
	files, err := os.ReadDir(at)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	ours := runsSets(dir)
	if slices.ContainsFunc(files, func(f fs.DirEntry) bool { return isStatistics(f.Name()) && !ours(f.Name()) && !isList(f.Name()) }) {
		return fmt.Errorf("output: %s has statistics files that are not of a run that came to its end; move it elsewhere, or give another --out", at)
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

// runPanel is the panel name in the names of a run's statistics files. Those of earlier versions had the one of an array that is
// served, too.
const runPanel, servedPanel = "SIMRUN", "000000"

// runsSets returns what tells whether a file is one of a set that the run has left whose folder this is.
func runsSets(dir string) func(name string) bool {
	ran, whole := hasRun(dir), recorded(dir)
	return func(name string) bool {
		_, panel, _ := strings.Cut(name, "_stats_")
		return ran && isStatistics(name) && (strings.HasPrefix(panel, runPanel+"_") || whole && strings.HasPrefix(panel, servedPanel+"_"))
	}
}

// isList tells whether a file belongs to all sets of a folder.
func isList(name string) bool { return name == "lsvdisk" || name == "lsmdiskgrp" }

// forgetStatistics removes the statistics files of a run from its folder, and theirs if there is nothing else in it.
func forgetStatistics(dir string) error {
	at := filepath.Join(dir, iostatsFolder)
	files, err := os.ReadDir(at)
	if err != nil {
		return gone(err)
	}
	ours, left := runsSets(dir), 0
	var errs []error
	for _, f := range files {
		if ours(f.Name()) || isList(f.Name()) {
			errs = append(errs, os.Remove(filepath.Join(at, f.Name())))
			continue
		}
		left++
	}
	if left == 0 {
		errs = append(errs, os.Remove(at))
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
