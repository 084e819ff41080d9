package metrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Rolling writes snapshots to Parquet files of a folder, PerFile to each: the table that
// NewParquet describes. A file is called counters-TIME.parquet by the UTC time of its first
// snapshot; until it is complete its name ends in .part, because a Parquet file without its end
// cannot be read. It is not safe for concurrent use.
type Rolling struct {
	dir     string
	perFile int
	n       int
	file    *os.File
	table   SnapshotWriter
}

// NewRolling makes the folder if it does not exist.
func NewRolling(dir string, perFile int) (*Rolling, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("the counters cannot be recorded: %w; name another folder", err)
	}
	return &Rolling{dir: dir, perFile: max(perFile, 1)}, nil
}

// Write implements SnapshotWriter.
func (r *Rolling) Write(s *Snapshot) error {
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
	return os.Rename(part, part[:len(part)-len(".part")])
}
