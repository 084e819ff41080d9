package export

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// RollingFiles is the pattern of the names of complete files of a Rolling. They sort by time.
const RollingFiles = "counters-????????T??????.???Z.parquet"

// Rolling writes snapshots to Parquet files of a folder, PerFile to each: the table that
// NewParquet describes. A file is called counters-TIME.parquet by the UTC time of its first
// snapshot; until it is complete its name ends in .part, because a Parquet file without its end
// cannot be read. Of complete files the last ones are kept, those of earlier runs in the folder
// included: these go first, whatever the clock was when they were written. It is not safe for
// concurrent use.
type Rolling struct {
	dir     string
	perFile int
	keep    int
	done    []string // names of complete files: of earlier runs in their order, then as they were completed
	began   bool
	n       int
	file    *os.File
	table   SnapshotWriter
}

// NewRolling makes the folder if it does not exist. Of complete files it keeps so many; 0 keeps all.
func NewRolling(dir string, perFile, keep int) (*Rolling, error) {
	if errNoParquet != nil {
		return nil, errNoParquet
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("the counters cannot be recorded: %w; name another folder", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the counters cannot be recorded: %w; name another folder", err)
	}
	r := &Rolling{dir: dir, perFile: max(perFile, 1), keep: keep}
	for _, f := range files {
		if ok, _ := filepath.Match(RollingFiles, f.Name()); ok {
			r.done = append(r.done, f.Name())
		}
	}
	return r, nil
}

// Write implements SnapshotWriter.
func (r *Rolling) Write(s *metrics.Snapshot) error {
	if r.file == nil {
		name := "counters-" + time.Unix(0, s.Time).UTC().Format("20060102T150405.000Z") + ".parquet"
		f, err := os.Create(filepath.Join(r.dir, name+".part"))
		if err != nil {
			return fmt.Errorf("the counters cannot be recorded: %w", err)
		}
		r.file, r.table, r.n = f, NewParquet(f), 0
		if !r.began { // files that bear later times are of a clock that was ahead: they go first
			r.began = true
			slices.SortStableFunc(r.done, func(a, b string) int { return cmp.Compare(ahead(a > name), ahead(b > name)) })
		}
	}
	if err := r.table.Write(s); err != nil {
		return err
	}
	if r.n++; r.n == r.perFile {
		return r.Close()
	}
	return nil
}

// ahead orders what is ahead before what is not.
func ahead(yes bool) int {
	if yes {
		return 0
	}
	return 1
}

// Close completes the present file; a later Write begins another.
func (r *Rolling) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	if err := errors.Join(r.table.Close(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("the counters cannot be recorded: %w", err)
	}
	name := strings.TrimSuffix(f.Name(), ".part")
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("the counters cannot be recorded: %w", err)
	}
	name = filepath.Base(name)
	r.done = append(slices.DeleteFunc(r.done, func(n string) bool { return n == name }), name)
	return r.forget()
}

// forget deletes the first complete files beyond those that are kept.
func (r *Rolling) forget() error {
	for r.keep > 0 && len(r.done) > r.keep {
		if err := os.Remove(filepath.Join(r.dir, r.done[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("old counters cannot be deleted: %w", err)
		}
		r.done = slices.Delete(r.done, 0, 1)
	}
	return nil
}
