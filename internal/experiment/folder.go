package experiment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/tidy"
	"golang.org/x/sys/unix"
)

// What is in a run's folder of runs that have not ended, and of one that has, for as long as its files take the places of an earlier
// run's. Reports look into none of them.
const partFolders, wholeFolder = "run.*.part", "run.whole.part"

// reportFile is the first file of a run that takes its place: where it has, nothing of an earlier run is left to forget.
const reportFile = "report.txt"

// folder is what one run has for its files, for itself. A run's files are written into a folder inside, and appear when all of them
// are on the disk: wherever the process ends, the folder has the counters and series of one run, or those of a run that is whole are
// put in their places by whoever opens it next.
type folder struct {
	dir    string
	lock   *os.File // nil: the folder may not be read
	locked bool     // not where the file system has no locks, as NFS has none for folders
	part   string   // where the run's files are until it is whole
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
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("another run writes into %s; wait for its end, or give another --out", dir), f.Close())
	}
	return &folder{dir: dir, lock: f, locked: err == nil}, nil
}

// openFolder locks a folder, and completes what a process that was killed has left in it.
func openFolder(dir string) (*folder, error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if err = f.checkWhole(); err == nil && exists(f.whole()) {
		err = f.place()
	}
	if err == nil && f.locked {
		err = f.dropOld()
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// checkWhole refuses what somebody else has called as a whole run's files.
func (f *folder) checkWhole() error {
	st, err := os.Lstat(f.whole())
	if err != nil {
		return gone(err)
	}
	if !st.IsDir() || !runsAlone(f.whole()) {
		return fmt.Errorf("%s is not of a run; move it elsewhere, or give another --out", f.whole())
	}
	return nil
}

// runsAlone tells whether a folder has nothing but files of a run.
func runsAlone(dir string) bool {
	names := slices.Concat(evidence, others, []string{tableFile, esxtopFile, iostatsFolder})
	for _, form := range ioLogs {
		for _, f := range form {
			names = append(names, f.name)
		}
	}
	files, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(files, func(e fs.DirEntry) bool { return !slices.Contains(names, e.Name()) })
}

// dropOld removes what runs that did not come to their ends have left.
func (f *folder) dropOld() error {
	parts, _ := os.ReadDir(f.dir) // where it cannot be read, they stay
	for _, e := range parts {
		path := filepath.Join(f.dir, e.Name())
		if ok, _ := filepath.Match(partFolders, e.Name()); !ok || e.Name() == wholeFolder || !e.IsDir() || !runsAlone(path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) close() error {
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

func (f *folder) whole() string { return filepath.Join(f.dir, wholeFolder) }

// begin makes room for a run's files, under a name that no other run has. A folder in which nothing can be made is found here, and not
// when the run ends.
func (f *folder) begin() error {
	for {
		part := filepath.Join(f.dir, fmt.Sprintf("run.%08x.part", rand.Uint32()))
		err := os.Mkdir(part, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			f.part = part
		}
		return err
	}
}

// drop removes what was written of a run that is not whole.
func (f *folder) drop() error { return os.RemoveAll(f.part) }

// write writes a file of the run. It is on the disk when write returns.
func (f *folder) write(name string, fn func(io.Writer) error) error {
	out, err := os.Create(filepath.Join(f.part, name))
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
	if err := f.sync(); err != nil {
		return err
	}
	if err := os.Rename(f.part, f.whole()); err != nil {
		return err
	}
	if err := syncFolder(f.dir); err != nil {
		return err
	}
	return f.place()
}

// sync has all of a run's files on the disk. Those of its statistics are many and small: the file system writes what it has, at once.
func (f *folder) sync() error {
	if !exists(filepath.Join(f.part, iostatsFolder)) {
		return syncFolder(f.part)
	}
	d, err := os.Open(f.part)
	if err != nil {
		return err
	}
	return errors.Join(known(unix.Syncfs(int(d.Fd()))), d.Close())
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

// syncFolder has the names in a folder on the disk, where it may be read and its file system can.
func syncFolder(dir string) error { return known(tidy.SyncFolder(dir)) }

// known is nil for what a file system cannot do, such as syncing a folder.
func known(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
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
