package export

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/metricstest"
)

// clone is what an array says at second i while volume "dst" of pool "gold" is the target
// of a copy of 100 MB/s that no host writes, and "db" is written with 10 MB/s.
func clone(i int) *metrics.Snapshot {
	t := float64(i)
	s := &metrics.Snapshot{}
	s.Take(int64(i)*1e9, &sync.Mutex{}, metricstest.Source(func(e metrics.Emitter) {
		e.Value(metrics.CacheSize, 2e9)
		for _, p := range []string{"gold", "silver"} {
			e.Value(metrics.CacheLimit, 1e9, p)
			e.Value(metrics.CacheUsed, 5e8+t*1e8, p)
			e.Value(metrics.CacheUsedSeconds, 5e8*t+t*t*5e7, p)
			var h metrics.Histogram
			for range 10 * i {
				h.Observe(3e6)
			}
			e.Histogram(metrics.BackendDuration, &h, p, "m0", "write")
			e.Value(metrics.BackendBytes, 1e8*t, p, "m0", "write", "xcopy", "destage")
			e.Value(metrics.BackendBytes, 1e7*t, p, "m0", "write", "host", "destage")
		}
		var h metrics.Histogram
		for range 100 * i {
			h.Observe(700e3)
		}
		if i == 2 {
			h.Observe(1500e6)
		}
		e.Value(metrics.HostCommands, 100*t, "db", "gold", "esx1", "write", "good")
		e.Value(metrics.HostTransferred, 1e7*t, "db", "gold", "write")
		e.Histogram(metrics.HostDuration, &h, "db", "write")
		e.Value(metrics.CacheAdmitted, 1e7*t, "gold", "db", "host", "fast")
		e.Value(metrics.CacheDestaged, 1e7*t, "gold", "db", "host")
		e.Value(metrics.HostCommands, 10*t, "dst", "gold", "esx1", "xcopy_dst", "good")
		e.Value(metrics.HostCommands, 1, "dst", "gold", "esx2", "xcopy_dst", "check")
		e.Value(metrics.HostTransferred, 4096, "dst", "gold", "write")
		e.Value(metrics.HostDescribed, 1e8*t, "dst", "gold", "xcopy_dst")
		e.Value(metrics.CacheAdmitted, 1e8*t, "gold", "dst", "xcopy", "fast")
		e.Value(metrics.CacheDirty, 5e8, "gold", "dst", "xcopy")
		e.Value(metrics.CacheDestaged, 9e7*t, "gold", "dst", "xcopy")
	}))
	return s
}

// node of a parsed file.
type node struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Inner   []node     `xml:",any"`
}

func (n *node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (n *node) find(path ...string) []*node {
	if len(path) == 0 {
		return []*node{n}
	}
	var out []*node
	for i := range n.Inner {
		if n.Inner[i].XMLName.Local == path[0] {
			out = append(out, n.Inner[i].find(path[1:]...)...)
		}
	}
	return out
}

func parse(t *testing.T, dir, kind string, i int) *node {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, kind+"_stats_*"))
	if err != nil || i >= len(names) {
		t.Fatalf("%d files of kind %s, %v", len(names), kind, err)
	}
	b, err := os.ReadFile(names[i])
	if err != nil {
		t.Fatal(err)
	}
	var n node
	if err := xml.Unmarshal(b, &n); err != nil {
		t.Fatalf("%s: %v\n%s", names[i], err, b)
	}
	return &n
}

