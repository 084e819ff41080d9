package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// recorded is a scenario with an offload as our own counters tell it, written by w.
func recorded(t *testing.T, seed uint64, w ...export.SnapshotWriter) *modelScenario {
	t.Helper()
	s := newModel(seed, "offload", true)
	var snap metrics.Snapshot
	for i := 0; i <= s.seconds; i++ {
		if i > 0 {
			s.array.step()
		}
		if i%60 == 0 {
			s.array.snapshot(&snap)
			for _, x := range w {
				if err := x.Write(&snap); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, x := range w {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func culprits(f *Findings) []string {
	var out []string
	for _, u := range f.Undercover {
		if !slices.Contains(out, u.Volume) {
			out = append(out, u.Volume)
		}
	}
	slices.Sort(out)
	return out
}

func load1(t *testing.T, source string, opt Options) *Data {
	t.Helper()
	d, err := Load(t.Context(), source, opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The same run leads to the same culprits, whatever form its counters have.
func TestEverySourceTellsTheSame(t *testing.T) {
	dir := t.TempDir()
	csvFile, err := os.Create(filepath.Join(dir, "run.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer csvFile.Close()
	parquetFile, err := os.Create(filepath.Join(dir, "run.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer parquetFile.Close()
	iostats, err := export.NewIOStats(filepath.Join(dir, "iostats"), export.IOStatsOptions{Keep: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var rec Recorder
	s := recorded(t, 3, export.NewCSV(csvFile), export.NewParquet(parquetFile), iostats, &rec)
	var want []string
	for v := range s.culprits {
		want = append(want, v)
	}
	slices.Sort(want)
	live := rec.Data("live")
	if got := culprits(detect(live)); !slices.Equal(got, want) {
		t.Errorf("live: %v, want %v", got, want)
	}
	saved, mapped, mapping := prometheusFile(t, dir, live), mappedFile(t, dir, live), filepath.Join(dir, "mapping.yaml")
	bare := filepath.Join(dir, "bare")
	if err := os.CopyFS(bare, os.DirFS(filepath.Join(dir, "iostats"))); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(bare, "lsvdisk"))
	os.Remove(filepath.Join(bare, "lsmdiskgrp"))
	for _, c := range []struct {
		source string
		opt    Options
		pool   string
	}{
		{csvFile.Name(), Options{}, "pool"}, {parquetFile.Name(), Options{}, "pool"}, {filepath.Join(dir, "iostats"), Options{}, "pool"},
		{bare, Options{}, "mdg0"}, {saved, Options{}, "pool"}, {prometheusAt(t, saved), Options{}, "pool"}, {mapped, Options{Mapping: mapping}, "pool"},
	} {
		f := detect(load1(t, c.source, c.opt))
		if (f.Labelled != nil) != (c.source == saved || strings.HasPrefix(c.source, "http://")) {
			t.Errorf("%s: the origin label says %v", filepath.Base(c.source), f.Labelled)
		}
		if got := culprits(f); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", filepath.Base(c.source), got, want)
		}
		for _, u := range f.Undercover {
			if u.Pool != c.pool {
				t.Errorf("%s: pool %s, want %s", filepath.Base(c.source), u.Pool, c.pool)
			}
		}
	}
}

// prometheusAt serves the series of a saved answer as a Prometheus does, each to the queries that name it, and returns
// its URL.
func prometheusAt(t *testing.T, saved string) string {
	t.Helper()
	text, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Values [][2]any          `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/api/v1/query_range") || r.FormValue("step") != "15" {
			http.Error(w, "no such page, or no step of a 240th of an hour", http.StatusNotFound)
			return
		}
		out := []any{}
		for _, x := range all.Data.Result {
			name := x.Metric["__name__"]
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(r.FormValue("query")) {
				continue
			}
			if strings.HasPrefix(r.FormValue("query"), "sum") {
				x.Metric = maps.Clone(x.Metric)
				delete(x.Metric, "__name__") // a sum has no name
			}
			out = append(out, x)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": out}})
	}))
	t.Cleanup(s.Close)
	return s.URL + "/prefix/"
}

// prometheusFile saves data as a Prometheus would answer.
func prometheusFile(t *testing.T, dir string, d *Data) string {
	t.Helper()
	type series struct {
		Metric map[string]string `json:"metric"`
		Values [][2]any          `json:"values"`
	}
	var all []series
	cumulative := func(name string, labels map[string]string, s Series, counter bool) {
		labels["__name__"] = name
		x := series{Metric: labels, Values: [][2]any{}}
		sum := 0.0
		if counter {
			x.Values = append(x.Values, [2]any{float64(d.Start) / 1e9, "0"})
		}
		for i, v := range s {
			if counter {
				sum += v * d.seconds(i)
				v = sum
			}
			x.Values = append(x.Values, [2]any{float64(d.Times[i]) / 1e9, jsonNumber(v)})
		}
		all = append(all, x)
	}
	for _, v := range d.Volumes {
		l := func(more ...string) map[string]string {
			m := map[string]string{"volume": v.Name, "pool": v.Pool}
			for i := 0; i < len(more); i += 2 {
				m[more[i]] = more[i+1]
			}
			return m
		}
		cumulative(metrics.HostTransferred.Name, l("direction", "write"), v.Host[write], true)
		cumulative(metrics.HostDuration.Name+"_count", l("op", "write"), v.Ops[write], true)
		cumulative(metrics.HostDuration.Name+"_sum", l("op", "write"), v.Time[write], true)
		cumulative(metrics.CacheDestaged.Name, l(), v.Lower, true)
		cumulative(metrics.Undercover.Name, l("origin", "xcopy"), v.Lower, true) // some figure
		held := slices.Concat(Series{v.Held0}, v.Held)
		all = append(all, series{Metric: map[string]string{"__name__": metrics.CacheDirty.Name, "volume": v.Name, "pool": v.Pool}})
		for i, x := range held {
			at := d.Start
			if i > 0 {
				at = d.Times[i-1]
			}
			last := &all[len(all)-1]
			last.Values = append(last.Values, [2]any{float64(at) / 1e9, jsonNumber(x)})
		}
	}
	b, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": all}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "range.json")
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

func jsonNumber(x float64) string {
	b, _ := json.Marshal(x)
	return string(b)
}

// mappedFile saves data as another tool might: rates, in units of its own.
func mappedFile(t *testing.T, dir string, d *Data) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("When;LUN;Group;w/s;MB/s;ms;Cache MB;Destage MB/s\n")
	for i, at := range d.Times {
		for _, v := range d.Volumes {
			mean := 0.0
			if v.Ops[write][i] > 0 {
				mean = v.Time[write][i] / v.Ops[write][i]
			}
			cells := []string{time.Unix(0, at).UTC().Format("2006-01-02 15:04"), v.Name, v.Pool}
			for _, x := range []float64{v.Ops[write][i], v.Host[write][i] / 1e6, mean * 1e3, v.Held[i] / 1e6, v.Lower[i] / 1e6} {
				cells = append(cells, jsonNumber(x))
			}
			b.WriteString(strings.Join(cells, ";") + "\n")
		}
	}
	mapping := `time: When
layout: "2006-01-02 15:04"
comma: ";"
volume: LUN
pool: Group
kind: rates
columns:
  writes: {column: w/s}
  write_bytes: {column: MB/s, unit: 1e6}
  write_seconds: {column: ms, unit: 1e-3}
  held_bytes: {column: Cache MB, unit: 1e6}
  lower_bytes: {column: Destage MB/s, unit: 1e6}
`
	name := filepath.Join(dir, "tool.csv")
	if err := errors.Join(os.WriteFile(name, []byte(b.String()), 0o666), os.WriteFile(filepath.Join(dir, "mapping.yaml"), []byte(mapping), 0o666)); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSourcesThatMakeNoSense(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	some := file("some.csv", "a,b\n1,2\n")
	for _, c := range []struct {
		name, source string
		opt          Options
		want         string
	}{
		{"nothing there", filepath.Join(dir, "none"), Options{}, "no such file"},
		{"an empty folder", t.TempDir(), Options{}, "no counters in this folder"},
		{"unknown text", some, Options{}, "explain other CSV with --mapping"},
		{"an empty file", file("empty", ""), Options{}, "neither our table"},
		{"one snapshot", file("one.csv", strings.Join(export.Columns(), ",")+"\n"), Options{}, "no two readings"},
		{"other XML", file("x.xml", "<diskStatsColl timestamp=\"soon\"/>"), Options{}, `timestamp "soon"`},
		{"a refusal", file("p.json", `{"status":"error","error":"no"}`), Options{}, "refuses: no"},
		{"a mapping without time", some, Options{Mapping: file("m1.yaml", "volume: a\n")}, "it needs time"},
		{"a mapping of what is not there", some, Options{Mapping: file("m2.yaml", "time: a\nvolume: c\n")}, `no column "c"`},
		{"a mapping with a typing mistake", some, Options{Mapping: file("m3.yaml", "time: a\nvolume: b\ncolumns: {write: {column: b}}\n")}, `"write" is not a valid quantity`},
		{"a time that is none", some, Options{Mapping: file("m4.yaml", "time: a\nvolume: b\n")}, `line 2: "1" is not a valid time`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(t.Context(), c.source, c.opt)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestMappedCells: an empty cell of another tool's CSV is unknown; what is no number, or there twice, is an error.
func TestMappedCells(t *testing.T) {
	dir := t.TempDir()
	mapping, csv := filepath.Join(dir, "m.yaml"), filepath.Join(dir, "other.csv")
	if err := os.WriteFile(mapping, []byte("{time: t, layout: unix, comma: ;, volume: v, pool: p, columns: {writes: {column: w/s}, fullness: {column: full}}}"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"numbers", "10;a;g;12.5;.5\n20;a;g; 7 ;0.5\n", ""},
		{"an empty cell", "10;a;g;12.5;.5\n20;a;g;;\n", ""},
		{"rows of pools beside those of volumes", "10;a;g;1;.5\n10;;g;;.5\n20;a;g;1;.5\n20;b;g;1;.5\n", ""},
		{"a decimal comma", "10;a;g;12,5;.5\n", `line 2, column "w/s": "12,5" is not a number; write 12.5`},
		{"a word", "10;a;g;1;.5\n20;a;g;n/a;.5\n", `line 3, column "w/s": "n/a" is not a number; leave the cell empty if it is unknown`},
		{"NaN", "10;a;g;NaN;.5\n", `"NaN" is not a number`},
		{"infinite", "10;a;g;1;-inf\n", `line 2, column "full": "-inf" is not a number`},
		{"a volume twice", "10;a;g;1;.5\n20;a;g;1;.5\n20;a;h;2;.5\n", "line 4: line 3 is of the same volume and time, too; leave one of them out"},
		{"a pool twice", "10;;g;;.5\n10;;g;;.7\n", "line 3: line 2 is of the same pool and time"},
		{"a time without end", "inf;a;g;1;.5\n", `"inf" is not a valid time in seconds`},
	} {
		if err := os.WriteFile(csv, []byte("\ufefft;v;p;w/s;full\n"+c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Load(t.Context(), csv, Options{Mapping: mapping})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestMarkBeforeQuotes: a byte-order mark is skipped also if the first name of the header is quoted.
func TestMarkBeforeQuotes(t *testing.T) {
	dir := t.TempDir()
	mapping, csv := filepath.Join(dir, "m.yaml"), filepath.Join(dir, "other.csv")
	if err := os.WriteFile(mapping, []byte("{time: When, layout: unix, volume: LUN, columns: {writes: {column: w/s}}}"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"", "\ufeff"} {
		text := mark + `"When","LUN","w/s"` + "\n10,a,1\n20,a,2\n"
		if err := os.WriteFile(csv, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if d := load1(t, csv, Options{Mapping: mapping}); len(d.Volumes) != 1 || d.Volumes[0].Name != "a" {
			t.Errorf("%q: read %d volumes", text, len(d.Volumes))
		}
	}
}

func TestIncrease(t *testing.T) {
	for _, c := range []struct {
		name     string
		was, now float64
		want     float64
		reset    bool
		endless  bool
	}{
		{"it grows", 5, 7, 2, false, false},
		{"it stands", 5, 5, 0, false, true},
		{"32 bits are full", 1<<32 - 10, 20, 30, false, false},
		{"64 bits are full", 1<<64 - 1<<20, 1 << 20, 1 << 21, false, false},
		{"a restart", 1e6, 10, 0, true, false},
		{"a restart far in", 1 << 31, 10, 0, true, false},
		{"a restart near the end of 32 bits", 1<<32 - 10, 20, 0, true, true},
	} {
		if got, reset := increase(c.was, c.now, c.endless); reset != c.reset || !reset && got != c.want {
			t.Errorf("%s: %v %v, want %v %v", c.name, got, reset, c.want, c.reset)
		}
	}
}

func TestReport(t *testing.T) {
	if testing.Short() {
		t.Skip("pictures of two runs")
	}
	var rec Recorder
	recorded(t, 5, &rec)
	d := rec.Data("run")
	f := Analyze(d)
	// The seed has a copy and, later, hosts that write more than the back end takes.
	if len(f.Towers) != 2 || f.Towers[0].Cause != "undercover" || f.Towers[0].Shares == nil || f.Towers[0].Shares.Offload < 0.5 || f.Towers[1].Cause != "hosts" {
		t.Errorf("towers: %+v", f.Towers)
	}
	// One picture of each kind: the race detector makes the chart library slow.
	one := New("one", Run{Name: "one", Data: d, Findings: f})
	one.Pictures = slices.DeleteFunc(one.Pictures, func(p *Picture) bool { return !slices.Contains([]string{"fullness", "holders-1", "heat"}, p.ID) })
	r := New("a <title>", Run{Name: "one", Data: d, Findings: f}, Run{Name: "two", Data: d, Findings: f})
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	html := b.String()
	if !strings.Contains(html, "<title>a &lt;title&gt;</title>") {
		t.Error("the title is not escaped")
	}
	// What a page loads is in src, link or import; the text of the library names addresses.
	if m := regexp.MustCompile(`<link|<(script|img|iframe)[^>]*\ssrc=|@import|url\(`).FindString(strings.ReplaceAll(html, asset("echarts.min.js"), "")); m != "" {
		t.Errorf("the page loads something: %s", m)
	}
	ids := map[string]bool{}
	for _, p := range r.Pictures {
		if ids[p.ID] {
			t.Errorf("two pictures are called %s", p.ID)
		}
		ids[p.ID] = true
		if !strings.Contains(html, `id="chart-`+p.ID+`"`) || p.Text == "" || p.Title == "" {
			t.Errorf("picture %s is not on the page, or says nothing", p.ID)
		}
		for _, y := range p.Y {
			if y.Unit == "" {
				t.Errorf("an axis of %s has no unit", p.ID)
			}
		}
	}
	for _, id := range []string{"compare-response", "run1-fullness", "run1-load", "run1-responses", "run1-holders-1", "run1-layers-1", "run1-typical", "run1-held", "run2-heat"} {
		if !ids[id] {
			t.Errorf("there is no picture %s", id)
		}
	}
	drawn := 0
	err := one.SVG(func(name, svg string) error {
		drawn++
		dec := xml.NewDecoder(strings.NewReader(svg))
		shapes := 0
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if e, ok := tok.(xml.StartElement); ok && (e.Name.Local == "path" || e.Name.Local == "rect") {
				shapes++
			}
		}
		if shapes < 5 {
			t.Errorf("%s has %d shapes", name, shapes)
		}
		return nil
	})
	if err != nil || drawn != len(one.Pictures) {
		t.Errorf("%d of %d pictures, %v", drawn, len(one.Pictures), err)
	}
}
