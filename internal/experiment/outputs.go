package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics/export"
	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
)

// What a recording leaves in a run's folder.
const tableFile, esxtopFile, iostatsFolder = "counters.parquet", "esxtop.csv", "iostats"

// seriesFile has a run's time series, without which a folder tells a report of no run.
const seriesFile = "volumes.csv"

// evidence are files that every run leaves: a folder that has them all has a run's files.
var evidence = []string{seriesFile, "pools.csv", reportFile, "result.json"}

// others are the further files of a run.
var others = []string{"counters.txt", "events.log", report.HostCacheFile}

// hasRun tells whether a run has left its files in a folder.
func hasRun(dir string) bool {
	return !slices.ContainsFunc(evidence, func(name string) bool { return !exists(filepath.Join(dir, name)) })
}

// recorded tells whether a folder has a recording: it leaves both.
func recorded(dir string) bool {
	return exists(filepath.Join(dir, tableFile)) && exists(filepath.Join(dir, esxtopFile))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Outputs leaves the counters, event log, report and time series of each run in a folder of its own. With Record above 0 it has all
// counters at this interval of simulated time: Parquet, esxtop's CSV and, at intervals of a second or more, iostats XML. IOLogs are
// the forms, of those that there are, in which it has every I/O.
type Outputs struct {
	Dir    func(*sim.Scenario) string
	Record time.Duration
	IOLogs []string
}

// Check refuses folders in which runs would replace what no run has left there, or stand beside counters that a report would take for
// theirs. Runs whose folders have been checked may begin.
func (o *Outputs) Check(grid []*sim.Scenario) error {
	for _, form := range o.IOLogs {
		if ioLogs[form] == nil {
			return fmt.Errorf("--io-log: %q is unknown; it is one of %s", form, strings.Join(IOLogs, ", "))
		}
	}
	for _, s := range grid {
		dir := o.Dir(s)
		if f := (&folder{dir: dir}); exists(f.whole()) {
			if err := f.checkWhole(); err != nil {
				return fmt.Errorf("output: %w", err)
			}
			continue // files of two runs: the later one's take their places before the next one begins, which looks then
		}
		if err := o.check(dir); err != nil {
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
	for _, name := range slices.Concat(evidence, others, []string{tableFile, esxtopFile}, o.logFiles()) {
		st, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case err != nil:
		case !st.Mode().IsRegular():
			return refused(name, "is not a plain file")
		case !ran && (name != esxtopFile || o.Record > 0):
			return refused(name, "is not of a run that came to its end")
		case name == fioFile && !isIOLog(filepath.Join(dir, name)):
			return refused(name, "is no log of I/Os")
		}
	}
	table, top := exists(filepath.Join(dir, tableFile)), exists(filepath.Join(dir, esxtopFile))
	switch {
	case table && !top:
		return refused(tableFile, "is not of the run that was here")
	case top && !table && o.Record > 0:
		return refused(esxtopFile, "is not of the run that was here")
	}
	files, _ := os.ReadDir(dir) // where it cannot be read, a report finds nothing, either
	for _, f := range files {
		if ok, _ := filepath.Match(export.RollingFiles, strings.TrimSuffix(f.Name(), ".part")); ok {
			return refused(f.Name(), "would be read as this run's")
		}
	}
	if exists(filepath.Join(dir, "counters.csv")) {
		return refused("counters.csv", "would be read as this run's")
	}
	return othersStatistics(dir)
}

// logFiles are the names of the files that IOLogs ask for.
func (o *Outputs) logFiles() (names []string) {
	for _, form := range o.IOLogs {
		for _, f := range ioLogs[form] {
			names = append(names, f.name)
		}
	}
	return names
}

// Attach begins the run's recording. Done writes the files of a run that is to keep them, when that has ended, and then puts them in
// the place of an earlier run's. Until done nobody else's run begins in the folder.
func (o *Outputs) Attach(s *sim.Scenario, r *sim.Run) (done func(keep bool) error, err error) {
	f, err := openFolder(o.Dir(s))
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if err := o.check(f.dir); err != nil {
		return nil, errors.Join(err, f.close())
	}
	if err := f.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("output: %w", err), f.close())
	}
	rec := &recording{}
	if o.Record > 0 {
		if rec, err = record(f, o.Record, r); err != nil {
			return nil, errors.Join(fmt.Errorf("output: %w", err), f.drop(), f.close())
		}
	}
	log := o.logIOs(r)
	return func(keep bool) error {
		err := rec.end()
		if keep && err == nil {
			if err = o.write(f, log, r); err == nil {
				err = f.replace()
			}
		}
		if err = errors.Join(err, f.drop(), f.close()); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		return nil
	}, nil
}

// write has the files of a run that has ended written, its logs last: they are the largest.
func (o *Outputs) write(f *folder, log *ioLog, r *sim.Run) error {
	for name, b := range r.Output() {
		if err := f.write(name, func(w io.Writer) error {
			_, err := bytes.NewReader(b).WriteTo(w)
			return err
		}); err != nil {
			return err
		}
	}
	for _, form := range o.IOLogs {
		for _, file := range ioLogs[form] {
			if err := f.write(file.name, func(w io.Writer) error { return file.write(w, log) }); err != nil {
				return err
			}
		}
	}
	return nil
}
