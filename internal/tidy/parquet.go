//go:build !noparquet

package tidy

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// node is a column's Parquet type: all are optional, since anything may be unknown.
func (c Column) node() parquet.Node {
	switch c.Kind {
	case Int:
		return parquet.Optional(parquet.Int(64))
	case Number:
		return parquet.Optional(parquet.Leaf(parquet.DoubleType))
	case Bool:
		return parquet.Optional(parquet.Leaf(parquet.BooleanType))
	}
	return parquet.Optional(parquet.Encoded(parquet.String(), &parquet.RLEDictionary))
}

// WriteParquet writes a table as Parquet, compressed by zstd. A reader finds the columns by name: they
// are in the order of their names.
func WriteParquet(w io.Writer, t *Table) error {
	if err := t.Check(); err != nil {
		return err
	}
	group := parquet.Group{}
	for _, c := range t.Columns {
		group[c.Name] = c.node()
	}
	schema := parquet.NewSchema("rows", group)
	at := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		leaf, _ := schema.Lookup(c.Name)
		at[i] = leaf.ColumnIndex
	}
	out := parquet.NewGenericWriter[any](w, schema, parquet.Compression(&zstd.Codec{}), parquet.CreatedBy("arraysim", "1", ""))
	row := make(parquet.Row, len(at))
	for _, r := range t.Rows {
		for i, v := range r {
			row[at[i]] = value(v).Level(0, 1, at[i])
			if v == nil {
				row[at[i]] = parquet.NullValue().Level(0, 0, at[i])
			}
		}
		if _, err := out.WriteRows([]parquet.Row{row}); err != nil {
			return err
		}
	}
	return out.Close()
}

func value(v any) parquet.Value {
	switch v := v.(type) {
	case string:
		return parquet.ByteArrayValue([]byte(v))
	case int64:
		return parquet.Int64Value(v)
	case float64:
		return parquet.DoubleValue(v)
	case bool:
		return parquet.BooleanValue(v)
	}
	return parquet.NullValue()
}

// ReadParquet reads a table of flat columns. Types that this package does not write are refused.
func ReadParquet(r io.ReaderAt, size int64) (*Table, error) {
	return whole(func(choose func([]Column) ([]int, error), each func(Row) error) error {
		return ScanParquet(r, size, choose, each)
	})
}

// errDamaged is what a file is whose pages do not say what its head promises.
var errDamaged = errors.New("this Parquet file is damaged")

// ScanParquet calls each with one row after the other of a table of flat columns. First it calls choose with the columns,
// which returns the places of those that the rows are to have, nil for all, or an error that ends the scan. A panic of
// either is the caller's own, and is not taken for a damaged file.
func ScanParquet(r io.ReaderAt, size int64, choose func([]Column) ([]int, error), each func(Row) error) (err error) {
	// The library takes what stands in a file for right, and panics where it is not.
	theirs := false // the caller's functions run
	defer func() {
		if theirs {
			return
		}
		if x := recover(); x != nil {
			err = fmt.Errorf("%w: %v", errDamaged, x)
		}
	}()
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return fmt.Errorf("this is not a Parquet file: %w", err)
	}
	var columns []Column
	for _, field := range f.Schema().Fields() {
		if !field.Leaf() || field.Repeated() {
			return fmt.Errorf("column %q is nested; a table has flat columns", field.Name())
		}
		kind, ok := kindOf(field.Type())
		if !ok {
			return fmt.Errorf("column %q has an unsupported type: %s", field.Name(), field.Type())
		}
		columns = append(columns, Column{field.Name(), kind})
	}
	theirs = true
	wanted, err := choose(columns)
	theirs = false
	if err != nil {
		return err
	}
	width := len(columns)
	if wanted != nil {
		width = len(wanted)
	}
	at := make([]int, len(columns)) // place in a row, -1 without one
	for i := range at {
		at[i] = i
		if wanted != nil {
			at[i] = slices.Index(wanted, i)
		}
	}
	rows := parquet.NewReader(f)
	defer rows.Close()
	buf := make([]parquet.Row, 256)
	for {
		n, err := rows.ReadRows(buf)
		for _, x := range buf[:n] {
			row := make(Row, width)
			for _, v := range x {
				if c := v.Column(); c < 0 || c >= len(columns) {
					return errDamaged
				} else if at[c] >= 0 {
					row[at[c]] = plain(columns[c].Kind, v)
				}
			}
			theirs = true
			err := each(row)
			theirs = false
			if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func kindOf(t parquet.Type) (Kind, bool) {
	switch t.Kind() {
	case parquet.Boolean:
		return Bool, true
	case parquet.Int32, parquet.Int64:
		return Int, true
	case parquet.Float, parquet.Double:
		return Number, true
	case parquet.ByteArray:
		return Text, true
	}
	return 0, false
}

func plain(k Kind, v parquet.Value) any {
	switch {
	case v.IsNull():
		return nil
	case k == Bool:
		return v.Boolean()
	case k == Int && v.Kind() == parquet.Int32:
		return int64(v.Int32())
	case k == Int:
		return v.Int64()
	case k == Number && v.Kind() == parquet.Float:
		return float64(v.Float())
	case k == Number:
		return v.Double()
	}
	return string(v.ByteArray())
}
