package history

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// slowKinds are kinds whose samples keep the slowest volumes, whatever they read and wrote.
var slowKinds = []Kind{{Name: "volume", Fields: []Field{{Name: "rate", Rank: true}, {Name: "p99", Rule: Worst, Keep: true}}}}

func slow(name string, rate, p99 float32) Row {
	return Row{Kind: "volume", Name: name, Values: []float32{rate, p99}}
}

func names(r Result) (out []string) {
	for _, o := range r.Objects {
		out = append(out, o.Name)
	}
	return out
}

// A slow victim that moves little data stays in a sample beside more busy volumes than that may hold, and a query for
// the slowest finds it: the slowest of the range, and the slowest at its end.
func TestSlowestAreKept(t *testing.T) {
	h := Open("", slowKinds, func(line string) { t.Error(line) })
	for second := 1; second <= 20; second++ {
		var rows []Row
		for i := range MaxRows + 20 {
			rows = append(rows, slow(fmt.Sprintf("busy%02d", i), float32(1000+i), 1))
		}
		late, early := float32(50), float32(90)
		if second <= 10 {
			late, early = 2, 900
		}
		h.Append(at(second), time.Second, append(rows, slow("late", 1, late), slow("early", 1, early), slow("mute", 1, unknown)))
	}
	q := Query{From: at(0), To: at(20), Points: 100, Top: 2}
	if got, want := names(h.Query(q)), []string{"busy83", "busy82"}; !slices.Equal(got, want) {
		t.Errorf("the busiest are %q, want %q", got, want)
	}
	q.Highest, q.Also = "p99", 1
	if got, want := names(h.Query(q)), []string{"busy83", "busy82", "early"}; !slices.Equal(got, want) {
		t.Errorf("with the slowest they are %q, want %q", got, want)
	}
	h.Append(at(21), time.Second, []Row{slow("late", 1, 50), slow("early", 1, unknown)})
	q.To = at(25)
	if got, want := names(h.Query(q)), []string{"busy83", "busy82", "early", "late"}; !slices.Equal(got, want) {
		t.Errorf("with the slowest at the end they are %q, want %q", got, want)
	}
	// The last of these steps of 10 s has just begun.
	q.Points, q.To = 4, at(30).Add(time.Millisecond)
	if got, want := names(h.Query(q)), []string{"busy83", "busy82", "early", "late"}; !slices.Equal(got, want) {
		t.Errorf("with the slowest of the last whole step they are %q, want %q", got, want)
	}
}

// The number of an object is kept with its name, also over a restart and when it is gone; a name that another object
// gets has that one's number.
func TestNumbersAreKept(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, true)
	row := func(name string, id uint32) Row {
		r := volume(name, 1, 0, 0, unknown, unknown)
		r.ID = id
		return r
	}
	find := func(name string) string {
		for _, o := range h.Query(Query{From: at(0), To: at(30), Points: 100, Top: 10}).Objects {
			if o.Name == name && o.Kind == "volume" {
				return fmt.Sprint(o.ID, o.Named)
			}
		}
		return "none"
	}
	h.second(1, row("stays", 5), row("gone", 0), row("again", 7))
	h.second(2, row("stays", 5), row("again", 8))
	h.second(3, row("stays", 5))
	h.second(4, row("stays", 5), row("late", 1<<31))
	for round := range 3 {
		for name, want := range map[string]string{"stays": "5 true", "gone": "0 true", "again": "8 true", "late": "2147483648 true"} {
			if got := find(name); got != want {
				t.Errorf("after %d restarts %s is %s, want %s", round, name, got, want)
			}
		}
		h.Close()
		h = open(t, dir, true)
	}
}
