//go:build !noparquet

package tidy

import (
	"bytes"
	"fmt"
	"testing"
)

// FuzzReadParquet gives anything to the reader of rows, whose files may come from other machines: it returns a table whose
// values are of their columns' kinds, or an error, and does not panic.
func FuzzReadParquet(f *testing.F) {
	var b bytes.Buffer
	if err := WriteParquet(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("PAR1PAR1"))
	f.Add(b.Bytes()[:b.Len()/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ReadParquet(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for i := range table.Columns {
			table.Columns[i].Name = fmt.Sprint("c", i) // a file may have no names, or one twice
		}
		if err := table.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
