package top

import (
	"encoding/csv"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"github.com/arraysim/arraysim/internal/admin"
)

func screen(width int) *model {
	c := admin.Counters{Time: 2e9, Volumes: []admin.VolumeCounters{
		{Volume: "idle", Pool: "p"}, {Volume: "clone", Pool: "p", Undercover: 8e6, Dirty: 45}},
		Pools: []admin.PoolCounters{{Pool: "p", CacheUsed: 45, CacheLimit: 100}, {Pool: "rest", CacheLimit: 100}}}
	from := admin.Counters{Time: 1e9, Volumes: []admin.VolumeCounters{{Volume: "idle", Pool: "p"}, {Volume: "clone", Pool: "p"}}}
	m := newModel("volumes", time.Second, nil)
	m.last, m.now = reading{Counters: from}, reading{Counters: c}
	m.width, m.height = width, 30
	return m
}

func press(m *model, keys string) {
	for _, r := range keys {
		m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
	}
}

// Where the screen is narrow columns give way, with a mark; the name, UNDERCOVER and the column sorted by do not.
func TestColumnsGiveWay(t *testing.T) {
	for width := 200; width >= 50; width-- {
		m := screen(width)
		m.sort["volumes"] = 7 // LAT ms
		lines := strings.Split(m.View(), "\n")
		head := lines[2]
		for _, l := range lines {
			if w := lipgloss.Width(l); w > width {
				t.Fatalf("at a width of %d a line has %d: %q", width, w, l)
			}
		}
		for _, want := range []string{"VOLUME", "UNDERCOVER MB/s", "LAT ms▾"} {
			if !strings.Contains(head, want) {
				t.Fatalf("at a width of %d the heads lack %s: %q", width, want, head)
			}
		}
		if cut := !strings.Contains(head, "DESCRIBED"); cut != strings.Contains(head, "»") {
			t.Fatalf("at a width of %d: %q", width, head)
		}
	}
}

// On a terminal of 80 by 24, with names as long as those of the demonstration, the columns that tell the story are in
// view: who writes undercover, who holds the cache, and how long writes wait. So is the key of the help.
func TestStoryOn80Columns(t *testing.T) {
	m := screen(80)
	m.height = 24
	for i, name := range []string{"demo-victim", "demo-clone"} {
		v := &m.now.Volumes[i]
		v.Volume, v.Pool, v.Dirty = name, "demo-shared", 43<<20
		m.last.Volumes[i].Volume, m.last.Volumes[i].Pool = name, "demo-shared"
	}
	m.now.Pools[0].Pool, m.now.Pools[0].CacheLimit = "demo-shared", 43<<20
	m.now.Volumes[0].Timed, m.now.Volumes[0].Busy = 1, 499_920_000
	m.now.CacheSize = 64 << 20
	m.now.p99 = map[string]float64{"demo-victim": 500e6}
	lines := strings.Split(m.View(), "\n")
	for _, want := range []string{"VOLUME", "WRITE MB/s", "UNDERCOVER MB/s", "LAT ms", "P99 ms", "CACHE", "%CAP"} {
		if !strings.Contains(lines[2], want) {
			t.Errorf("the heads lack %s: %q", want, lines[2])
		}
	}
	if len(lines) != 24 || !strings.HasPrefix(lines[23], "? help  q quit") || lipgloss.Width(keys) > 80 {
		t.Errorf("%d lines, the last one is %q", len(lines), lines[len(lines)-1])
	}
	screen := strings.Join(lines, "\n")
	for _, want := range []string{"499.92", "500.00", " - ", "43 MiB █████ 100", "undercover 8.0 MB/s; 45 B of 64 MiB held"} {
		if !strings.Contains(screen, want) {
			t.Errorf("there is no %q:\n%s", want, screen)
		}
	}
	press(m, "p")
	if head := strings.Split(m.View(), "\n")[2]; !strings.Contains(head, "%CAP") || !strings.Contains(head, "WAITING") || !strings.Contains(head, "UNDERCOVER MB/s") {
		t.Errorf("the heads of the pools are %q", head)
	}
}

