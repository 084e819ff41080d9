package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// RollingFiles is the pattern of the names of complete files of a Rolling. They sort by time.
const RollingFiles = "counters-????????T??????.???Z.parquet"

// Rolling writes snapshots to Parquet files of a folder, PerFile to each: the table that
// NewParquet describes. A file is called counters-TIME.parquet by the UTC time of its first
// snapshot; until it is complete its name ends in .part, because a Parquet file without its end
// cannot be read. Of complete files the newest are kept, those of earlier runs in the folder
// included. It is not safe for concurrent use.
type Rolling struct {
	dir     string
	perFile int
	keep    int
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
	return &Rolling{dir: dir, perFile: max(perFile, 1), keep: keep}, nil
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
	}
	if err := r.table.Write(s); err != nil {
		return err
	}
	if r.n++; r.n == r.perFile {
		return r.Close()
	}
	return nil
}

// Close completes the present file; a later Write begins another.
func (r *Rolling) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	if err := errors.Join(r.table.Close(), f.Close()); err != nil {
		return fmt.Errorf("the counters cannot be recorded: %w", err)
	}
	part := f.Name()
	if err := os.Rename(part, part[:len(part)-len(".part")]); err != nil {
		return fmt.Errorf("the counters cannot be recorded: %w", err)
	}
	return r.forget()
}

// forget deletes the oldest complete files beyond those that are kept. Names sort by time.
func (r *Rolling) forget() error {
	if r.keep <= 0 {
		return nil
	}
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("the counters cannot be recorded: %w", err)
	}
	var complete []string
	for _, f := range files {
		if ok, _ := filepath.Match(RollingFiles, f.Name()); ok {
			complete = append(complete, f.Name())
		}
	}
	for _, name := range complete[:max(len(complete)-r.keep, 0)] {
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
			return fmt.Errorf("old counters cannot be deleted: %w", err)
		}
	}
	return nil
}
