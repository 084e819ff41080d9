//go:build noparquet

package export

import (
	"errors"
	"io"

	"github.com/arraysim/arraysim/internal/metrics"
)

// A program without Parquet compiles in six sevenths of the time, which a first `make run` is short of. It serves, and says
// where the rest is.

// errNoParquet is why this program cannot write or read Parquet.
var errNoParquet = errors.New("this arraysim was built without Parquet, to be ready sooner: run `make build`, or choose CSV")

type noParquet struct{}

func (noParquet) Write(*metrics.Snapshot) error { return errNoParquet }
func (noParquet) Close() error                  { return errNoParquet }

// NewParquet returns a writer that says that there is none.
func NewParquet(io.Writer) SnapshotWriter { return noParquet{} }

// NewParquetReader says that there is none.
func NewParquetReader(io.ReaderAt, int64) (RowReader, error) { return nil, errNoParquet }
