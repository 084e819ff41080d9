package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
)

// newTestExports makes an array in virtual time with volumes a, b and c.
func newTestExports(t *testing.T) (*exports, map[string]*array.Volume, *block.Virtual) {
	t.Helper()
	clock := &block.Virtual{}
	a, err := array.Open(array.Options{Exec: clock, Store: store.NewMemory(clock, store.MemoryOptions{}), CacheBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	a.CreatePool(array.PoolSpec{Name: "p", Mdisks: []array.MdiskSpec{{Name: "m", Size: 1 << 30}}}, func(_ *array.Pool, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	clock.Run() // a pool is there when that is durable
	vols := map[string]*array.Volume{}
	for _, name := range []string{"a", "b", "c"} {
		a.CreateVolume(array.VolumeSpec{Name: name, Pool: "p", Sectors: 2048, Thin: true}, func(v *array.Volume, err error) {
			if err != nil {
				t.Error(err)
			}
			vols[name] = v
		})
	}
	clock.Run()
	x, err := newExports(a, scsi.NewTarget(scsi.Options{Name: "iqn.x:y", Exec: clock}))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range a.Volumes() {
		x.open(v)
	}
	return x, vols, clock
}

// sees returns the LUNs at which an initiator finds a ready unit.
func sees(t *testing.T, x *exports, clock *block.Virtual, initiator string) string {
	t.Helper()
	n := x.target.OpenNexus(initiator, initiator+",i,0x1", 1)
	var found []string
	for lun := range uint64(8) {
		for range 3 { // the first commands hear of unit attentions
			task := &scsi.Task{LUN: lun << 48, CDB: make([]byte, 6), Bufs: buffers{}, Done: func(*scsi.Task) {}}
			n.Submit([]*scsi.Task{task})
			clock.Run()
			if task.Status == scsi.StatusGood {
				found = append(found, fmt.Sprint(lun))
				break
			}
		}
	}
	n.Close(func() {})
	clock.Run()
	return strings.Join(found, " ")
}

func TestExports(t *testing.T) {
	const one, two, other = "iqn.2026-01.host:1", "iqn.2026-01.host:2", "iqn.2026-01.host:3"
	x, vols, clock := newTestExports(t)
	add := func(v string, lun int, initiators ...string) func() error {
		return func() error { return x.add(vols[v], exportSpec{LUN: lun, Initiators: initiators}) }
	}
	remove := func(v string, lun int) func() error {
		return func() error {
			if x.remove(vols[v], func(e exportSpec) bool { return e.LUN == lun }, nil) != 1 {
				return fmt.Errorf("nothing was removed")
			}
			return nil
		}
	}
	// Each step builds on those before it.
	for _, row := range []struct {
		name            string
		step            func() error
		one, two, other string
		fails           bool
	}{
		{"nothing is shown at first", func() error { return nil }, "", "", "", false},
		{"to every initiator", add("a", 0), "0", "0", "0", false},
		{"to one, who sees the others' too", add("b", 1, one), "0 1", "0", "0", false},
		{"the same LUN of another volume to another", add("c", 1, two), "0 1", "0 1", "0", false},
		{"a LUN that one of two has", add("a", 1, two, other), "0 1", "0 1", "0", true},
		{"a LUN for all that one has", add("a", 1), "0 1", "0 1", "0", true},
		{"a LUN for one that all have", add("b", 0, other), "0 1", "0 1", "0", true},
		{"a volume twice", add("a", 5), "0 1 5", "0 1 5", "0 5", false},
		{"the export of one ends, it still sees the others'", remove("b", 1), "0 5", "0 1 5", "0 5", false},
		{"what is for all ends for all", remove("a", 0), "5", "1 5", "5", false},
		{"and comes back for all", add("b", 0), "0 5", "0 1 5", "0 5", false},
		{"a LUN out of range", add("b", maxLUN+1), "0 5", "0 1 5", "0 5", true},
		{"a unit is closed", func() error { x.close(vols["a"]); return nil }, "0", "0 1", "0", false},
		{"and opened again", func() error { x.open(vols["a"]); x.show(nil); return nil }, "0 5", "0 1 5", "0 5", false},
	} {
		if err := row.step(); (err != nil) != row.fails {
			t.Fatalf("%s: %v", row.name, err)
		}
		for _, want := range []struct{ initiator, luns string }{{one, row.one}, {two, row.two}, {other, row.other}} {
			if got := sees(t, x, clock, want.initiator); got != want.luns {
				t.Errorf("%s: %s sees LUNs %q, want %q", row.name, want.initiator, got, want.luns)
			}
		}
	}
	// What is kept gives the same again, without the exports of volumes that are gone.
	x.specs[99] = &unitSpec{Exports: []exportSpec{{LUN: 7}}}
	x.save(func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	clock.Run()
	y, err := newExports(x.array, x.target)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range vols {
		if got, want := fmt.Sprint(y.list(v)), fmt.Sprint(x.list(v)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if y.specs[99] != nil {
		t.Error("the exports of a volume that is gone came back")
	}
}

// TestOwnExportTakesNothing: an initiator that gets an export of its own keeps those that it had with all others, and what they keep
// for it.
func TestOwnExportTakesNothing(t *testing.T) {
	const one = "iqn.2026-01.host:1"
	x, vols, clock := newTestExports(t)
	for lun, v := range []string{"a", "b"} {
		if err := x.add(vols[v], exportSpec{LUN: lun}); err != nil {
			t.Fatal(err)
		}
	}
	n := x.target.OpenNexus(one, one+",i,0x1", 1)
	had := slices.Clone(n.ITLs()[:2])
	if err := x.add(vols["c"], exportSpec{LUN: 2, Initiators: []string{one}}); err != nil {
		t.Fatal(err)
	}
	clock.Run()
	if len(n.ITLs()) != 3 || !slices.Equal(n.ITLs()[:2], had) {
		t.Errorf("it has %v, and had %v", n.ITLs(), had)
	}
}

// TestRemovedExportWaits: the end of an export is answered when the commands have ended that came by it, or after a while, and then
// with an error.
func TestRemovedExportWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay time.Duration
		fails bool
	}{{"they end", 300 * time.Millisecond, false}, {"they do not", time.Hour, true}} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := daemonWith(t, scsi.Options{Delay: func(*scsi.Task) int64 { return int64(c.delay) }})
			if _, err := d.addExport(Export{Volume: "a", LUN: 0}); err != nil {
				t.Fatal(err)
			}
			g, over := d.groups[0], false
			task := &scsi.Task{CDB: make([]byte, 6), Bufs: buffers{}, Done: func(*scsi.Task) { over = true }}
			g.exec.Lock()
			g.target.OpenNexus("iqn.x:host", "iqn.x:host,i,0x1", 1).Submit([]*scsi.Task{task})
			g.exec.Unlock()
			if c.fails {
				close(d.closing) // nobody waits for long then
			}
			err := d.removeExport("a", 0)
			g.exec.Lock()
			defer g.exec.Unlock()
			if (err != nil) != c.fails || over == c.fails || over && task.Status != scsi.StatusCheckCondition {
				t.Errorf("answered %v; the command has ended: %v, status %02x", err, over, task.Status)
			}
			if n := len(g.exports.shown[""]); n != 0 {
				t.Errorf("%d LUNs are left", n)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	for _, row := range []struct {
		name string
		a, b []string
		want bool
	}{
		{"all and all", nil, nil, true},
		{"all and one", nil, []string{"x"}, true},
		{"one and all", []string{"x"}, nil, true},
		{"one in common", []string{"x", "y"}, []string{"z", "y"}, true},
		{"none in common", []string{"x"}, []string{"y"}, false},
	} {
		if got := overlap(row.a, row.b); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

func TestTally(t *testing.T) {
	var s metrics.Snapshot
	var took metrics.Histogram
	took.Observe(300)
	took.Observe(500)
	s.Value(metrics.CacheSize, 1000)
	s.Value(metrics.CacheLimit, 660, "p")
	s.Value(metrics.CacheUsed, 30, "p")
	s.Value(metrics.BackendBytes, 1, "p", "m", "read", "host", "stage")
	s.Value(metrics.BackendBytes, 2, "p", "m", "write", "host", "destage")
	s.Value(metrics.BackendBytes, 4, "p", "m", "write", "xcopy", "destage")
	s.Value(metrics.OffloadInflight, 21, "xcopy", "p")
	s.Value(metrics.CachePinned, 22, "p")
	s.Value(metrics.HostCommands, 3, "v", "p", "h", "read", "good")
	s.Value(metrics.HostCommands, 2, "v", "p", "h", "read", "check")
	s.Value(metrics.HostTransferred, 5, "v", "p", "read")
	s.Value(metrics.HostTransferred, 6, "v", "p", "write")
	s.Value(metrics.HostDescribed, 7, "v", "p", "write_same")
	s.Value(metrics.HostDescribed, 0, "v", "p", "unmap")
	s.Value(metrics.HostQueueDepth, 4, "v")
	s.Histogram(metrics.HostDuration, &took, "v", "read")
	s.Value(metrics.OffloadOperations, 15, "xcopy", "v", "data", "good")
	s.Value(metrics.CacheAdmitted, 8, "p", "v", "host", "fast")
	s.Value(metrics.CacheAdmitted, 9, "p", "v", "host", "write_through")
	s.Value(metrics.CacheDestaged, 10, "p", "v", "xcopy")
	s.Value(metrics.CacheDirty, 11, "p", "v", "host")
	s.Value(metrics.CacheDirty, 12, "p", "v", "xcopy")
	s.Value(metrics.Undercover, 13, "p", "v", "xcopy")
	s.Value(metrics.VolumeSize, 14, "w", "p")
	c := tally(&s)
	want := "{0 1000 [" +
		"{v 0 p 5 5 6 map[write_same:7] map[host:17] map[xcopy:10] 23 13 map[xcopy:15] 4 2 800} " +
		"{w 0 p 0 0 0 map[] map[] map[] 0 0 map[] 0 0 0}] " +
		"[{p 0 30 660 0 1 6 map[host:2 xcopy:4] map[xcopy:21] 22 0}] " +
		"[{h map[read:5] 2}]}"
	if got := fmt.Sprint(c); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCounterRates(t *testing.T) {
	from := Counters{Time: 1e9, Volumes: []VolumeCounters{{Volume: "v", Read: 5e6}}, Pools: []PoolCounters{{Pool: "p"}}}
	to := Counters{Time: 3e9, Volumes: []VolumeCounters{{Volume: "v", Read: 25e6, Undercover: 1 << 20}, {Volume: "new", Written: 4e6}},
		Pools: []PoolCounters{{Pool: "p", CacheUsed: 33, CacheLimit: 66}}}
	var out strings.Builder
	WriteRates(&out, from, to)
	WriteTotals(&out, to)
	lines := strings.Split(out.String(), "\n")
	for _, want := range []string{
		"VOLUME POOL HOST READ MB/s HOST WRITTEN MB/s DESCRIBED MB/s UNDERCOVER MB/s DIRTY",
		"v 10.0 0.0 0.0 0.5 0 B", "new 0.0 2.0 0.0 0.0 0 B", "p 33 B 66 B 50 % 0 B 0.0 0.0",
		"VOLUME POOL HOST READ HOST WRITTEN DESCRIBED UNDERCOVER DIRTY",
		"v 23.8 MiB 0 B 0 B 1 MiB 0 B", "p 33 B 66 B 50 % 0 B 0 B 0 B",
	} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Join(strings.Fields(l), " ") == want }) {
			t.Errorf("no line %q in\n%s", want, &out)
		}
	}
}
