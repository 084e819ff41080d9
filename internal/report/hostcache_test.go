package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics/export"
)

// cacheCSV is two intervals of two disks: "fast" reads from flash what takes 5 ms at the datastore,
// "plain" has no gain.
const cacheCSV = `seconds,host,disk,volume,effective_read_ios,effective_read_bytes,effective_read_ns,effective_write_ios,effective_write_bytes,effective_write_ns,local_read_ios,local_read_bytes,local_read_ns,local_write_ios,local_write_bytes,local_write_ns,network_read_ios,network_read_bytes,network_read_ns,network_write_ios,network_write_bytes,network_write_ns,datastore_read_ios,datastore_read_bytes,datastore_read_ns,datastore_write_ios,datastore_write_bytes,datastore_write_ns,destage_ios,destage_bytes,destage_ns,throttled_writes,injected_ns,passed_writes,dirty_bytes,dirty_max_bytes,area_bytes,resident_blocks
1,h,fast,v1,100,409600,95000000,0,0,0,90,368640,45000000,0,0,0,0,0,0,0,0,0,10,40960,50000000,0,0,0,0,0,0,0,0,0,0,0,1000,5
1,h,plain,v2,10,40960,40000000,10,40960,10000000,0,0,0,0,0,0,0,0,0,0,0,0,10,40960,40000000,10,40960,10000000,0,0,0,0,0,0,0,0,1000,5
2,h,fast,v1,100,409600,95000000,100,409600,10000000,90,368640,45000000,100,409600,10000000,0,0,0,0,0,0,10,40960,50000000,100,409600,300000000,100,409600,300000000,7,0,0,500,500,1000,5
2,h,plain,v2,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1000,5
`

