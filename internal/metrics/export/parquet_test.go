package export

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/parquet-go/parquet-go"
)

// foreign is a Parquet file of one row, as another program may write it.
func foreign(t *testing.T, group parquet.Group, row map[string][]parquet.Value) []byte {
	t.Helper()
	var b bytes.Buffer
	schema := parquet.NewSchema("table", group)
	w := parquet.NewGenericWriter[any](&b, schema)
	var values parquet.Row
	for _, path := range schema.Columns() {
		leaf, _ := schema.Lookup(path...)
		for i, v := range row[path[0]] {
			repeats := 0
			if i > 0 {
				repeats = leaf.MaxRepetitionLevel
			}
			values = append(values, v.Level(repeats, leaf.MaxDefinitionLevel, leaf.ColumnIndex))
		}
		if len(row[path[0]]) == 0 {
			values = append(values, parquet.NullValue().Level(0, 0, leaf.ColumnIndex))
		}
	}
	if _, err := w.WriteRows([]parquet.Row{values}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// first reads the first row of a Parquet file.
func first(b []byte) (row Row, err error) {
	r, err := NewParquetReader(bytes.NewReader(b), int64(len(b)))
	if err == nil {
		err = r.Read(&row)
	}
	return row, err
}

// TestParquetOfOthers: a table of an older version lacks its last labels, and copies by other programs have other units,
// types and columns. What cannot be understood is refused by the column's name.
func TestParquetOfOthers(t *testing.T) {
	const instant = 1767225600_000_000_000 // 2026-01-01
	text := parquet.Optional(parquet.String())
	old := func() (parquet.Group, map[string][]parquet.Value) {
		group := parquet.Group{"time": parquet.Timestamp(parquet.Nanosecond), "value": parquet.Leaf(parquet.DoubleType)}
		row := map[string][]parquet.Value{"time": {parquet.Int64Value(instant)}, "value": {parquet.DoubleValue(42)}}
		for _, c := range Columns()[1 : len(Columns())-1] {
			if c != "peer" && c != "role" {
				group[c] = text
			}
		}
		for c, v := range map[string]string{"layer": "host", "family": metrics.HostQueueDepth.Name, "volume": "v", "node": "2"} {
			row[c] = []parquet.Value{parquet.ByteArrayValue([]byte(v))}
		}
		return group, row
	}
	for _, c := range []struct {
		name   string
		change func(parquet.Group, map[string][]parquet.Value)
		says   string
	}{
		{"an older version", func(parquet.Group, map[string][]parquet.Value) {}, ""},
		{"microseconds", func(g parquet.Group, r map[string][]parquet.Value) {
			g["time"], r["time"] = parquet.Optional(parquet.TimestampAdjusted(parquet.Microsecond, false)), []parquet.Value{parquet.Int64Value(instant / 1e3)}
		}, ""},
		{"milliseconds", func(g parquet.Group, r map[string][]parquet.Value) {
			g["time"], r["time"] = parquet.Timestamp(parquet.Millisecond), []parquet.Value{parquet.Int64Value(instant / 1e6)}
		}, ""},
		{"whole values", func(g parquet.Group, r map[string][]parquet.Value) {
			g["value"], r["value"] = parquet.Int(64), []parquet.Value{parquet.Int64Value(42)}
		}, ""},
		{"single precision", func(g parquet.Group, r map[string][]parquet.Value) {
			g["value"], r["value"] = parquet.Leaf(parquet.FloatType), []parquet.Value{parquet.FloatValue(42)}
		}, ""},
		{"a column of their own in front, repeated", func(g parquet.Group, r map[string][]parquet.Value) {
			g["a"], r["a"] = parquet.Repeated(parquet.Int(64)), []parquet.Value{parquet.Int64Value(1), parquet.Int64Value(2), parquet.Int64Value(3)}
		}, ""},
		{"a time that is a number", func(g parquet.Group, _ map[string][]parquet.Value) { g["time"] = parquet.Int(64) }, `column "time" of this Parquet file is INT(64,true); want a TIMESTAMP`},
		{"a time that is text", func(g parquet.Group, r map[string][]parquet.Value) { g["time"], r["time"] = text, r["family"] }, `column "time"`},
		{"a value that is text", func(g parquet.Group, r map[string][]parquet.Value) { g["value"], r["value"] = text, r["family"] }, "want DOUBLE"},
		{"a value that is a date", func(g parquet.Group, r map[string][]parquet.Value) {
			g["value"], r["value"] = parquet.Timestamp(parquet.Nanosecond), r["time"]
		}, "want DOUBLE"},
		{"labels that are numbers", func(g parquet.Group, r map[string][]parquet.Value) {
			g["volume"], r["volume"] = parquet.Int(64), r["time"]
		}, `column "volume"`},
		{"several volumes", func(g parquet.Group, _ map[string][]parquet.Value) { g["volume"] = parquet.Repeated(parquet.String()) }, `column "volume" of this Parquet file is nested; want text`},
		{"no value", func(g parquet.Group, _ map[string][]parquet.Value) { delete(g, "value") }, `no column "value"`},
		{"no time in a row", func(g parquet.Group, r map[string][]parquet.Value) {
			g["time"], r["time"] = parquet.Optional(parquet.Timestamp(parquet.Nanosecond)), nil
		}, "row 1 of this Parquet file has no valid time"},
	} {
		group, row := old()
		c.change(group, row)
		got, err := first(foreign(t, group, row))
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
			continue
		}
		label := func(name string) string { return got.Labels[slices.Index(LabelColumns, name)] }
		if err != nil || got.Time != instant || got.Value != 42 || got.Family != metrics.HostQueueDepth.Name || label("volume") != "v" || label("node") != "2" || label("peer") != "" {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// TestDamagedParquet: a file that is damaged anywhere gives rows or an error.
func TestDamagedParquet(t *testing.T) {
	var file bytes.Buffer
	w := NewParquet(&file)
	if err := errors.Join(w.Write(snapshots(1)[0]), w.Close()); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 400 {
		b := slices.Clone(file.Bytes())
		at := rnd.IntN(len(b))
		b[at] ^= byte(1 + rnd.IntN(255))
		func() {
			defer func() {
				if x := recover(); x != nil {
					t.Fatalf("with another byte at %d of %d: %v", at, len(b), x)
				}
			}()
			r, err := NewParquetReader(bytes.NewReader(b), int64(len(b)))
			for n := 0; err == nil && n < 100_000; n++ {
				err = r.Read(&Row{})
			}
			if !errors.Is(err, io.EOF) {
				refused++
			}
		}()
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}
