//go:build !noparquet

package export

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
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
	rows  parquet.Rows
	place []int // by the file's columns, that among Columns(); -1 for columns of others
	unit  int64 // nanoseconds in one of the time column's units
	buf   []parquet.Row
	n     int
	next  int
	row   int // the number of the last row, from 1
	err   error
}

// NewParquetReader reads what NewParquet wrote, of this or an older version, and copies of that by
// other programs: their timestamps may have another unit, and their columns another order.
func NewParquetReader(r io.ReaderAt, size int64) (_ RowReader, err error) {
	defer damaged(&err)
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, fmt.Errorf("this is not a Parquet file: %w", err)
	}
	p := &parquetReader{place: make([]int, len(f.Schema().Columns())), buf: make([]parquet.Row, 1024)}
	for i := range p.place {
		p.place[i] = -1
	}
	fields := map[string]parquet.Field{}
	for _, field := range f.Schema().Fields() {
		fields[field.Name()] = field
	}
	for i, c := range Columns() {
		field, ok := fields[c]
		if !ok && slices.Contains(LabelColumns, c) {
			continue // of a version that did not have it yet
		}
		if !ok {
			return nil, fmt.Errorf("this Parquet file is not a table of counters: it has no column %q", c)
		}
		if err := p.check(field); err != nil {
			return nil, err
		}
		leaf, _ := f.Schema().Lookup(c)
		p.place[leaf.ColumnIndex] = i
	}
	p.rows = parquet.NewReader(f)
	return p, nil
}

// damaged makes an error of a panic: the library takes what stands in a file for right.
func damaged(err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("this Parquet file is damaged: %v", x)
	}
}

// check tells whether a column has values that the reader understands.
func (r *parquetReader) check(c parquet.Field) error {
	is, want, ok := "nested", "text", false
	if c.Leaf() && !c.Repeated() {
		is = c.Type().String()
		switch c.Name() {
		case "time":
			if l := c.Type().LogicalType(); l != nil {
				if t, isTime := l.Value.(*format.TimestampType); isTime && c.Type().Kind() == parquet.Int64 && t.Unit.Value != nil {
					r.unit, ok = int64(t.Unit.Value.Duration()), true
				}
			}
		case "value":
			ok = c.Type().Kind() == parquet.Double || c.Type().Kind() == parquet.Float || wholeNumbers(c.Type())
		default:
			ok = c.Type().Kind() == parquet.ByteArray
		}
	}
	switch {
	case ok:
		return nil
	case c.Name() == "time":
		want = "a TIMESTAMP"
	case c.Name() == "value":
		want = "DOUBLE"
	}
	return fmt.Errorf("column %q of this Parquet file is %s; want %s", c.Name(), is, want)
}

// wholeNumbers tells whether a type is of integers with a sign, and not of something that is kept as one.
func wholeNumbers(t parquet.Type) bool {
	if t.Kind() != parquet.Int32 && t.Kind() != parquet.Int64 {
		return false
	}
	if l := t.LogicalType(); l != nil && l.Value != nil {
		i, ok := l.Value.(*format.IntType)
		return ok && i.IsSigned
	}
	return true
}

func (r *parquetReader) Where() string { return fmt.Sprintf("row %d", r.row) }

func (r *parquetReader) Read(row *Row) (err error) {
	defer damaged(&err)
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
	r.row++
	row.Layer, row.Family, row.Labels = "", "", append(row.Labels[:0], make([]string, len(LabelColumns))...)
	timed, valued := false, false
	for _, v := range x {
		at := -1
		if c := v.Column(); c >= 0 && c < len(r.place) {
			at = r.place[c]
		}
		if at < 0 || v.IsNull() {
			continue
		}
		switch at {
		case 0:
			t := v.Int64()
			row.Time = t * r.unit
			timed = row.Time/r.unit == t
		case 1:
			row.Layer = string(v.ByteArray())
		case 2:
			row.Family = string(v.ByteArray())
		case len(LabelColumns) + 3:
			row.Value, valued = number(v), true
		default:
			row.Labels[at-3] = string(v.ByteArray())
		}
	}
	if !timed || !valued {
		return fmt.Errorf("row %d of this Parquet file has no valid time or no value", r.row)
	}
	return nil
}

func number(v parquet.Value) float64 {
	switch v.Kind() {
	case parquet.Int32:
		return float64(v.Int32())
	case parquet.Int64:
		return float64(v.Int64())
	case parquet.Float:
		return float64(v.Float())
	}
	return v.Double()
}
