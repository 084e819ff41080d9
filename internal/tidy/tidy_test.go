package tidy

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func sample() *Table {
	return &Table{
		Columns: []Column{{"who", Text}, {"n", Int}, {"x", Number}, {"on", Bool}},
		Rows:    []Row{{"a,\"b\"", int64(-3), 1.5, true}, {nil, nil, nil, nil}, {"", int64(0), 0.0, false}},
	}
}

// TestParquetKeepsNulls: an unknown value comes back as unknown, beside an empty text and a zero.
func TestParquetKeepsNulls(t *testing.T) {
	want := sample()
	var b, again bytes.Buffer
	if err := WriteParquet(&b, want); err != nil {
		t.Fatal(err)
	}
	if err := WriteParquet(&again, want); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Fatalf("the same rows gave other bytes (error %v)", err)
	}
	got, err := ReadParquet(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range want.Rows {
		for k, c := range want.Columns {
			if v := got.Rows[i][got.Index(c.Name)]; v != r[k] {
				t.Errorf("row %d, %s: %v, want %v", i, c.Name, v, r[k])
			}
		}
	}
	if names := []string{got.Columns[0].Name, got.Columns[3].Name}; !slices.Equal(names, []string{"n", "x"}) {
		t.Errorf("columns from %q to %q", names[0], names[1])
	}
}

// TestScanPanicsOfTheCaller: what goes wrong in the caller's functions is no damage of the file.
func TestScanPanicsOfTheCaller(t *testing.T) {
	var b bytes.Buffer
	if err := WriteParquet(&b, sample()); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"choose", "each"} {
		func() {
			defer func() {
				if x := recover(); x != in {
					t.Errorf("%s panics, and what comes is %v", in, x)
				}
			}()
			err := ScanParquet(bytes.NewReader(b.Bytes()), int64(b.Len()), func([]Column) ([]int, error) {
				if in == "choose" {
					panic(in)
				}
				return nil, nil
			}, func(Row) error { panic(in) })
			t.Errorf("%s panics, and the scan ends with %v", in, err)
		}()
	}
}

func TestCSVQuotes(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, sample()); err != nil {
		t.Fatal(err)
	}
	if want := "who,n,x,on\n\"a,\"\"b\"\"\",-3,1.5,true\n,,,\n,0,0,false\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestCheck(t *testing.T) {
	for _, row := range []struct {
		what string
		t    Table
		says string
	}{
		{"a wrong type", Table{Columns: []Column{{"n", Int}}, Rows: []Row{{1.5}}}, "row 0: n is 1.5"},
		{"a short row", Table{Columns: []Column{{"n", Int}}, Rows: []Row{{}}}, "row 0 has 0 values"},
		{"two of a name", Table{Columns: []Column{{"n", Int}, {"n", Text}}}, "appears twice"},
	} {
		if err := row.t.Check(); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: error %v, want %q", row.what, err, row.says)
		}
	}
	if Figure(math.NaN()) != nil || Figure(2) != 2.0 {
		t.Error("a figure that is not a number is not null")
	}
}

// TestWriteFileIsAtomic: what fails leaves neither the file nor a temporary one.
func TestWriteFileIsAtomic(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "rows.parquet")
	bad := &Table{Columns: []Column{{"n", Int}}, Rows: []Row{{"x"}}}
	if err := WriteFile(name, bad); err == nil {
		t.Fatal("a table that is not one was written")
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Fatalf("%s was left", list[0].Name())
	}
	if err := WriteFile(name, sample()); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(name)
	if err != nil || len(got.Rows) != 3 {
		t.Fatalf("%v, error %v", got, err)
	}
	if err := WriteFile(filepath.Join(dir, "rows.csv"), sample()); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Fatalf("%d files, want 2", len(list))
	}
	if !reflect.DeepEqual(got.Columns[1], Column{"on", Bool}) {
		t.Errorf("columns %v", got.Columns)
	}
}
