package trace

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestWritten: what is written is read back as the same requests, in the order of their beginning.
func TestWritten(t *testing.T) {
	all := []Request{ // in the order of their ends
		{Record{2e6, Write, 1, 4096, 512}, 1000}, {Record{1e6, Read, 0, 1 << 40, 65536}, 5e6}, {Record{7_003_000, Read, 1, 0, 4096}, 2_345_678},
	}
	disks := []string{"a", "b"}
	for _, row := range []struct {
		format string
		write  func(io.Writer) error
		disks  string
	}{
		{"fio", func(w io.Writer) error { return WriteFioIOLog(w, disks, all) }, "a b"},
		{"blkparse", func(w io.Writer) error { return WriteBlkparse(w, all) }, "8,0 8,16"},
	} {
		var b bytes.Buffer
		if err := row.write(&b); err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(&b, row.format, Options{})
		if err != nil || r.Format() != row.format {
			t.Fatalf("%v, error %v", r, err)
		}
		got, err := readAll(r)
		want := []Record{{0, Read, 0, 1 << 40, 65536}, {1e6, Write, 1, 4096, 512}, {6_003_000, Read, 1, 0, 4096}}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || strings.Join(r.Disks(), " ") != row.disks {
			t.Errorf("%s: %v of %v, error %v", row.format, got, r.Disks(), err)
		}
	}
	var b bytes.Buffer
	if err := WriteFioLatencyLog(&b, all); err != nil || b.String() != "2, 1000, 1, 512, 4096, 0\n6, 5000000, 0, 65536, 1099511627776, 0\n9, 2345678, 0, 4096, 0, 0\n" {
		t.Errorf("%q, error %v", b.String(), err)
	}
}
