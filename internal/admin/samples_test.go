//go:build !noparquet

package admin

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// TestTableHasAllFamilies: what is exported and what is recorded has every family of the array that a scrape shows, with
// those of links, of other arrays and of the build.
func TestTableHasAllFamilies(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"node", "peer"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("the secret of the "+name+"s, which is long\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := parse(t, testConfig+fmt.Sprintf("node: {id: 1, name: a, listen: '%s', secret_file: %s}\npeers: [{name: b, lend: true, secret_file: %s}]\n",
		freeAddress(t), filepath.Join(dir, "node"), filepath.Join(dir, "peer")), t.TempDir())
	cfg.Record.Dir, cfg.Record.Interval = filepath.Join(dir, "record"), time.Hour
	r := start(t, cfg)
	want := map[string]bool{}
	for line := range strings.Lines(r.scrape()) {
		if name := line[:max(strings.IndexAny(line, "{ "), 0)]; strings.HasPrefix(name, "arraysim_") {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, part)
			}
			want[name] = true
		}
	}
	families := func(s *metrics.Snapshot) map[string]bool {
		out := map[string]bool{}
		s.Each(func(f *metrics.Family, _ []string, _ float64, _ *metrics.Histogram) { out[f.Name] = true })
		return out
	}
	check := func(what string, got map[string]bool) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !got[name] {
				t.Errorf("%s: there is no %s", what, name)
			}
		}
	}
	if !want[metrics.BuildInfo.Name] || !want[metrics.PeerUp.Name] || !want["arraysim_link_refused_total"] {
		t.Fatalf("the scrape has %q", slices.Sorted(maps.Keys(want)))
	}
	var s metrics.Snapshot
	if err := r.Samples(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	check("samples", families(&s))
	r.stop()
	files, err := filepath.Glob(filepath.Join(cfg.Record.Dir, "counters-*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recorded: %q, %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := export.NewParquetReader(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	table := export.NewSnapshotReader(rows)
	n := 0
	for ; ; n++ {
		if err = table.Read(&s); err != nil {
			break
		}
		check(fmt.Sprintf("recorded reading %d", n), families(&s))
	}
	if n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("%d recorded readings, %v", n, err)
	}
}
