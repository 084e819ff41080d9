package history

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var kinds = []Kind{
	{Name: "total", Always: true, Fields: []Field{{Name: "rate"}}},
	{Name: "volume", Fields: []Field{{Name: "rate", Rank: true}, {Name: "dirty", Rule: Max, Rank: true}, {Name: "n"},
		{Name: "mean", Rule: Weighted, Weight: 2}, {Name: "p99", Rule: Worst}}},
}

var unknown = float32(math.NaN())

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is n seconds behind the epoch.
func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

func total(v float32) Row { return Row{Kind: "total", Values: []float32{v}} }

func volume(name string, rate, dirty, n, mean, p99 float32) Row {
	return Row{Kind: "volume", Name: name, Values: []float32{rate, dirty, n, mean, p99}}
}

func resting(name string) Row { return volume(name, 0, 0, 0, unknown, unknown) }

func open(t *testing.T, dir string, quiet bool) *History {
	t.Helper()
	return Open(dir, kinds, func(line string) {
		if quiet {
			t.Error(line)
		}
	})
}

// second appends one second with the rows, and the total's.
func (h *History) second(end int, rows ...Row) {
	h.Append(at(end), time.Second, append([]Row{total(1)}, rows...))
}

func (h *History) find(q Query, kind, name, field string) []float32 {
	for _, o := range h.Query(q).Objects {
		if o.Kind == kind && o.Name == name {
			return o.Series[slices.IndexFunc(o.Fields, func(f Field) bool { return f.Name == field })]
		}
	}
	return nil
}

func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return x == y || x != x && y != y })
}

// Idle is zero; a daemon that was down, a volume that did not exist and latency without commands are unknown.
func TestUnknownIsNoZero(t *testing.T) {
	h := open(t, "", true)
	h.second(1, resting("a"))
	h.second(2, volume("a", 10, 5, 2, 7, 9))
	h.second(3, resting("a"), volume("b", 1, 0, 0, unknown, unknown))
	h.second(6, resting("a"), resting("b")) // seconds 4 and 5 were not sampled
	h.second(7, resting("a"))               // b is deleted
	q := Query{From: at(0), To: at(8), Points: 100, Top: 10}
	for _, c := range []struct {
		kind, name, field string
		want              []float32
	}{
		{"volume", "a", "rate", []float32{0, 10, 0, unknown, unknown, 0, 0, unknown}},
		{"volume", "a", "dirty", []float32{0, 5, 0, unknown, unknown, 0, 0, unknown}},
		{"volume", "a", "mean", []float32{unknown, 7, unknown, unknown, unknown, unknown, unknown, unknown}},
		{"volume", "a", "p99", []float32{unknown, 9, unknown, unknown, unknown, unknown, unknown, unknown}},
		{"volume", "b", "rate", []float32{unknown, unknown, 1, unknown, unknown, 0, unknown, unknown}},
		{"total", "", "rate", []float32{1, 1, 1, unknown, unknown, 1, 1, unknown}},
	} {
		if got := h.find(q, c.kind, c.name, c.field); !same(got, c.want) {
			t.Errorf("%s of %s %s is %v, want %v", c.field, c.kind, c.name, got, c.want)
		}
	}
}

// TestAtMostThePoints: a range that begins within a step has no more steps than were asked for, and nothing of it is left out.
func TestAtMostThePoints(t *testing.T) {
	h := open(t, "", true)
	for i := 1; i <= 20; i++ {
		h.Append(at(i).Add(500*time.Millisecond), time.Second, []Row{total(1), volume("a", 8, 0, 0, unknown, unknown)})
	}
	end := at(20).Add(500 * time.Millisecond)
	for _, points := range []int{1, 2, 3, 7, 19, 20, 21, 300} {
		q := Query{From: end.Add(-20 * time.Second), To: end, Points: points, Kind: "volume", Name: "a"}
		r := h.Query(q)
		sum, last := 0.0, q.From
		for i, v := range r.Objects[0].Series[0] {
			first := last
			if begin := r.Times[i].Add(-r.Step); begin.After(first) {
				first = begin
			}
			if last = r.Times[i]; v == v {
				sum += float64(v) * last.Sub(first).Seconds()
			}
		}
		if len(r.Times) > points || !last.Equal(end) || sum != 160 {
			t.Errorf("%d points: %d steps of %v to %v, which add up to %v", points, len(r.Times), r.Step, last, sum)
		}
	}
}

