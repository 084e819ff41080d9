package admin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetadataIsMended: with the files of one copy of the metadata damaged, a check says what it mended, a second one has nothing to say,
// and the daemon serves what was there.
func TestMetadataIsMended(t *testing.T) {
	for _, name := range []string{"meta", "meta.copy"} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
			r := start(t, c)
			data := pattern(t, 1<<20)
			r.write("v", 100, data)
			r.stop()
			files, err := filepath.Glob(filepath.Join(c.Data, name, "*"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(b); i += 50 {
					b[i] ^= 0x10
				}
				if err := os.WriteFile(f, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 2 {
				var said bytes.Buffer
				rep, err := Check(t.Context(), c.Data, CheckOptions{Log: &said})
				if err != nil || len(rep.Problems) > 0 {
					t.Fatalf("check %d: %v %v", n, rep.Problems, err)
				}
				if mended := strings.Contains(said.String(), "rebuilt"); mended != (n == 0) {
					t.Errorf("check %d said: %s", n, &said)
				}
			}
			r = start(t, parse(t, testConfig, c.Data))
			if got := r.read("v", 100, len(data)); !bytes.Equal(got, data) {
				t.Error("the data is not the same")
			}
		})
	}
}
