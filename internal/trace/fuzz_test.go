package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRead gives anything to every format and to the detection: nothing may
// panic, and whatever comes out is a request that can be replayed.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(samples + "/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 2000)])
	}
	f.Add([]byte("fio version 2 iolog\na wait 18446744073709551615 0\na wait\na read 1 1"))
	f.Add([]byte("8,0 1 1 9223372036.999999999 1 Q W 18446744073709551615 + 8 [x]"))
	names := []string{""}
	for _, n := range FormatNames() {
		names = append(names, n[0])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range names {
			r, err := NewReader(bytes.NewReader(data), "fuzz", Options{Format: name, MaxBad: 1})
			if err != nil {
				continue
			}
			last := int64(0)
			var rec Record
			for range 1000 {
				if r.Next(&rec) != nil {
					break
				}
				if rec.Time < last || rec.Length == 0 || rec.Length > maxLength || int(rec.Disk) >= len(r.Disks()) {
					t.Fatalf("%s gave %+v after time %d", r.Format(), rec, last)
				}
				if !r.Objects() && rec.Offset+uint64(rec.Length) > maxOffset {
					t.Fatalf("%s gave a request beyond the bounds: %+v", r.Format(), rec)
				}
				last = rec.Time
			}
		}
	})
}
