package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/metricstest"
)

// text is a snapshot as lines, for comparison.
func text(s *metrics.Snapshot) []string {
	var out []string
	s.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		line := fmt.Sprint(s.Time, " ", f.Name, " ", strings.Join(labels, ","), " ", v)
		if h != nil {
			line += fmt.Sprint(h.Buckets, h.Count, h.Sum)
		}
		out = append(out, line)
	})
	slices.Sort(out)
	return out
}

func TestEveryLabelHasAColumn(t *testing.T) {
	for _, f := range metrics.All() {
		for i, at := range columnsOf(f) {
			if at < 0 {
				t.Errorf("label %s of %s has no column; add it at the end of LabelColumns", f.Labels[i], f.Name)
			}
		}
	}
}

func snapshots(n int) []*metrics.Snapshot {
	var out []*metrics.Snapshot
	for i := range n {
		s := &metrics.Snapshot{}
		s.Take(int64(i)*1e9+5, &sync.Mutex{}, metricstest.Source(metricstest.Everything), metricstest.Source(func(e metrics.Emitter) {
			e.Value(metrics.CacheDirty, 1<<53-1, "p,\"q\"", "line\nbreak", "host")
			e.Value(metrics.HostQueueDepth, 0.1, "")
		}))
		out = append(out, s)
	}
	return out
}

// What is written is what is read, in both formats.
func TestTablesComeBack(t *testing.T) {
	for name, format := range map[string]struct {
		w func(io.Writer) SnapshotWriter
		r func([]byte) (RowReader, error)
	}{
		"CSV":     {NewCSV, func(b []byte) (RowReader, error) { return NewCSVReader(bytes.NewReader(b)) }},
		"Parquet": {NewParquet, func(b []byte) (RowReader, error) { return NewParquetReader(bytes.NewReader(b), int64(len(b))) }},
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			w := format.w(&file)
			want := snapshots(3)
			for _, s := range want {
				if err := w.Write(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			rows, err := format.r(file.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			r := NewSnapshotReader(rows)
			var got metrics.Snapshot
			for _, s := range want {
				if err := r.Read(&got); err != nil {
					t.Fatal(err)
				}
				if a, b := text(&got), text(s); !slices.Equal(a, b) {
					t.Fatalf("read\n%s\nwant\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
				}
			}
			if err := r.Read(&got); !errors.Is(err, io.EOF) {
				t.Errorf("behind the last snapshot: %v", err)
			}
		})
	}
}

func TestBadTables(t *testing.T) {
	var good bytes.Buffer
	if err := NewCSV(&good).Write(snapshots(1)[0]); err != nil {
		t.Fatal(err)
	}
	head := strings.Join(Columns(), ",")
	row := strings.Repeat(",", len(Columns())-1)
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "no header"},
		{"another table", "a,b,c,d\n", "not a table of counters"},
		{"a bad time", head + "\nyesterday" + row[:len(row)-1] + ",1\n", `line 2: "yesterday" is not a valid time`},
		{"a bad value", head + "\n2026-01-01T00:00:00Z" + row + "x\n", `line 2: "x" is not a valid value`},
		{"a short row", head + "\n1,2\n", "wrong number of fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, err := NewCSVReader(strings.NewReader(c.text))
			if err == nil {
				err = rows.Read(&Row{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := NewParquetReader(bytes.NewReader(good.Bytes()), int64(good.Len())); err == nil {
		t.Error("CSV is taken for Parquet")
	}
}

// TestSortedByFamily: a table that was sorted by something else than time is refused. Its snapshots would be parts.
func TestSortedByFamily(t *testing.T) {
	text := strings.Join(Columns(), ",") + "\n"
	for _, family := range []string{metrics.CacheSize.Name, metrics.Problems.Name} {
		for second := range 2 {
			text += fmt.Sprintf("2026-01-01T00:00:0%dZ,cache,%s%s,1\n", second, family, strings.Repeat(",", len(LabelColumns)))
		}
	}
	rows, err := NewCSVReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r := NewSnapshotReader(rows)
	for s := (&metrics.Snapshot{}); err == nil; {
		err = r.Read(s)
	}
	if want := "line 4: other rows of the same time are above; sort the table by time"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestClockStepsBack: whole snapshots are read in the order in which they stand, also if the clock of the writer went back.
func TestClockStepsBack(t *testing.T) {
	var file bytes.Buffer
	w := NewCSV(&file)
	all := snapshots(3)
	want := []*metrics.Snapshot{all[1], all[0], all[2]}
	for _, s := range want {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := NewCSVReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	r := NewSnapshotReader(rows)
	var got metrics.Snapshot
	for _, s := range want {
		if err := r.Read(&got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(text(&got), text(s)) {
			t.Errorf("the snapshot of %d came back different", s.Time)
		}
	}
	if err := r.Read(&got); err != io.EOF {
		t.Errorf("behind the last snapshot: %v", err)
	}
}

// A file that was cut or changed anywhere gives rows or an error, nothing else.
func FuzzCSVReader(f *testing.F) {
	var b bytes.Buffer
	if err := NewCSV(&b).Write(snapshots(1)[0]); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes()[:2000])
	r := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		broken := slices.Clone(b.Bytes()[:1000+r.IntN(3000)])
		broken[r.IntN(len(broken))] = byte(r.IntN(256))
		f.Add(broken)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		rows, err := NewCSVReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		r := NewSnapshotReader(rows)
		for s := (&metrics.Snapshot{}); r.Read(s) == nil; {
			_ = s.Len()
		}
	})
}

func TestDocumentedTable(t *testing.T) {
	b, err := os.ReadFile("../../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\n## The table\n")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = true
	}
	for _, c := range Columns() {
		if !documented[c] {
			t.Errorf("docs/counters.md, The table: no word on column %s among %v", c, slices.Sorted(maps.Keys(documented)))
		}
	}
}
