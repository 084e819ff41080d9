package main

import (
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"github.com/arraysim/arraysim/internal/admin"
)

func topScreen(width int) *topModel {
	c := admin.Counters{Time: 2e9, Volumes: []admin.VolumeCounters{
		{Volume: "idle", Pool: "p"}, {Volume: "clone", Pool: "p", Undercover: 8e6, Dirty: 45}},
		Pools: []admin.PoolCounters{{Pool: "p", CacheUsed: 45, CacheLimit: 100}, {Pool: "rest", CacheLimit: 100}}}
	from := admin.Counters{Time: 1e9, Volumes: []admin.VolumeCounters{{Volume: "idle", Pool: "p"}, {Volume: "clone", Pool: "p"}}}
	m := newTopModel("volumes", time.Second, nil)
	m.last, m.now = topReading{Counters: from}, topReading{Counters: c}
	m.width, m.height = width, 30
	return m
}

func press(m *topModel, keys string) {
	for _, r := range keys {
		m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
	}
}

// Where the screen is narrow columns give way, with a mark; the name, UNDERCOVER and the column sorted by do not.
func TestTopColumnsGiveWay(t *testing.T) {
	for width := 200; width >= 50; width-- {
		m := topScreen(width)
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
		if cut := !strings.Contains(head, "%CAP"); cut != strings.Contains(head, "»") {
			t.Fatalf("at a width of %d: %q", width, head)
		}
	}
}

func TestTopHidesIdle(t *testing.T) {
	for view, busy := range map[string]string{"v": "clone", "p": "p"} {
		m := topScreen(120)
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

func TestTopHelp(t *testing.T) {
	m := topScreen(80)
	press(m, "?")
	if s := m.View(); !strings.Contains(s, "hide idle rows") || strings.Contains(s, "clone") || strings.Count(s, "\n") != 29 {
		t.Errorf("help:\n%s", s)
	}
	for _, l := range topHelp {
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

func TestTopBars(t *testing.T) {
	for n, want := range map[float64]string{0: "░░░░░   0", 1: "█░░░░   1", 45: "██░░░  45", 100: "█████ 100", 130: "█████ 130"} {
		if got := showShare(n); got != want {
			t.Errorf("%v %% is %q, want %q", n, got, want)
		}
	}
}