func TestPerformanceMap(t *testing.T) {
	caches, err := readHostCaches(strings.NewReader(cacheCSV))
	if err != nil || len(caches) != 2 {
		t.Fatalf("%d caches, %v", len(caches), err)
	}
	gains := PerformanceMap(caches, 1, 2) // the second interval only
	g := gains[0]
	// 100 reads of 0.95 ms that take 5 ms below, 100 writes of 0.1 ms that take 3.
	if want := 100*(5-0.95)/1e3 + 100*(3-0.1)/1e3; g.Disk != "h/fast" || math.Abs(float64(g.Saved)-want) > 1e-9 || g.Weight != 1 {
		t.Errorf("%+v; it should spare %.3f s/s and weigh 1", g, want)
	}
	if math.Abs(float64(g.FlashShare)-0.95) > 1e-9 || g.HostWrites != 0.5 || math.Abs(float64(g.ArrayWrites)-100./110) > 1e-9 {
		t.Errorf("%+v; flash answers 95 %%, writes are half of the host's and 100 of 110 of the array's I/Os", g)
	}
	if p := gains[1]; p.Disk != "h/plain" || p.IOPS != 0 || p.Saved != 0 {
		t.Errorf("%+v did nothing in the interval", p)
	}
	if p := PerformanceMap(caches, 0, 1)[1]; math.Abs(float64(p.Saved)) > 1e-9 {
		t.Errorf("%+v reads and writes at the datastore's speed", p)
	}
	var b bytes.Buffer
	if err := WritePerformanceMap(&b, gains); err != nil || !strings.Contains(b.String(), "h/fast") || !strings.Contains(b.String(), "unknown") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestGainsThatAreNotKnown: where the datastore was not seen to do what the host does, nobody knows what it would have taken.
func TestGainsThatAreNotKnown(t *testing.T) {
	caches, err := readHostCaches(strings.NewReader(strings.ReplaceAll(cacheCSV, "10,40960,50000000", "0,0,0")))
	if err != nil {
		t.Fatal(err)
	}
	gains := PerformanceMap(caches, 1, 2) // nothing is read at the datastore
	text, err := json.Marshal(gains)
	if err != nil {
		t.Fatal(err)
	}
	if g := gains[1]; g.Disk != "h/fast" || g.Datastore.Known() || g.Saved.Known() || g.Weight.Known() || !g.Effective.Known() || strings.Count(string(text), `"saved_seconds_per_second":null`) != 1 {
		t.Errorf("%s", text)
	}
	if g := gains[0]; g.Effective.Known() || g.FlashShare.Known() || g.Saved != 0 {
		t.Errorf("%+v did nothing: its latency is not known", g)
	}
	draw := mapPicture(gains)
	if math.IsNaN(float64(draw.Bars[0].Values[0])) || !math.IsNaN(float64(draw.Bars[0].Values[1])) {
		t.Errorf("%v", draw.Bars)
	}
	if err := (&Report{Pictures: []*Picture{draw}}).SVG(func(_, svg string) error {
		if strings.Contains(svg, "NaN") {
			t.Error(svg)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestHostCachePictures(t *testing.T) {
	caches, err := readHostCaches(strings.NewReader(cacheCSV))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	var draw []*Picture
	for _, p := range HostCachePictures(caches) {
		ids = append(ids, p.ID)
		if p.Text == "" {
			t.Errorf("picture %s says nothing", p.ID)
		}
		if p.ID == "disk1-latency" {
			draw = append(draw, p)
		}
		for _, l := range p.Lines {
			if len(l.Values) != len(p.X) {
				t.Errorf("%s: line %s has %d values at %d times", p.ID, l.Name, len(l.Values), len(p.X))
			}
		}
	}
	// A cache that is never dirty has no picture of its destaging area.
	want := "disk1-iops disk1-iops-readwrite disk1-latency disk1-latency-readwrite disk1-throughput disk1-throughput-readwrite disk1-area " +
		"disk2-iops disk2-iops-readwrite disk2-latency disk2-latency-readwrite disk2-throughput disk2-throughput-readwrite map"
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("pictures are %s, not %s", got, want)
	}
	if err := (&Report{Pictures: draw}).SVG(func(name, svg string) error {
		if name != "disk1-latency.svg" || !strings.Contains(svg, "datastore") {
			t.Errorf("%s does not show the datastore", name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A folder that has nothing but host caches makes a report of these, one with counters has
// both, and one that is damaged none.
func TestReportOfHostCaches(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, HostCacheFile)
	if err := os.WriteFile(name, []byte(cacheCSV), 0o666); err != nil {
		t.Fatal(err)
	}
	page := func(source string) (*Report, string) {
		t.Helper()
		run, err := LoadRun(t.Context(), source, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		r := New("caches", run)
		if err := r.WriteHTML(&b); err != nil {
			t.Fatal(err)
		}
		return r, b.String()
	}
	for _, source := range []string{dir, name} {
		r, html := page(source)
		if len(r.Pictures) != 14 || strings.Contains(html, "Findings") {
			t.Errorf("%s: %d pictures of caches", source, len(r.Pictures))
		}
		for _, id := range []string{"disk1-latency", "disk2-throughput-readwrite", "disk1-area", "map"} {
			if !strings.Contains(html, `id="chart-`+id+`"`) {
				t.Errorf("%s: picture %s is not on the page", source, id)
			}
		}
	}
	f, err := os.Create(filepath.Join(dir, "counters.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recorded(t, 3, export.NewCSV(f))
	_, html := page(dir)
	for _, want := range []string{`id="chart-fullness"`, `id="chart-disk1-latency"`, "<h2>Findings"} {
		if !strings.Contains(html, want) {
			t.Errorf("a run with counters and caches has no %s", want)
		}
	}
	if err := os.WriteFile(name, []byte("seconds\nx\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRun(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), HostCacheFile) {
		t.Errorf("damaged caches: %v", err)
	}
}

func TestHostCacheFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"": "no header", "seconds,host\n1,h\n": "no column", strings.Replace(cacheCSV, "95000000", "many", 1): "line 2",
		strings.Replace(cacheCSV, ",5\n", "\n", 1): "fields",
	} {
		if _, err := readHostCaches(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v; it should say %q", err, want)
		}
	}
	if _, err := LoadHostCaches(t.TempDir()); err == nil || !strings.Contains(err.Error(), "sim --out") {
		t.Errorf("a folder without the file: %v", err)
	}
}
