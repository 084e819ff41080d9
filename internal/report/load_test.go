package report

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNamesOfRuns: a run is called by its file, folder or host; only what says the kind of a file is cut off.
func TestNamesOfRuns(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"k=0.25", "before.csv"} {
		if err := os.Mkdir(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][2]string{{"http://10.0.0.1:9090", "10.0.0.1:9090"}, {"https://user:word@prom.example/prefix/", "prom.example"}, {"out/k=0.25", "k=0.25"},
		{"before/run.parquet", "run"}, {"run.2.csv", "run.2"}, {".csv", ".csv"}, {"before.csv", "before.csv"}, {"/srv/iostats/", "iostats"}, {".", filepath.Base(dir)}} {
		if got := nameOf(c[0]); got != c[1] {
			t.Errorf("%s is called %q, want %q", c[0], got, c[1])
		}
	}
	r := New("t", Run{Name: "counters", source: "before/counters.parquet"}, Run{Name: "other", source: "x/other.csv"}, Run{Name: "counters", source: "after/counters.parquet"},
		Run{Name: "h", source: "http://u:word@h/a"}, Run{Name: "h", source: "http://h/b"})
	var got []string
	for _, run := range r.Runs {
		got = append(got, run.Name)
	}
	if want := []string{"before/counters.parquet", "other", "after/counters.parquet", "http://u:xxxxx@h/a", "http://h/b"}; !slices.Equal(got, want) {
		t.Errorf("the runs are %q, want %q", got, want)
	}
}
