package admin

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHealthIsSaid: what fails is in the status, for people as well, and counted by a metric, also behind a restart. Here both copies of
// the metadata are in one folder, so that one is not used.
func TestHealthIsSaid(t *testing.T) {
	for _, fails := range []bool{false, true} {
		dir := t.TempDir()
		if fails {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "meta"), 0o700), os.Symlink("meta", filepath.Join(dir, "meta.copy"))); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			r := start(t, parse(t, testConfig, dir))
			s, err := r.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			WriteStatus(&text, s)
			count := "\narraysim_health_problems 0\n"
			if fails {
				count = "\narraysim_health_problems 1\n"
			}
			_, _, metrics := r.ask("GET", "/metrics", "", "", nil)
			if said := strings.Contains(text.String(), "is not used: its disk has failed, or it could not be rebuilt"); said != fails || len(s.Health) > 0 != fails || !strings.Contains(metrics, count) {
				t.Errorf("a copy fails: %v; the status has %q:\n%s", fails, s.Health, text.String())
			}
			r.stop()
		}
	}
}
