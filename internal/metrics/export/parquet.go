//go:build !noparquet

package export

import (
	"errors"
	"fmt"
	"io"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// errNoParquet is why this program cannot write or read Parquet; nil: it can.
var errNoParquet error

// parquetRows is how many rows are kept until they are written as a row group.
const parquetRows = 1 << 17

// parquetSchema is the table's: time as TIMESTAMP(nanoseconds, UTC), strings in
// dictionaries, the value as DOUBLE. Absent labels are empty strings, as in CSV.
func parquetSchema() (schema *parquet.Schema, at []int) {
	group := parquet.Group{"time": parquet.Timestamp(parquet.Nanosecond), "value": parquet.Leaf(parquet.DoubleType)}
	text := parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	for _, c := range Columns()[1 : len(Columns())-1] {
		group[c] = text
	}
	schema = parquet.NewSchema("counters", group)
	// The library orders a group's columns by name; at finds them.
	at = make([]int, len(Columns()))
	for i, c := range Columns() {
		leaf, _ := schema.Lookup(c)
		at[i] = leaf.ColumnIndex
	}
	return schema, at
}

type parquetWriter struct {
	w    *parquet.GenericWriter[any]
	at   []int
	rows []parquet.Row
	kept int
}

// NewParquet writes the table as Parquet, compressed by zstd. The file is complete
// when Close has returned.
func NewParquet(w io.Writer) SnapshotWriter {
	schema, at := parquetSchema()
	return &parquetWriter{w: parquet.NewGenericWriter[any](w, schema, parquet.Compression(&zstd.Codec{}), parquet.CreatedBy("arraysim", "1", "")), at: at}
}

func (w *parquetWriter) Write(s *metrics.Snapshot) error {
	n := 0
	err := rows(s, func(r *Row) error {
		if n == len(w.rows) {
			w.rows = append(w.rows, make(parquet.Row, len(w.at)))
		}
		row := w.rows[n]
		set := func(i int, v parquet.Value) { row[w.at[i]] = v.Level(0, 0, w.at[i]) }
		set(0, parquet.Int64Value(r.Time))
		set(1, parquet.ByteArrayValue([]byte(r.Layer)))
		set(2, parquet.ByteArrayValue([]byte(r.Family)))
		for i, l := range r.Labels {
			set(3+i, parquet.ByteArrayValue([]byte(l)))
		}
		set(len(w.at)-1, parquet.DoubleValue(r.Value))
		if n++; n >= 4096 {
			_, err := w.w.WriteRows(w.rows[:n])
			w.kept += n
			n = 0
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err = w.w.WriteRows(w.rows[:n]); err != nil {
		return err
	}
	if w.kept += n; w.kept >= parquetRows {
		w.kept = 0
		return w.w.Flush()
	}
	return nil
}

func (w *parquetWriter) Close() error { return w.w.Close() }

type parquetReader struct {
	rows parquet.Rows
	at   []int
	buf  []parquet.Row
	n    int
	next int
	err  error
}

// NewParquetReader reads what NewParquet wrote.
func NewParquetReader(r io.ReaderAt, size int64) (RowReader, error) {
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, fmt.Errorf("this is not a Parquet file: %w", err)
	}
	at := make([]int, len(Columns()))
	for i, c := range Columns() {
		leaf, ok := f.Schema().Lookup(c)
		if !ok {
			return nil, fmt.Errorf("this Parquet file is not a table of counters: it has no column %q", c)
		}
		at[i] = leaf.ColumnIndex
	}
	return &parquetReader{rows: parquet.NewReader(f), at: at, buf: make([]parquet.Row, 1024)}, nil
}

func (r *parquetReader) Read(row *Row) error {
	if r.next == r.n {
		if r.err != nil {
			return r.err
		}
		r.n, r.err = r.rows.ReadRows(r.buf)
		r.next = 0
		if r.n == 0 {
			if r.err == nil {
				r.err = errors.New("the Parquet file ends in the middle")
			}
			return r.err
		}
	}
	x := r.buf[r.next]
	r.next++
	row.Time, row.Layer, row.Family = x[r.at[0]].Int64(), x[r.at[1]].String(), x[r.at[2]].String()
	row.Labels = row.Labels[:0]
	for i := range LabelColumns {
		row.Labels = append(row.Labels, x[r.at[3+i]].String())
	}
	row.Value = x[r.at[len(r.at)-1]].Double()
	return nil
}