// A step of several samples has their mean, their highest or their weighted mean, over what is known.
func TestSteps(t *testing.T) {
	h := open(t, "", true)
	for i := 1; i <= 10; i++ {
		switch {
		case i == 3 || i == 4: // down
		case i <= 6:
			h.second(i, volume("a", 8, float32(i), 10, 100, float32(100*i)))
		default:
			h.second(i, volume("a", 0, 0, 30, 500, 700))
		}
	}
	q := Query{From: at(0), To: at(10), Points: 1, Kind: "volume", Name: "a"}
	for field, want := range map[string]float32{"rate": 4, "dirty": 6, "n": 20, "mean": 400, "p99": 700} {
		if got := h.find(q, "volume", "a", field); !same(got, []float32{want}) {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if sum, covered := h.Sum("total", "", "rate", at(2), at(10)); sum != 6 || covered != 6*time.Second {
		t.Errorf("the total adds up to %v in %v, want 6 in 6 s", sum, covered)
	}
}

// Samples that are not taken on the second leave no gaps between them.
func TestJitter(t *testing.T) {
	h := open(t, "", true)
	last := epoch
	for i := 1; i <= 100; i++ {
		end := at(i).Add(time.Duration(i*37%21-10) * time.Millisecond)
		h.Append(end, end.Sub(last), []Row{total(5), volume("a", 3, 0, 0, unknown, unknown)})
		last = end
	}
	for i, v := range h.find(Query{From: at(0), To: at(100), Points: 100, Kind: "volume", Name: "a"}, "volume", "a", "rate") {
		if !(math.Abs(float64(v)-3) <= 1e-5) {
			t.Errorf("step %d is %v, want 3", i, v)
		}
	}
}

// A sample holds the most active objects; who is left out is unknown there, and not idle.
func TestCrowd(t *testing.T) {
	h := open(t, "", true)
	var rows []Row
	for i := range MaxRows + 10 {
		rows = append(rows, volume(fmt.Sprintf("v%03d", i), float32(i+1), 0, 0, unknown, unknown))
	}
	h.second(1, append(rows, resting("idle"))...)
	q := Query{From: at(0), To: at(1), Points: 1, Top: 10_000}
	if n := len(h.Query(q).Objects); n != MaxRows+1 {
		t.Errorf("%d objects are kept, want %d and the total", n, MaxRows)
	}
	for name, want := range map[string]float32{"v009": unknown, "v010": 11, "v073": 74, "idle": unknown} {
		q.Kind, q.Name = "volume", name
		if got := h.find(q, "volume", name, "rate"); !same(got, []float32{want}) {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	q = Query{From: at(0), To: at(1), Points: 1, Top: 2}
	var names []string
	for _, o := range h.Query(q).Objects {
		names = append(names, o.Name)
	}
	if want := []string{"", "v073", "v072"}; !slices.Equal(names, want) {
		t.Errorf("the top is %q, want %q", names, want)
	}
}

// run fills a history with n seconds of one volume that begins at second first.
func run(h *History, first, n int) {
	for i := first; i < first+n; i++ {
		h.second(i, volume("a", float32(i%7), float32(i%5), 1, 10, 20), resting("b"))
	}
}

// What a history has is there after a restart, and time without a daemon is a gap.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, true)
	run(h, 1, 1000)
	h.Flush()
	run(h, 1001, 400)
	day := Query{From: at(-86400), To: at(1400), Points: 1000, Top: 9}
	hour := Query{From: at(0), To: at(1400), Points: 2000, Top: 9}
	before := []Result{h.Query(day), h.Query(hour)}
	h.Close()
	for range 30 { // each of them goes on in the files of the one before
		h = open(t, dir, true)
		h.Close()
	}
	h = open(t, dir, true)
	for i, q := range []Query{day, hour} {
		if got, want := fmt.Sprint(h.Query(q)), fmt.Sprint(before[i]); got != want {
			t.Errorf("after a restart query %d has\n%.2000s\nwant\n%.2000s", i, got, want)
		}
	}
	run(h, 2001, 10)
	h.Close()
	h = open(t, dir, true)
	q := Query{From: at(1398), To: at(2002), Points: 1000, Kind: "volume", Name: "b"}
	got := h.find(q, "volume", "b", "rate")
	for i, v := range got {
		if end := 1399 + i; (v == v) != (end <= 1400 || end >= 2001) {
			t.Errorf("second %d of an idle volume is %v; the daemon was down from 1401 to 2000", end, v)
		}
	}
	if len(got) != 604 {
		t.Errorf("%d steps, want 604", len(got))
	}
}

// A file that ends or is damaged anywhere loses what follows, and nothing else.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, true)
	run(h, 1, 40)
	h.Close()
	path := filepath.Join(dir, "hour", "00000001.log")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{From: at(0), To: at(60), Points: 60, Kind: "volume", Name: "a"}
	for _, flip := range []bool{false, true} {
		last := 0
		for n := len(whole) - 1; n >= 0; n -= 31 {
			b := slices.Clone(whole[:n])
			if flip {
				b = slices.Clone(whole)
				b[n] ^= 0x10
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			h := open(t, dir, false)
			run(h, 50, 2)
			h.Flush()
			h = open(t, dir, true) // what was cut is whole again
			known := 0
			for _, v := range h.find(q, "volume", "a", "dirty") {
				if v == v {
					known++
				}
			}
			if last != 0 && (known > last || known < last-2) || known < 2 {
				t.Fatalf("with %d of %d bytes (flip %v) %d seconds are known, after %d", n, len(whole), flip, known, last)
			}
			last = known
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Records that are whole but make no sense, and folders that cannot be used, end in a notice.
func TestHostileFiles(t *testing.T) {
	frame := func(b []byte) []byte {
		f := &files{pending: []chunk{{}}}
		f.record(b)
		return f.pending[0].b
	}
	head := frame([]byte(`H{"version":1,"fields":{"volume":["rate"],"x":["y"]}}`))
	huge := binary.AppendUvarint([]byte{recTick, 9, 1, 0}, math.MaxUint64)
	for name, b := range map[string][]byte{
		"zeros": make([]byte, 4096), "no header": frame([]byte{recTick, 1, 1, 0, 0}), "two headers": append(slices.Clone(head), head...),
		"rows without end": append(slices.Clone(head), frame(huge)...), "short": append(slices.Clone(head), frame([]byte{recBorn})...),
		"a name without a kind": append(slices.Clone(head), frame([]byte{recObject, 0, 200, 'v'})...),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "hour"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "hour", "00000001.log"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			h := open(t, dir, false)
			run(h, 1, 3)
			h.Close()
			if got := open(t, dir, false).Last(); !got.Equal(at(3)) {
				t.Errorf("the last sample is of %v, want %v", got, at(3))
			}
		})
	}
	t.Run("no folder", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		said := 0
		h := Open(dir, kinds, func(string) { said++ })
		for i := range 5 {
			run(h, 1+i, 1)
			h.Flush()
		}
		if said != 1 || !h.Last().Equal(at(5)) {
			t.Errorf("%d notices, the last sample of %v", said, h.Last())
		}
	})
}

// Two weeks of full samples stay within the bounds, in memory and on disk.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, true)
	var rows []Row
	for i := range MaxRows + 5 {
		rows = append(rows, volume(fmt.Sprint(i), float32(i+1), 1, 1, 1, 1))
	}
	now := 0
	for range 4500 { // of the last hour
		now++
		h.second(now, rows...)
		if now%100 == 0 {
			h.Flush()
		}
	}
	for i := range 2200 { // steps of five minutes
		now += 300
		h.Append(at(now), 10*time.Second, append(slices.Clone(rows), total(1)))
		if i%100 == 0 {
			h.Flush()
		}
	}
	if n := len(h.fine.ticks); n > maxFine {
		t.Errorf("%d samples, at most %d", n, maxFine)
	}
	if n := len(h.coarse.ticks); n > maxCoarse {
		t.Errorf("%d steps, at most %d", n, maxCoarse)
	}
	var disk int64
	_ = filepath.Walk(dir, func(_ string, st os.FileInfo, err error) error {
		if err == nil && !st.IsDir() {
			disk += st.Size()
		}
		return err
	})
	for _, tier := range []*tier{&h.fine, &h.coarse} {
		if n := len(tier.files.segments()); n > maxSegments {
			t.Errorf("%s has %d segments, at most %d", tier.files.dir, n, maxSegments)
		}
		if age := time.Duration(tier.last()-tier.ticks[0].end) * time.Millisecond; age > tier.age {
			t.Errorf("%s has samples of %v, at most %v", tier.files.dir, age, tier.age)
		}
	}
	if disk > 2*maxSegments*(maxSegment+maxRecord) {
		t.Errorf("%d bytes on disk", disk)
	}
	t.Logf("%d bytes on disk, %d samples, %d steps", disk, len(h.fine.ticks), len(h.coarse.ticks))
	week := h.Query(Query{From: at(now).Add(-CoarseAge), To: at(now), Points: 500, Top: 3})
	if len(week.Times) > 500 || len(week.Objects) != 4 {
		t.Errorf("the week has %d steps of %d objects", len(week.Times), len(week.Objects))
	}
}

// A clock that is set back takes what is behind it, and time goes on.
func TestClockSetBack(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, true)
	run(h, 1, 1000)
	run(h, 500, 10)
	for range 2 {
		q := Query{From: at(495), To: at(600), Points: 200, Kind: "volume", Name: "a"}
		got := h.find(q, "volume", "a", "n")
		if !h.Last().Equal(at(509)) || got[13] != 1 || got[14] == got[14] {
			t.Errorf("the last sample is of %v, and %v", h.Last(), got)
		}
		h.Close()
		h = open(t, dir, true)
	}
}

// A step of five minutes in which the clock was set back has what is left of the samples, once.
func TestClockSetBackInAStep(t *testing.T) {
	for _, c := range []struct {
		first, back int
		want        []int64 // spans of the coarse ticks, in seconds
	}{{200, 101, []int64{300, 300}}, {500, 201, []int64{300, 300}}, {500, 401, []int64{300, 300}}} {
		h := open(t, "", true)
		run(h, 1, c.first)
		run(h, c.back, 700-c.back)
		var got []int64
		for _, k := range h.coarse.ticks {
			got = append(got, k.span/1000)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d s, and again from %d s on: the steps cover %v s, want %v", c.first, c.back, got, c.want)
		}
	}
}
