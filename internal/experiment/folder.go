package experiment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/arraysim/arraysim/internal/report"
	"golang.org/x/sys/unix"
)

// What is in a run's folder of a run that has not ended, and of one that has, for as long as its files take the places of an earlier
// run's. Reports look into neither.
const partFolder, wholeFolder = "run.part", "run.whole.part"

// reportFile is the first file of a run that takes its place: where it has, nothing of an earlier run is left to forget.
const reportFile = "report.txt"

// folder is what one run has for its files, for itself. A run's files are written into a folder inside, and appear when all of them
// are on the disk: wherever the process ends, the folder has the counters and series of one run, or those of a run that is whole are
// put in their places by whoever opens it next.
type folder struct {
	dir  string
	lock *os.File // nil: the folder may not be read
}

// LockFolder makes a folder and keeps other runs from it until unlock, where its file system has locks and it may be read.
func LockFolder(dir string) (unlock func() error, err error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return f.close, nil
}

func lockFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return &folder{dir: dir}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("another run writes into %s; wait for its end, or give another --out", dir), f.Close())
	}
	return &folder{dir, f}, nil
}

// openFolder locks a folder, and completes what a process that was killed has left in it.
func openFolder(dir string) (*folder, error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if exists(f.whole()) {
		err = f.place()
	}
	if err == nil {
		err = f.drop()
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *folder) close() error {
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

func (f *folder) part() string  { return filepath.Join(f.dir, partFolder) }
func (f *folder) whole() string { return filepath.Join(f.dir, wholeFolder) }

// begin makes room for a run's files. A folder in which nothing can be made is found here, and not when the run ends.
func (f *folder) begin() error { return os.Mkdir(f.part(), 0o777) }

// drop removes what was written of a run that is not whole.
func (f *folder) drop() error { return os.RemoveAll(f.part()) }

// write writes a file of the run. It is on the disk when write returns.
func (f *folder) write(name string, fn func(io.Writer) error) error {
	out, err := os.Create(filepath.Join(f.part(), name))
	if err != nil {
		return err
	}
	err = fn(out)
	if err == nil {
		err = out.Sync() // a file system may say only here that it is full
	}
	return errors.Join(err, out.Close())
}

// replace puts the run's files in the place of an earlier one's.
func (f *folder) replace() error {
	if err := syncFolder(f.part()); err != nil {
		return err
	}
	if err := os.Rename(f.part(), f.whole()); err != nil {
		return err
	}
	if err := syncFolder(f.dir); err != nil {
		return err
	}
	return f.place()
}

// place gives the files of a whole run their places. What is done is not done again.
func (f *folder) place() error {
	for _, step := range f.steps() {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// steps are those of place, as far as they are to be done: what a report reads of an earlier run goes before the first file of this one
// has its place, and what it reads first, or looks for, comes last.
func (f *folder) steps() (steps []func() error) {
	sync := func() error { return syncFolder(f.dir) }
	if exists(filepath.Join(f.whole(), reportFile)) {
		steps = append(steps, func() error { return forgetStatistics(f.dir) })
		for _, name := range []string{esxtopFile, tableFile, report.HostCacheFile, seriesFile} {
			steps = append(steps, func() error { return forget(f.dir, name) })
		}
		steps = append(steps, sync)
	}
	files, err := os.ReadDir(f.whole())
	if err != nil {
		return []func() error{func() error { return err }}
	}
	last := []string{iostatsFolder, esxtopFile, report.HostCacheFile, seriesFile, tableFile}
	rank := func(e fs.DirEntry) int {
		if e.Name() == reportFile {
			return -2
		}
		return slices.Index(last, e.Name())
	}
	slices.SortStableFunc(files, func(a, b fs.DirEntry) int { return rank(a) - rank(b) })
	for _, e := range files {
		from, to := filepath.Join(f.whole(), e.Name()), filepath.Join(f.dir, e.Name())
		if e.Name() == iostatsFolder {
			steps = append(steps, func() error { return placeStatistics(from, to) })
		} else {
			steps = append(steps, func() error { return os.Rename(from, to) })
		}
	}
	return append(steps, sync, func() error { return os.Remove(f.whole()) }, sync)
}

// syncFolder has the names in a folder on the disk, where it may be read.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// forget removes a file of a run from its folder: of a recording the table last, without which a capture is of others, and of the run
// the series. Logs of I/Os stay: a replay may be reading them.
func forget(dir, name string) error {
	if !hasRun(dir) || name == esxtopFile && !exists(filepath.Join(dir, tableFile)) {
		return nil
	}
	return gone(os.Remove(filepath.Join(dir, name)))
}

// gone is nil for what was not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
