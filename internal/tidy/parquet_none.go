//go:build noparquet

package tidy

import (
	"errors"
	"io"
)

// errNoParquet is what a program answers that was built without Parquet, to compile sooner.
var errNoParquet = errors.New("this arraysim was built without Parquet, to be ready sooner: run `make build`, or choose CSV")

// WriteParquet says that this program has no Parquet.
func WriteParquet(io.Writer, *Table) error { return errNoParquet }

// ReadParquet says that this program has no Parquet.
func ReadParquet(io.ReaderAt, int64) (*Table, error) { return nil, errNoParquet }

// ScanParquet says that this program has no Parquet.
func ScanParquet(io.ReaderAt, int64, func([]Column) ([]int, error), func(Row) error) error {
	return errNoParquet
}
