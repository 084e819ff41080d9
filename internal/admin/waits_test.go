package admin

import (
	"fmt"
	"math"
	"testing"

	"github.com/arraysim/arraysim/internal/history"
)

// second is what a volume did in one second.
type second struct {
	commands      float64
	ms            float64 // mean latency
	read, written float64
	undercover    Size
	queue         uint64
}

// neighbours is a pool whose volumes are measured second by second.
type neighbours struct {
	t      *testing.T
	w      *watcher
	waits  *waits
	at     int64
	wrote  map[string]Size
	faults uint64
	used   Size
}

func newNeighbours(t *testing.T) *neighbours {
	found := openFindings(t.TempDir(), func(line string) { t.Error(line) })
	return &neighbours{t: t, w: newWatcher(func(Event) {}, found), waits: newWaits(found), wrote: map[string]Size{}}
}

// run repeats a second; a volume's number follows from its name.
func (n *neighbours) run(seconds int, vols map[string]second) {
	for range seconds {
		c := Counters{Time: n.at * 1e9, Pools: []PoolCounters{{Pool: "p", ID: 3, CacheUsed: n.used, CacheLimit: 100}}}
		var rows []history.Row
		for _, name := range sorted(vols) {
			v := vols[name]
			n.wrote[name] += v.undercover
			id := uint32(name[0])
			c.Volumes = append(c.Volumes, VolumeCounters{Volume: name, ID: id, Pool: "p", Undercover: n.wrote[name], Queue: v.queue,
				Admitted: map[string]Size{"xcopy": n.wrote[name]}})
			values := make([]float32, len(trafficFields))
			values[0], values[1], values[timedField] = float32(v.read), float32(v.written), float32(v.commands)
			values[timedField+1], values[timedField+2] = float32(math.NaN()), float32(math.NaN())
			if v.commands > 0 {
				values[timedField+1], values[timedField+2] = float32(v.ms*1e6), float32(v.ms*3e6)
			}
			rows = append(rows, history.Row{Kind: kindVolume, Name: name, ID: id, Values: values})
		}
		n.w.step(c)
		n.waits.step(c, rows, n.faults)
		n.at++
	}
}

func (n *neighbours) finding(volume string) string {
	for _, f := range n.w.found.list().Findings {
		if f.Volume == volume {
			out := ""
			for _, v := range f.Victims {
				out += fmt.Sprintf("%s %d from %d, p99 %d; ", v.Volume, v.Mean/1e6, v.Before/1e6, v.P99/1e6)
			}
			return fmt.Sprintf("%s%d compared, %d unknown", out, f.Compared, f.Unknown)
		}
	}
	return "none"
}

// A finding names who waited longer than before for the same demand, and nobody without evidence.
func TestVictims(t *testing.T) {
	const MB = 1e6
	clone := second{undercover: 20 * MB}
	reader := second{commands: 100, ms: 2, read: 4 * MB}
	writer := second{commands: 50, ms: 1, written: 2 * MB}
	slow := func(s second, ms float64) second {
		s.ms = ms
		s.commands /= 2
		s.read /= 2
		s.written /= 2
		return s
	}
	calm := map[string]second{"clone": {}, "reader": reader, "writer": writer}
	hot := func(change func(m map[string]second)) map[string]second {
		m := map[string]second{"clone": clone, "reader": slow(reader, 30), "writer": writer}
		change(m)
		return m
	}
	none := func(map[string]second) {}
	for _, c := range []struct {
		name string
		run  func(n *neighbours)
		want string
	}{
		{"one waits", func(n *neighbours) { n.run(30, calm); n.run(10, hot(none)) },
			"reader 30 from 2, p99 90; 2 compared, 0 unknown"},
		{"both wait, the slowest is first", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["writer"] = slow(writer, 80) }))
		}, "writer 80 from 1, p99 240; reader 30 from 2, p99 90; 2 compared, 0 unknown"},
		{"nobody waits", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["reader"] = reader }))
		}, "2 compared, 0 unknown"},
		{"longer by a little", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["reader"] = slow(reader, 3.9) }))
		}, "2 compared, 0 unknown"},
		{"nothing to compare with", func(n *neighbours) { n.run(12, calm); n.run(10, hot(none)) }, "0 compared, 2 unknown"},
		{"too short", func(n *neighbours) { n.run(30, calm); n.run(4, hot(none)) }, "0 compared, 2 unknown"},
		{"its host asks for more", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["reader"] = second{commands: 200, ms: 30, read: 8 * MB} }))
		}, "1 compared, 1 unknown"},
		{"its host reads larger pieces", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["reader"] = second{commands: 10, ms: 30, read: 4 * MB} }))
		}, "1 compared, 1 unknown"},
		{"its host writes instead", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["reader"] = second{commands: 50, ms: 30, written: 2 * MB} }))
		}, "1 compared, 1 unknown"},
		{"another host begins to write", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["backup"] = second{commands: 100, ms: 9, written: 10 * MB} }))
		}, "1 compared, 2 unknown"},
		{"another volume is written more", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["erased"] = second{undercover: 50 * MB} }))
		}, "1 compared, 1 unknown"},
		{"somebody slows an mdisk down meanwhile", func(n *neighbours) {
			n.run(30, calm)
			n.run(3, hot(func(m map[string]second) { m["reader"] = reader }))
			n.run(1, hot(none))
			n.faults++
			n.run(20, hot(none))
		}, "0 compared, 2 unknown"},
		{"it hangs", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(func(m map[string]second) { m["reader"] = second{queue: 4} }))
		}, "1 compared, 1 unknown"},
		{"the cache was full of what hosts wrote", func(n *neighbours) {
			n.used = 99
			n.run(30, calm)
			n.run(10, hot(none))
		}, "0 compared, 2 unknown"},
		{"the next offload has the same baseline", func(n *neighbours) {
			n.run(30, calm)
			n.run(10, hot(none))
			n.run(8, map[string]second{"clone": {}, "reader": slow(reader, 300), "writer": writer}) // the cache drains
			n.run(10, hot(func(m map[string]second) { m["reader"] = slow(reader, 20) }))
		}, "reader 30 from 2, p99 90; 2 compared, 0 unknown"},
	} {
		n := newNeighbours(t)
		c.run(n)
		if got := n.finding("clone"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Who waited is kept over a restart, and a finding of an earlier version knows nothing of it.
func TestVictimsAreKept(t *testing.T) {
	data := t.TempDir()
	f := openFindings(data, func(line string) { t.Error(line) })
	v := &VolumeCounters{Volume: "v", ID: 9, Undercover: 1}
	f.note(v, &VolumeCounters{}, true, nil)
	if x := f.list().Findings[0]; x.Victims == nil || x.Compared != 0 {
		t.Errorf("before anything is known: %+v", x)
	}
	f.waited(v, []Victim{{Volume: "idle", VolumeID: 2, Mean: 7}}, 1, 2)
	f.waited(v, []Victim{{Volume: "idle", VolumeID: 2, Mean: 5}}, 1, 0)
	f.waited(&VolumeCounters{Volume: "v", ID: 10}, []Victim{{Volume: "other"}}, 1, 0) // of another volume of the name
	if err := f.save(); err != nil {
		t.Fatal(err)
	}
	x := openFindings(data, func(line string) { t.Error(line) }).list().Findings[0]
	if len(x.Victims) != 1 || x.Victims[0].Mean != 7 || x.Compared != 1 || x.Unknown != 0 {
		t.Errorf("after a restart: %+v", x)
	}
}