// Of volumes that the history does not have, and where nothing was read or written, a p99 is unknown.
func TestWorstOfHistory(t *testing.T) {
	nan := float32(math.NaN())
	got := worst(admin.HistoryRange{Objects: []admin.HistoryObject{
		{Kind: "total", Series: map[string]admin.Values{"p": {9}}}, {Kind: "volume", Name: "a", Series: map[string]admin.Values{"p": {1, nan, 3, 2}}},
		{Kind: "volume", Name: "b", Series: map[string]admin.Values{"p": {nan}}}}}, "p")
	if len(got) != 1 || got["a"] != 3 {
		t.Errorf("got %v, want 3 of a alone", got)
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	table := table{columns: []column{{"LAT ms", "latency", showMillis, false}}, rows: [][]cell{{{n: unknown}}, {{n: 5}}}}
	if err := table.lines(w, time.Unix(0, 0)); err != nil || b.String() != "1970-01-01T00:00:00Z,\n1970-01-01T00:00:00Z,5\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// A volume or pool that was made anew under its name counts from 0, and so do all after a restart: no rate is negative, and no
// latency is a difference that wrapped.
func TestMadeAnew(t *testing.T) {
	counters := func(seconds int64, id uint32, n admin.Size, timed, busy uint64) reading {
		return reading{Counters: admin.Counters{Time: seconds * 1e9, Volumes: []admin.VolumeCounters{{Volume: "v", Pool: "p", ID: id, Written: n, Undercover: n, Timed: timed, Busy: busy,
			Admitted: map[string]admin.Size{"host": n}}}, Pools: []admin.PoolCounters{{Pool: "p", ID: id, BackendRead: n}}}}
	}
	for _, row := range []struct {
		from, to reading
		rate     float64
		latency  float64
	}{
		{counters(1, 7, 9e6, 5, 900), counters(2, 8, 4e6, 9, 90), 4e6, 10}, {counters(1, 7, 3e6, 5, 50), counters(2, 8, 4e6, 9, 90), 4e6, 10},
		{counters(1, 7, 3e6, 5, 50), counters(2, 7, 4e6, 9, 90), 1e6, 10}, {counters(1, 7, 9e6, 5, 900), counters(2, 7, 4e6, 9, 90), 0, unknown},
	} {
		volume, pool := newTable("volumes", row.from, row.to).rows[0], newTable("pools", row.from, row.to).rows[0]
		if volume[4].n != row.rate || pool[7].n != row.rate || pool[9].n != row.rate || volume[7].n != row.latency && !(math.IsNaN(row.latency) && math.IsNaN(volume[7].n)) {
			t.Errorf("%+v to %+v: %v, %v", row.from, row.to, volume, pool)
		}
		m := newModel("volumes", time.Second, nil)
		m.last, m.now = row.from, row.to
		if want := fmt.Sprintf("hosts write %s, cache %[1]s, undercover %[1]s MB/s", showRate(row.rate)); !strings.HasPrefix(m.summary(), want) {
			t.Errorf("%q, want %q", m.summary(), want)
		}
	}
}

func TestHidesIdle(t *testing.T) {
	for view, busy := range map[string]string{"v": "clone", "p": "p"} {
		m := screen(120)
		press(m, view+"z")
		lines := strings.Split(m.View(), "\n")
		if !strings.HasPrefix(lines[3], busy+" ") || strings.TrimSpace(lines[4]) != "" || !strings.Contains(lines[1], "1 idle hidden") {
			t.Errorf("view %s:\n%s", view, strings.Join(lines[:6], "\n"))
		}
		press(m, "z")
		if !strings.Contains(m.View(), map[string]string{"v": "idle", "p": "rest"}[view]) {
			t.Errorf("view %s shows no idle row again", view)
		}
	}
}

func TestHelp(t *testing.T) {
	m := screen(80)
	press(m, "?")
	if s := m.View(); !strings.Contains(s, "hide idle rows") || strings.Contains(s, "clone") || strings.Count(s, "\n") != 29 {
		t.Errorf("help:\n%s", s)
	}
	for _, l := range help {
		if lipgloss.Width(l) > 100 {
			t.Errorf("a line of the help has %d columns: %s", lipgloss.Width(l), l)
		}
	}
	press(m, "r") // goes back, and does nothing else
	if s := m.View(); m.reverse || !strings.Contains(s, "clone") {
		t.Errorf("behind the help:\n%s", s)
	}
	m.height = 6
	press(m, "?")
	if s := m.View(); strings.Count(s, "\n") != 5 {
		t.Errorf("help on six lines:\n%s", s)
	}
}

func TestBars(t *testing.T) {
	for n, want := range map[float64]string{0: "░░░░░   0", 1: "█░░░░   1", 45: "██░░░  45", 100: "█████ 100", 130: "█████ 130"} {
		if got := showShare(n); got != want {
			t.Errorf("%v %% is %q, want %q", n, got, want)
		}
	}
}
