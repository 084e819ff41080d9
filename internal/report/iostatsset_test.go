package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// nodeFile writes a file of statistics.
func nodeFile(t *testing.T, dir, kind string, at time.Time, zone, inside string) {
	t.Helper()
	text := fmt.Sprintf("<diskStatsColl timestamp=%q timezone=%q>%s</diskStatsColl>", at.Format(xmlTime), zone, inside)
	if err := os.WriteFile(filepath.Join(dir, kind+"_"+at.Format("060102_150405")), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// ofNode is volume v as a node counts it, in blocks: what hosts wrote, what was destaged.
type ofNode struct{ host, lower float64 }

func (n ofNode) String() string {
	return fmt.Sprintf(`<vdsk idx="0" id="v" ro="0" wo="%[1]d" rb="0" wb="%[1]d" rl="0" wl="0"><ca cm="0" /><cpy idx="0"><ca cm="0" ctds="%[2]d" /></cpy></vdsk>`, uint64(n.host), uint64(n.lower))
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A volume's counters are compared node by node, and are not known where a file of a node that has it is missing.
func TestNodesAreComparedOneByOne(t *testing.T) {
	nan := math.NaN()
	still := ofNode{2e6, 8e6}
	gone := ofNode{-1, -1}
	grows := func(n int, by float64) (out []ofNode) {
		for i := range n {
			out = append(out, ofNode{float64(i) * by, float64(i) * by})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		a, b  []ofNode
		apart time.Duration
		want  []float64 // blocks that hosts wrote in each sample
		note  string
	}{
		{"a node begins late", grows(3, 0), []ofNode{gone, still, still}, 0, []float64{nan, 0}, "Nv_stats_B has no file in 1 of 3 sets"},
		{"and later still", grows(5, 10), []ofNode{gone, gone, gone, still, still}, 0, []float64{nan, nan, nan, 10}, "Nv_stats_B has no file in 3 of 5 sets"},
		{"a node ends early", grows(3, 0), []ofNode{still, still, gone}, 0, []float64{0, nan}, "Nv_stats_B has no file in 1 of 3 sets"},
		{"a hole", grows(5, 10), []ofNode{still, still, gone, still, still}, 0, []float64{10, nan, nan, 10}, "Nv_stats_B has no file in 1 of 5 sets"},
		{"nodes that are 2 s apart", grows(4, 10), []ofNode{still, still, still, still}, 2 * time.Second, []float64{10, 10, 10}, ""},
		{"nodes that are 20 s apart", grows(4, 10), grows(4, 1), 20 * time.Second, []float64{11, 11, 11}, ""},
		{"one node restarts, and the sum still grows", grows(4, 3e6), []ofNode{still, still, {0, 0}, {5, 5}}, 0, []float64{3e6, nan, 3e6 + 5}, restarted},
		{"one node restarts, and one of its counters grows", grows(4, 1), []ofNode{{5, 9}, {5, 9}, {7, 3}, {8, 4}}, 0, []float64{1, nan, 2}, restarted},
		{"the counters of one node wrap", []ofNode{{3e9, 3e9}, {3e9, 3e9}, {3e9 + 7, 3e9}}, []ofNode{{1<<32 - 1000, 5}, {1000, 5}, {1001, 5}}, 0, []float64{2000, 8}, ""},
	} {
		dir := t.TempDir()
		for i := range c.a {
			at := noon.Add(time.Duration(i) * time.Minute)
			nodeFile(t, dir, "Nv_stats_A", at, "", c.a[i].String())
			if c.b[i] != gone {
				nodeFile(t, dir, "Nv_stats_B", at.Add(c.apart), "", c.b[i].String())
			}
		}
		d := load1(t, dir, Options{})
		if len(d.Times) != len(c.want) || len(d.Volumes) != 1 {
			t.Errorf("%s: %d samples of %d volumes", c.name, len(d.Times), len(d.Volumes))
			continue
		}
		for i, want := range c.want {
			got := d.Volumes[0].Host[write][i] * d.Volumes[0].Span[i] / 512
			if math.Abs(got-want) > 0.01 || math.IsNaN(got) != math.IsNaN(want) {
				t.Errorf("%s, sample %d: hosts wrote %v blocks, want %v", c.name, i, got, want)
			}
		}
		if found := culprits(detect(d)); len(found) > 0 {
			t.Errorf("%s: %v are accused", c.name, found)
		}
		notes := strings.Join(d.Notes, "\n")
		if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
			t.Errorf("%s: notes are %q, want %q", c.name, notes, c.note)
		}
	}
}

// A volume that moves from a node to another one takes nothing of its counters with it.
func TestAVolumeThatMovesBetweenNodes(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		at, on := noon.Add(time.Duration(i)*time.Minute), [2]string{ofNode{1e6, 4e6}.String(), ""}
		if i > 2 {
			on = [2]string{"", ofNode{5e6, 9e6 + float64(i)}.String()}
		}
		nodeFile(t, dir, "Nv_stats_A", at, "", on[0])
		nodeFile(t, dir, "Nv_stats_B", at, "", on[1])
	}
	d := load1(t, dir, Options{})
	if found := culprits(detect(d)); len(found) > 0 {
		t.Errorf("%v are accused", found)
	}
	lower := d.Volumes[0].Lower
	if lower[1] != 0 || !math.IsNaN(lower[2]) || math.Abs(lower[4]*60-512) > 0.01 {
		t.Errorf("%v left the cache", lower)
	}
}

// A partition that is full on one node is not emptied by another one, whichever file is read last.
func TestFullnessOfNodes(t *testing.T) {
	for _, full := range [][2]int{{100, 10}, {10, 100}} {
		dir := t.TempDir()
		for i := range 3 {
			at := noon.Add(time.Duration(i) * time.Minute)
			for n, node := range [...]string{"A", "B"} {
				nodeFile(t, dir, "Nv_stats_"+node, at, "", ofNode{}.String())
				nodeFile(t, dir, "Nn_stats_"+node, at, "", fmt.Sprintf(`<uca><partition mdg="0"><ca wcfav="%[1]d" wcfmx="%[1]d" /></partition></uca>`, full[n]))
			}
		}
		p := load1(t, dir, Options{}).Pools[0]
		if p.Peak[1] != 1 || math.Abs(p.Full[1]-0.55) > 1e-9 {
			t.Errorf("%v: peak %v, mean %v", full, p.Peak[1], p.Full[1])
		}
	}
}

// The times of files are of the zone that they name, whatever it is at another node or after an hour more of daylight.
func TestZonesOfFiles(t *testing.T) {
	for zone, want := range map[string]time.Duration{"GMT+2:00": 2 * time.Hour, "GMT-7:00": -7 * time.Hour, "GMT+05:30": 5*time.Hour + 30*time.Minute,
		"GMT-3:30": -(3*time.Hour + 30*time.Minute), "GMT": 0, "": 0, "UTC": 0, "GMT+0:00": 0} {
		if got, ok := zoneOffset(zone); got != want || !ok {
			t.Errorf("%q: %v, %v", zone, got, ok)
		}
	}
	if _, ok := zoneOffset("Europe/Berlin"); ok {
		t.Error("a place is a time zone")
	}
	dir := t.TempDir()
	for i := range 4 {
		zone, at := "GMT+1:00", noon.Add(time.Hour)
		if i > 1 {
			zone, at = "GMT+2:00", noon.Add(2*time.Hour)
		}
		nodeFile(t, dir, "Nv_stats_A", at.Add(time.Duration(i)*time.Minute), zone, ofNode{}.String())
	}
	d := load1(t, dir, Options{})
	if f := detect(d); f.From != "2026-03-01 12:00:00" || f.To != "2026-03-01 12:03:00" || d.Step() != 60 {
		t.Errorf("from %s to %s, %v s", f.From, f.To, d.Step())
	}
	if !slices.ContainsFunc(d.Notes, func(n string) bool { return strings.HasPrefix(n, "times are UTC") }) {
		t.Errorf("notes are %v", d.Notes)
	}
}
