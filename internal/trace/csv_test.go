package trace

import (
	"fmt"
	"strings"
	"testing"
)

// TestColumns: any CSV by a mapping, with names or numbers, units, quotes and other separators.
func TestColumns(t *testing.T) {
	for _, row := range []struct {
		name, columns, data string
		want                []Record
		disks               string
	}{
		{
			"names", "time=ts:ms,op=kind,offset=lba:sectors,length=bytes,disk=vol", "vol,ts,kind,lba,bytes\nb,1000.5,Write,8,512\n\"a,1\",1001,read,9,1024\n",
			[]Record{{0, Write, 0, 4096, 512}, {500_000, Read, 1, 9 * 512, 1024}}, "b a,1",
		},
		{
			"numbers", "time=5:us,op=2,offset=3,length=4,disk=1", "419,W,8792731648,16384,1577808000000042\n725,R,59110326272,360448,1577808000000068\n",
			[]Record{{0, Write, 0, 8792731648, 16384}, {26000, Read, 1, 59110326272, 360448}}, "419 725",
		},
		{
			"file times and a value that means write", "time=1:filetime,op=2,offset=3:KiB,length=4:sectors,write=0,separator=space", "128166372003061629  0 4 8\n128166372003061639 1 8 8\n",
			[]Record{{0, Write, 0, 4096, 4096}, {1000, Read, 0, 8192, 4096}}, "disk",
		},
		{
			"whole times and fractions", "time=1:ms,offset=2,length=3", "1577808000000,0,512\n1577808000000.5,0,512\n1577808000001,0,512\n",
			[]Record{{0, Read, 0, 0, 512}, {500_000, Read, 0, 0, 512}, {1_000_000, Read, 0, 0, 512}}, "disk",
		},
		{
			"every digit of nanoseconds since 1970", "time=1:ns,offset=2,length=3", "1577808000000000001,0,512\n1577808000000000002,0,512\n",
			[]Record{{0, Read, 0, 0, 512}, {1, Read, 0, 0, 512}}, "disk",
		},
		{
			"a month later to the nanosecond", "time=1:us,offset=2,length=3", "1577808000000000,0,512\n1580400000000000.001,0,512\n",
			[]Record{{0, Read, 0, 0, 512}, {2592000_000_000_001, Read, 0, 0, 512}}, "disk",
		},
		{
			"blanks between fields, one with quotes", "op=2,offset=3,length=4,separator=space,disk=1", "  \"a  1\"   W  4096\t 512 \nb R 0 512\n",
			[]Record{{0, Write, 0, 4096, 512}, {0, Read, 1, 0, 512}}, "a  1 b",
		},
		{"no time, no operation", "offset=1,length=2,separator=tab", "4096\t512\n0\t512\n", []Record{{0, Read, 0, 4096, 512}, {0, Read, 0, 0, 512}}, "disk"},
	} {
		c, err := ParseColumns(row.columns)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(strings.NewReader(row.data), row.name, Options{Columns: c})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(row.want) || strings.Join(r.Disks(), " ") != row.disks {
			t.Errorf("%s: got %v of %v, %v; want %v of %v", row.name, got, r.Disks(), err, row.want, row.disks)
		}
	}
}

func TestColumnMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"time=1:weeks,offset=2,length=3": "times count s, ms, us, ns or filetime", "offset=1": "lacks offset= or length=", "offset=0,length=2": "columns count from 1",
		"lba=1,length=2": `"lba" is unknown`, "offset=1,length=2,separator=ab": "one character", "offset=,length=2": "is not a column",
		"offset=1,length=2,write=W": "write=W says which op is a write; add op=",
	} {
		if _, err := ParseColumns(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v", text, err)
		}
	}
	for data, says := range map[string]string{"a,b\n1,2\n": `no column "lba" in its first line: a, b`, "lba,n\nx,512\n": "column lba is not a number", "lba,n\n5\n": "fewer columns"} {
		c, err := ParseColumns("offset=lba,length=n")
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(strings.NewReader(data), "x", Options{Columns: c})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v", data, err)
		}
	}
}

// TestColumnsThatLack: a request whose operation or disk is not there, or whose operation is none, is bad. It is no read.
func TestColumnsThatLack(t *testing.T) {
	for _, row := range [][3]string{
		{"op=13,offset=1,length=2", "0,512\n", "it has fewer columns"}, {"op=3,offset=1,length=2,write=W", "0,512\n", "it has fewer columns"},
		{"disk=3,offset=1,length=2", "0,512\n", "it has fewer columns"}, {"op=3,offset=1,length=2", "0,512,0x2a\n", "its operation is neither R nor W"},
		{"op=3,offset=1,length=2", "0,512,10\n", "its operation is neither R nor W"}, {"op=3,offset=1,length=2,write=0x2a", "0,512,0x2a\n", ""},
		{"op=3,offset=1,length=2", "0,512,0\n", ""},
	} {
		c, err := ParseColumns(row[0])
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(strings.NewReader(row[1]), "x", Options{Columns: c})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(r); (err == nil) != (row[2] == "") || err != nil && !strings.Contains(err.Error(), row[2]) {
			t.Errorf("%s of %q: %v, error %v, want %q", row[0], row[1], got, err, row[2])
		}
	}
}

// TestTimesWithExponents: a time of 1.5e-05 s is not 1 s and a little, and is refused.
func TestTimesWithExponents(t *testing.T) {
	c, err := ParseColumns("time=1:s,offset=2,length=3")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"1.5e-05": false, "1.5e3": false, "1.-5": false, "1e3": false, "1.5": true, "15": true} {
		rec := Record{}
		r, err := NewReader(strings.NewReader("0,0,512\n"+text+",0,512\n"), "x", Options{Columns: c})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for r.Next(&rec) == nil {
			n++
		}
		if (n == 2) != want {
			t.Errorf("a time of %s: %d records", text, n)
		}
	}
}
