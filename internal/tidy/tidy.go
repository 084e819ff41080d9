// Package tidy writes and reads tidy tables: one row an observation, one column a variable, every
// column of one type, and an unknown value is a null and no zero. A table is a Parquet file, or CSV
// by RFC 4180 for tools that read nothing else.
//
// The same rows give the same bytes: nothing in a file depends on the clock or the machine.
package tidy

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// Kind is the type of a column.
type Kind uint8

// Kinds of columns.
const (
	Text   Kind = iota
	Int         // 64 bits, signed
	Number      // a float of 64 bits
	Bool
)

// Column is a variable.
type Column struct {
	Name string
	Kind Kind
}

// Row has a value for each column: string, int64, float64 or bool by its kind, or nil if it is unknown.
type Row []any

// Table is rows in memory.
type Table struct {
	Columns []Column
	Rows    []Row
}

// Index returns the place of a column, -1 if there is none.
func (t *Table) Index(name string) int {
	for i, c := range t.Columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// Check finds the first value that is not of its column's kind, and column names that appear twice.
func (t *Table) Check() error {
	seen := map[string]bool{}
	for _, c := range t.Columns {
		if c.Name == "" || seen[c.Name] {
			return fmt.Errorf("column %q has no name, or one that appears twice", c.Name)
		}
		seen[c.Name] = true
	}
	for i, r := range t.Rows {
		if len(r) != len(t.Columns) {
			return fmt.Errorf("row %d has %d values, the table has %d columns", i, len(r), len(t.Columns))
		}
		for k, v := range r {
			ok := v == nil
			switch t.Columns[k].Kind {
			case Text:
				_, is := v.(string)
				ok = ok || is
			case Int:
				_, is := v.(int64)
				ok = ok || is
			case Number:
				_, is := v.(float64)
				ok = ok || is
			case Bool:
				_, is := v.(bool)
				ok = ok || is
			}
			if !ok {
				return fmt.Errorf("row %d: %s is %v, which is not of the column's type", i, t.Columns[k].Name, v)
			}
		}
	}
	return nil
}

// Figure returns v, or nil if it is not a number: what has no mean is unknown.
func Figure(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

// WriteCSV writes a table as CSV with a head. A null is an empty field.
func WriteCSV(w io.Writer, t *Table) error {
	if err := t.Check(); err != nil {
		return err
	}
	out := csv.NewWriter(w)
	fields := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		fields[i] = c.Name
	}
	if err := out.Write(fields); err != nil {
		return err
	}
	for _, r := range t.Rows {
		for i, v := range r {
			switch v := v.(type) {
			case nil:
				fields[i] = ""
			case string:
				fields[i] = v
			case int64:
				fields[i] = strconv.FormatInt(v, 10)
			case float64:
				fields[i] = strconv.FormatFloat(v, 'g', -1, 64)
			case bool:
				fields[i] = strconv.FormatBool(v)
			}
		}
		if err := out.Write(fields); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// ReadFile reads a Parquet file of flat columns.
func ReadFile(name string) (*Table, error) {
	return whole(func(choose func([]Column) ([]int, error), each func(Row) error) error {
		return ScanFile(name, choose, each)
	})
}

// whole returns all that a scan has.
func whole(scan func(choose func([]Column) ([]int, error), each func(Row) error) error) (*Table, error) {
	t := &Table{}
	err := scan(func(columns []Column) ([]int, error) {
		t.Columns = columns
		return nil, nil
	}, func(row Row) error {
		t.Rows = append(t.Rows, row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// ScanFile is [ScanParquet] of a file. It keeps no rows.
func ScanFile(name string, choose func([]Column) ([]int, error), each func(Row) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = ScanParquet(f, info.Size(), choose, each)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// WriteFile writes a table as Parquet, or as CSV if the name ends in .csv; see [Replace].
func WriteFile(name string, t *Table) error {
	write := WriteParquet
	if strings.HasSuffix(name, ".csv") {
		write = WriteCSV
	}
	return Replace(name, func(w io.Writer) error { return write(w, t) })
}