func writeAll(t *testing.T, w SnapshotWriter, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := w.Write(clone(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// The attributes that open readers of these files ask for, element by element.
func TestIOStatsAttributes(t *testing.T) {
	dir := t.TempDir()
	w, err := NewIOStats(dir, IOStatsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, w, 1, 3)
	const cache = "cv cm ctps ctds ctrs ctrhs ctrhps ctws ctwhs ctwfts ctwwts ctwfws ctwfwshs"
	const full = "cfav cfcn cfmn cfmx wcfav wcfcn wcfmn wcfmx"
	for _, c := range []struct{ kind, path, attrs string }{
		{"Nv", "vdsk", "id idx ro wo rb wb rl wl rlw wlw xl"},
		{"Nv", "vdsk ca", cache},
		{"Nv", "vdsk cpy ca", cache},
		{"Nm", "mdsk", "id idx ro wo rb wb re we rq wq ure uwe urq uwq pre pwe pro pwo"},
		{"Nm", "mdsk ca", "ctds"},
		{"Nd", "mdsk", "idx ro wo rb wb re we rq wq ure uwe urq uwq"},
		{"Nn", "node", "id ro wo rb wb re we rq wq"},
		{"Nn", "port", "id cbt cbr cet cer hbt hbr het her lnbt lnbr lnet lner rmbt rmbr rmet rmer"},
		{"Nn", "uca ca", full},
		{"Nn", "uca partition ca", full},
		{"Nn", "lca partition ca", full},
	} {
		root := parse(t, dir, c.kind, 1)
		if root.XMLName.Local != "diskStatsColl" || !strings.Contains(root.XMLName.Space, iostatsKinds[c.kind].ns) {
			t.Errorf("%s: root %v", c.kind, root.XMLName)
		}
		for _, a := range strings.Fields("scope id cluster timestamp timezone contains sizeUnits timeUnits") {
			if root.attr(a) == "" {
				t.Errorf("%s: the root has no %s", c.kind, a)
			}
		}
		if _, err := time.Parse(iostatsTime, root.attr("timestamp")); err != nil {
			t.Error(err)
		}
		found := root.find(strings.Fields(c.path)...)
		if len(found) == 0 {
			t.Errorf("%s has no %s", c.kind, c.path)
		}
		for _, n := range found {
			for _, a := range strings.Fields(c.attrs) {
				v := n.attr(a)
				if _, err := strconv.ParseUint(v, 10, 64); err != nil && a != "id" || v == "" {
					t.Errorf("%s %s: %s=%q", c.kind, c.path, a, v)
				}
			}
		}
	}
}

// An offloaded copy is not in what hosts do, and is below.
func TestIOStatsValues(t *testing.T) {
	dir := t.TempDir()
	w, err := NewIOStats(dir, IOStatsOptions{Interval: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, w, 0, 3)
	vols := parse(t, dir, "Nv", 1).find("vdsk")
	if len(vols) != 2 {
		t.Fatalf("%d volumes", len(vols))
	}
	db, dst := vols[0], vols[1]
	ca := dst.find("cpy", "ca")[0]
	nn := parse(t, dir, "Nn", 1)
	part := nn.find("lca", "partition", "ca")[0]
	for _, c := range []struct{ what, got, want string }{
		{"name", dst.attr("id"), "dst"},
		{"writes of hosts", dst.attr("wo"), "0"},
		{"blocks of hosts", dst.attr("wb"), "8"},
		{"dirty", ca.attr("cm"), fmt.Sprint(int64(5e8) / 512)},
		{"destaged", ca.attr("ctds"), fmt.Sprint(int64(18e7) / 512)},
		{"admitted below", ca.attr("ctws"), fmt.Sprint(int64(2e8) / 512)},
		{"fast writes below", ca.attr("ctwfws"), fmt.Sprint(int64(2e8) / 512)},
		{"writes above", dst.find("ca")[0].attr("ctws"), "8"},
		{"writes of the other", db.attr("wo"), "201"},
		{"their ms", db.attr("wl"), "1640"},
		{"their worst", db.attr("wlw"), "2000"},
		{"fullness, mean of the integral", part.attr("wcfav"), "60"},
		{"fullness, highest", part.attr("wcfmx"), "70"},
		{"fullness, lowest", part.attr("wcfmn"), "60"},
		{"mdisk's writes", parse(t, dir, "Nm", 1).find("mdsk")[0].attr("wo"), "20"},
		{"mdisk's blocks", parse(t, dir, "Nm", 1).find("mdsk")[0].attr("wb"), fmt.Sprint(int64(22e7) / 512)},
		{"mdisk's ms", parse(t, dir, "Nm", 1).find("mdsk")[0].attr("we"), "60"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "lsvdisk"))
	if err != nil || !strings.Contains(string(b), "1:dst:0:gold\n") {
		t.Errorf("lsvdisk: %v\n%s", err, b)
	}
}

func TestIOStatsKeepsSixteen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "stats[1]")      // not a pattern
	for _, span := range [][2]int{{0, 10}, {10, 20}} { // a second writer goes on where the first ended
		w, err := NewIOStats(dir, IOStatsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		writeAll(t, w, span[0], span[1])
	}
	for kind := range iostatsKinds {
		var names []string
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasPrefix(f.Name(), kind) {
				names = append(names, f.Name())
			}
		}
		if len(names) != 16 || !strings.HasSuffix(names[0], "_stats_000000_700101_000004") {
			t.Errorf("%s: %d files, the first is %v", kind, len(names), names[:1])
		}
		if !regexp.MustCompile(`^N[nvmd]_stats_\w+_\d{6}_\d{6}$`).MatchString(filepath.Base(names[0])) {
			t.Errorf("name %s", names[0])
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4*16+2 { // and what the numbers mean
		t.Errorf("%d files: %q, %v", len(files), files, err)
	}
	if _, err := NewIOStats(filepath.Join(filepath.Dir(dir), "stats[1"), IOStatsOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := NewIOStats(dir, IOStatsOptions{Interval: time.Millisecond}); err == nil {
		t.Error("an interval of 1 ms is accepted")
	}
}

// TestIOStatsGoOnBehindTheClock: a clock that is set back ends the sets for no time.
func TestIOStatsGoOnBehindTheClock(t *testing.T) {
	for _, interval := range []time.Duration{0, 10 * time.Second} {
		dir := t.TempDir()
		w, err := NewIOStats(dir, IOStatsOptions{Interval: interval})
		if err != nil {
			t.Fatal(err)
		}
		writeAll(t, w, 5000, 5002)
		writeAll(t, w, 1000, 1002)
		want := map[time.Duration]int{0: 4, 10 * time.Second: 2}[interval]
		if got, err := filepath.Glob(filepath.Join(dir, "Nv_stats_*")); err != nil || len(got) != want {
			t.Errorf("an interval of %v: %d sets, want %d, %v", interval, len(got), want, err)
		}
	}
}

// TestListingsAreReplaced: who reads what the numbers mean reads all of it, or all of the one before.
func TestListingsAreReplaced(t *testing.T) {
	dir := t.TempDir()
	w, err := NewIOStats(dir, IOStatsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, w, 0, 1)
	f, err := os.Open(filepath.Join(dir, "lsvdisk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writeAll(t, w, 1, 2)
	old, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(f.Name()); err != nil || os.SameFile(old, now) || now.Mode().Perm() != 0o644 {
		t.Errorf("the file of the first set was written over: %v, %v", now, err)
	}
}

func TestESXTop(t *testing.T) {
	for _, c := range []struct {
		host, failed string
	}{{"", "1.00"}, {"esx1", "0.00"}} {
		var b strings.Builder
		writeAll(t, NewESXTop(&b, c.host), 1, 4)
		rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 3 || rows[0][0] != "(PDH-CSV 4.0) (UTC)(0)" || rows[1][0] != "01/01/1970 00:00:02" {
			t.Fatalf("%q", rows)
		}
		for name, want := range map[string]string{
			`(dst)\CLONE_WR`: "20.00", `(dst)\CLONE_F`: c.failed, `(dst)\MBC_WR/s`: "95.37", `(dst)\Writes/sec`: "0.00",
			`(db)\Writes/sec`: "100.00", `(db)\MBytes Written/sec`: "9.54", `(db)\ZERO`: "0.00",
		} {
			i := slices.IndexFunc(rows[0], func(h string) bool { return strings.HasSuffix(h, name) })
			if i < 0 || rows[1][i] != want {
				t.Errorf("host %q: %s is %v, want %s", c.host, name, rows[1][max(i, 0)], want)
			}
		}
	}
}
