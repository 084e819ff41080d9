package size

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadFile: what has the limit is read whole, what has more is not read on.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 1024)), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(path, 1024); err != nil || len(b) != 1024 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for name, limit := range map[string]int64{path: 1023, "/dev/zero": 1 << 20} {
		_, err := ReadFile(name, limit)
		if !errors.Is(err, ErrTooLarge) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s with a limit of %d: %v", name, limit, err)
		}
	}
	if b, err := ReadFile(os.DevNull, 0); err != nil || len(b) != 0 {
		t.Errorf("nothing: %d bytes, %v", len(b), err)
	}
	for _, name := range []string{t.TempDir(), "", filepath.Join(t.TempDir(), "none")} {
		if _, err := ReadFile(name, 1); err == nil || errors.Is(err, ErrTooLarge) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
