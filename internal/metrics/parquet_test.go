package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/compress/uncompressed"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// The library that everybody knows is the judge of our Parquet; the program does not have it.

// librarySchema is the table's, with text that may be null or not.
func librarySchema(optional bool, encoding func(parquet.Node) parquet.Node) *parquet.Schema {
	group := parquet.Group{"time": parquet.Timestamp(parquet.Nanosecond), "value": parquet.Leaf(parquet.DoubleType)}
	for _, c := range Columns()[1 : len(Columns())-1] {
		group[c] = encoding(parquet.String())
		if optional {
			group[c] = parquet.Optional(group[c])
		}
	}
	return parquet.NewSchema("counters", group)
}

// rowsOf is a table of random rows, with runs and changes in its words.
func rowsOf(r *rand.Rand, n int) []Row {
	words := make([]string, 1+r.IntN(40))
	for i := range words {
		words[i] = fmt.Sprintf("%d%s", i, string(make([]byte, r.IntN(9))))
	}
	var out []Row
	row := Row{Labels: make([]string, len(LabelColumns))}
	for i := range n {
		if r.IntN(1+n/20) == 0 || i == 0 {
			row.Layer, row.Family = words[r.IntN(len(words))], words[r.IntN(len(words))]
		}
		for k := range row.Labels {
			if r.IntN(1+k*3) == 0 {
				row.Labels[k] = words[r.IntN(len(words))]
			}
		}
		row.Time, row.Value = r.Int64(), r.NormFloat64()
		x := row
		x.Labels = slices.Clone(row.Labels)
		out = append(out, x)
	}
	return out
}

// ours writes rows by our writer, in row groups of so many.
func ours(t *testing.T, rows []Row, group int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewParquet(&b).(*parquetWriter)
	for i, r := range rows {
		w.columns[0].number(uint64(r.Time))
		w.columns[1].text(r.Layer)
		w.columns[2].text(r.Family)
		for k, l := range r.Labels {
			w.columns[3+k].text(l)
		}
		w.columns[len(w.columns)-1].number(math.Float64bits(r.Value))
		if w.rows++; (i+1)%group == 0 {
			w.flush()
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readAll(b []byte) (rows []Row, err error) {
	r, err := NewParquetReader(bytes.NewReader(b), int64(len(b)))
	for err == nil {
		var x Row
		if err = r.Read(&x); err == nil {
			rows = append(rows, x)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return rows, err
}

func equalRows(a, b []Row) bool {
	return slices.EqualFunc(a, b, func(a, b Row) bool {
		return a.Time == b.Time && a.Layer == b.Layer && a.Family == b.Family && a.Value == b.Value && slices.Equal(a.Labels, b.Labels)
	})
}

// What we write the library reads, and what the library writes, with all that other tools use, we
// read.
func TestParquetAgainstTheLibrary(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		rows := rowsOf(r, 1+r.IntN(600))
		b := ours(t, rows, 1+r.IntN(len(rows)))
		if got, err := readAll(b); err != nil || !equalRows(got, rows) {
			t.Fatalf("seed %d: our own reader has %d rows of %d, %v", seed, len(got), len(rows), err)
		}
		got, err := byLibrary(b)
		if err != nil || !equalRows(got, rows) {
			t.Fatalf("seed %d: the library reads %d rows of %d, %v", seed, len(got), len(rows), err)
		}
		optional := r.IntN(2) == 0
		encoding := []func(parquet.Node) parquet.Node{
			func(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.RLEDictionary) },
			func(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.Plain) },
		}[r.IntN(2)]
		codec := []parquet.WriterOption{parquet.Compression(&zstd.Codec{}), parquet.Compression(&snappy.Codec{}), parquet.Compression(&uncompressed.Codec{})}[r.IntN(3)]
		b, err = written(rows, librarySchema(optional, encoding), 1+r.IntN(len(rows)), codec, parquet.DataPageVersion(1+r.IntN(2)), parquet.PageBufferSize(256+r.IntN(4096)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(b); err != nil || !equalRows(got, rows) {
			t.Fatalf("seed %d, optional %v: we read %d rows of %d, %v", seed, optional, len(got), len(rows), err)
		}
	}
}

// written writes rows by the library; an empty label is null where it may be.
func written(rows []Row, schema *parquet.Schema, group int, options ...parquet.WriterOption) ([]byte, error) {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[any](&b, append(options, schema)...)
	for i, r := range rows {
		row := make(parquet.Row, len(Columns()))
		for k, text := range slices.Concat([]string{"", r.Layer, r.Family}, r.Labels, []string{""}) {
			leaf, _ := schema.Lookup(Columns()[k])
			v, level := parquet.ByteArrayValue([]byte(text)), leaf.MaxDefinitionLevel
			switch {
			case k == 0:
				v = parquet.Int64Value(r.Time)
			case k == len(row)-1:
				v = parquet.DoubleValue(r.Value)
			case text == "" && level > 0:
				v, level = parquet.NullValue(), 0
			}
			row[leaf.ColumnIndex] = v.Level(0, level, leaf.ColumnIndex)
		}
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			return nil, err
		}
		if (i+1)%group == 0 {
			if err := w.Flush(); err != nil {
				return nil, err
			}
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// byLibrary reads a file of ours by the library.
func byLibrary(b []byte) ([]Row, error) {
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	var out []Row
	r := parquet.NewReader(f)
	buf := make([]parquet.Row, 64)
	for {
		n, err := r.ReadRows(buf)
		for _, x := range buf[:n] {
			var row Row
			for k, c := range Columns() {
				leaf, _ := f.Schema().Lookup(c)
				v := x[leaf.ColumnIndex]
				switch k {
				case 0:
					row.Time = v.Int64()
				case 1:
					row.Layer = v.String()
				case 2:
					row.Family = v.String()
				case len(Columns()) - 1:
					row.Value = v.Double()
				default:
					row.Labels = append(row.Labels, v.String())
				}
			}
			out = append(out, row)
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// A file that was cut or changed anywhere gives rows or an error, nothing else.
func TestDamagedParquet(t *testing.T) {
	rows := rowsOf(rand.New(rand.NewPCG(1, 1)), 200)
	whole := ours(t, rows, 70)
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 9))
		b := slices.Clone(whole)
		for range 1 + r.IntN(4) {
			at := r.IntN(len(b))
			if r.IntN(2) == 0 { // the directory is small, and worth most
				at = len(b) - 1 - r.IntN(min(1200, len(b)))
			}
			b[at] = byte(r.IntN(256))
		}
		if r.IntN(4) == 0 {
			b = b[r.IntN(len(b)):]
		}
		_, _ = readAll(b)
	}
	if got, err := readAll(whole); err != nil || !equalRows(got, rows) {
		t.Fatalf("%d rows, %v", len(got), err)
	}
}

func FuzzParquetReader(f *testing.F) {
	rows := rowsOf(rand.New(rand.NewPCG(2, 2)), 20)
	b, err := written(rows, librarySchema(true, func(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.RLEDictionary) }), 9, parquet.Compression(&snappy.Codec{}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = readAll(b) })
}
